package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// shop is a broker, and a consumer with its commands.
type shop struct {
	*testing.T
	*gate
}

// openShop opens one; the environment names it.
func openShop(t *testing.T, broker *suitetest.Broker) *shop {
	t.Helper()
	s := &shop{t, newGate(broker)}
	server := httptest.NewServer(s.gate)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{envURL: server.URL, envUsername: suitetest.FirstUsername, envPassword: suitetest.FirstPassword, envToken: ""} {
		t.Setenv(name, value)
	}
	return s
}

// run runs a command, and returns its output and what it told beside.
func (s *shop) run(args ...string) (out, told string, err error) {
	s.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	err = cmd.ExecuteContext(ctx)
	return stdout.String(), stderr.String(), err
}

// says runs a command that succeeds, and checks what it prints.
func (s *shop) says(command string, want ...string) string {
	s.Helper()
	out, told, err := s.run(strings.Fields(command)...)
	if err != nil {
		s.Fatalf("sluice %s: %v\n%s%s", command, err, out, told)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			s.Errorf("sluice %s: no %q in\n%s", command, text, out)
		}
	}
	return out
}

// refuses runs a command that fails, and checks why.
func (s *shop) refuses(command, why string) {
	s.Helper()
	if out, _, err := s.run(strings.Fields(command)...); err == nil || !strings.Contains(err.Error(), why) {
		s.Errorf("sluice %s: %v, want %q\n%s", command, err, why, out)
	}
}

// TestConsumer: whoever has nothing but the URL of an OSB broker, and credentials for it, looks at its market, orders,
// binds, changes, and gives everything back.
func TestConsumer(t *testing.T) {
	for name, broker := range map[string]*suitetest.Broker{"binds at once": {}, "binds later": {AsyncBind: true}} {
		t.Run(name, func(t *testing.T) {
			s := openShop(t, broker)
			s.says("market", "SERVICE", "name-of-service", "small", "large")
			s.says("market name-of-service small", "Can be bound:", "true", "Parameters of an order:", "pending")
			s.says("order db name-of-service small -p size=3", "Instance:", "db", "small", "succeeded", `{"size":3}`)
			s.says("order db name-of-service small -p size=3", "succeeded") // is the same order

			first := s.says("bind db", `"credentials"`)
			if again := s.says("bind db -o json"); again != first {
				t.Errorf("the same binding is\n%s\nand then\n%s", first, again)
			}
			if second := s.says("bind db second --replaces default"); second == first {
				t.Error("two bindings have the same credentials")
			}
			s.says("update db --to large", "large", "succeeded")
			s.says("update db -p size=4 -o json", `"size": 4`)
			s.says("unbind db second", "db/second is revoked")
			s.says("unbind db", "db/default is revoked")
			s.says("cancel db", "db is deleted")
			s.refuses("show db", `there is no service instance "db"`)
			if left := s.left(); len(left) > 0 {
				t.Errorf("the broker still has %v", left)
			}
		})
	}
}

// TestConsumerErrors: a mistake is told before anything is ordered; what a broker refuses is told in its words.
func TestConsumerErrors(t *testing.T) {
	s := openShop(t, &suitetest.Broker{})
	for command, why := range map[string]string{
		"order db nothing":                                  `service "nothing" is not offered; there is name-of-service`,
		"order db name-of-service":                          "service name-of-service: name a plan: small, large",
		"order db name-of-service tiny":                     `plan "tiny" is not offered; there is small`,
		"order db name-of-service small -p size":            "--parameter size: want NAME=VALUE",
		"order db name-of-service small --parameters /none": "--parameters: open /none",
		"order db name-of-service small -p colour=red":      "db: provision: 400 Bad Request",
		"market nothing":                                    `service "nothing" is not offered`,
		"show db":                                           `there is no service instance "db"`,
		"bind db":                                           `there is no service instance "db", or its broker does not show it`,
		"cancel db":                                         "name what it is of with --service and --plan",
		"update db":                                         `there is no service instance "db"`,
	} {
		s.refuses(command, why)
	}
	if left := s.left(); len(left) > 0 {
		t.Errorf("the broker has %v", left)
	}

	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return r.Method == http.MethodPut
	})
	s.refuses("order db name-of-service small", "sluice cancel db --service name-of-service --plan small")
	s.set(nil)
	s.says("cancel db --service name-of-service --plan small", "db is deleted")

	s.says("order db name-of-service small")
	s.refuses("update db", "nothing is to change")
	s.refuses("update db -p fails=true", "db failed")
	s.refuses("kubeconfig db", "the credentials have no kubeconfig but")
	s.refuses("order db name-of-service large", "409 Conflict")
	s.says("order slow name-of-service small -p pending=true --wait 0", "in progress")
	s.refuses("order slow name-of-service small -p pending=true --wait 300ms", "slow has not ended after")

	t.Setenv(envPassword, "wrong")
	s.refuses("market", "401 Unauthorized")
	t.Setenv(envToken, "too")
	s.refuses("market", "credentials for the broker: set either $SLUICE_USERNAME and $SLUICE_PASSWORD, or $SLUICE_TOKEN")
	t.Setenv(envURL, "")
	s.refuses("market --data-dir "+t.TempDir(), "no broker is named with --broker or $SLUICE_URL")
}

// TestConsumerWaits: while a broker does not answer, or asks for patience, the command goes on waiting; it tells what
// changes, once.
func TestConsumerWaits(t *testing.T) {
	s := openShop(t, &suitetest.Broker{})
	polls := 0
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "last_operation") || polls > 4 {
			return false
		}
		switch polls++; polls {
		case 1:
			panic(http.ErrAbortHandler) // nobody hears an answer
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3, 4:
			_, _ = w.Write([]byte(`{"state": "in progress", "description": "1 of 2\u001b[2J pods"}`))
		default:
			return false
		}
		return true
	})
	_, told, err := s.run("order", "db", "name-of-service", "small")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(told, "db: 1 of 2") != 1 || strings.Contains(told, "\u001b") || polls < 5 {
		t.Errorf("after %d polls it told:\n%s", polls, told)
	}
}

// TestConsumerAsksAgain: an answer to a poll that OSB does not know ends nothing (2.17, "Polling Last Operation").
func TestConsumerAsksAgain(t *testing.T) {
	s := openShop(t, &suitetest.Broker{})
	polls := 0
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "last_operation") {
			return false
		}
		switch polls++; polls {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			_, _ = w.Write([]byte("nonsense"))
		default:
			return false
		}
		return true
	})
	if _, told, err := s.run("order", "db", "name-of-service", "small"); err != nil || !strings.Contains(told, "500 Internal Server Error") || !strings.Contains(told, "not OSB") {
		t.Errorf("after %d polls: %v; it told:\n%s", polls, err, told)
	}
}

// TestConsumerParameters: a value is JSON or text, and text where the schema says so.
func TestConsumerParameters(t *testing.T) {
	const schema = `{"type": "object", "required": ["version"], "properties": {
		"version": {"type": "string", "description": "Of the server"}, "nodes": {"type": "integer", "default": 1}, "tier": {"enum": ["a", "b"]},
		"any": {}, "some": {"type": ["string", "null"]}, "odd": 7}}`
	file := filepath.Join(t.TempDir(), "parameters.yaml")
	if err := os.WriteFile(file, []byte("nodes: 3\ntier: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := parameterFlags{document: file, values: []string{"version=17", "nodes=5", "any={\"a\": [1]}", "free=text = with signs", "some=null"}}
	got, err := f.read(newCommand(), json.RawMessage(schema))
	if want := `{"any":{"a":[1]},"free":"text = with signs","nodes":5,"some":null,"tier":"a","version":"17"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	var shown []string
	for _, p := range parametersOf(json.RawMessage(schema)) {
		shown = append(shown, p.name+" "+p.kind())
	}
	if got, want := strings.Join(shown, ", "), "any any, nodes integer, odd any, some string or null, tier a or b, version string"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	for _, bad := range []string{"[1]", "a: [", "a: 1\na: 2"} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.read(newCommand(), nil); err == nil || !strings.HasPrefix(err.Error(), "--parameters: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
