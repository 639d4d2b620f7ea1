package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/loopback"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// asSluice makes this test's binary the program itself.
const asSluice = "SLUICE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asSluice) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// served is a `sluice serve` with an embedded hub.
type served struct {
	*testing.T
	dir, url string
	process  *exec.Cmd
	args     []string
	log      *os.File
}

// serveAnother starts one, with more flags; it ends with the test.
func serveAnother(t *testing.T, name string, more ...string) *served {
	t.Helper()
	dir, address := t.TempDir(), loopback.Address()
	platforms := filepath.Join(dir, "platforms.yaml")
	if err := os.WriteFile(platforms, []byte(`platforms:
- name: first
  basic: [{username: first, password: first-password}, {username: first, password: first-previous-password}]
  bearer: [first-token]
- name: second
  basic: [{username: second, password: second-password}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.ArtifactDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	s := &served{T: t, dir: dir, url: "http://" + address, log: log, args: append([]string{
		"serve", "--data-dir", dir, "--listen", address, "--metrics-listen", "0", "--platforms", platforms,
		"--bind-wait", "0s", "--probe-every", "500ms", "--collect", "off",
	}, more...)}
	s.start()
	t.Cleanup(func() {
		_ = s.process.Process.Signal(syscall.SIGTERM)
		_ = s.process.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the log of %s (its end):\n%s", name, text[max(0, len(text)-8000):])
		}
	})
	return s
}

// start starts the program, again if it was killed, and waits until it is ready.
func (s *served) start() {
	s.Helper()
	s.process = exec.Command(os.Args[0], s.args...)
	s.process.Env = append(os.Environ(), asSluice+"=1")
	s.process.Stdout, s.process.Stderr = s.log, s.log
	if err := s.process.Start(); err != nil {
		s.Fatal(err)
	}
	s.until("it is ready", func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(r)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("it answers %s", response.Status)
		}
		if response != nil {
			_ = response.Body.Close()
		}
		return err
	})
}

// until waits until a check succeeds, at most a minute.
func (s *served) until(what string, check func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("wait until %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sluice runs an operator's command.
func (s *served) sluice(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(append(args, "--data-dir", s.dir))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(s.Context())
	return out.String(), err
}

func (s *served) must(args ...string) string {
	s.Helper()
	out, err := s.sluice(args...)
	if err != nil {
		s.Fatalf("sluice %v: %v\n%s", args, err, out)
	}
	return out
}

// behind registers a broker that is served at a URL, and sells its plans small and large. It gets parameters, or else
// the consumer's.
func (s *served) behind(name, url, service, parameters string) {
	s.Helper()
	file := filepath.Join(s.dir, name+".password")
	if err := os.WriteFile(file, []byte("first-password\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	s.must("broker", "add", name, "--url", url, "--address", "127.0.0.0/8", "--username", "first", "--password-file", file, "--region", "eu", "--refresh", "1s")
	plan := func(plan string) string {
		return fmt.Sprintf(`
  - id: ours-%[1]s
    name: %[1]s
    description: A plan of a broker behind this one
    dashboardURL: https://dashboard.example/{platform}/{instance_id}
    maintenanceInfo: {version: 1.2.3, description: As of the first edition}
    kind: upstream
    upstream:
      candidates: [{broker: %[2]s, service: %[3]s, plan: %[1]s%[4]s}]
    schemas:
      instanceCreate: &parameters {type: object, additionalProperties: false, properties: {size: {type: integer}, pending: {}, fails: {}}}
      instanceUpdate: *parameters
      bindingCreate: {type: object, additionalProperties: false}
`, plan, name, service, parameters)
	}
	if parameters != "" {
		parameters = ", parameters: " + parameters
	}
	offering := filepath.Join(s.dir, "offering.yaml")
	if err := os.WriteFile(offering, []byte(`apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata: {name: upstream}
spec:
  id: upstream
  name: upstream
  description: Services of others
  plans:`+plan("small")+plan("large")+`
---
apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata: {name: other}
spec:
  id: other
  name: other
  description: Another service
  plans: [{id: other-small, name: small, description: A plan, kind: upstream, upstream: {candidates: [{broker: `+name+`, service: `+service+`, plan: small}]}}]
`), 0o600); err != nil {
		s.Fatal(err)
	}
	s.must("catalog", "apply", "-f", offering)
}

// TestSluiceBehindSluice: three brokers in a row, of which two are Sluices, are one conformant broker at the
// top, and nothing is left at the bottom.
func TestSluiceBehindSluice(t *testing.T) {
	t.Parallel()
	bottom := newGate(&suitetest.Broker{AsyncBind: true})
	server := httptest.NewServer(bottom)
	defer server.Close()
	middle, top := serveAnother(t, "middle"), serveAnother(t, "top")
	middle.behind("bottom", server.URL, "name-of-service", "")
	middle.until("it sells", func(context.Context) error { return sells(middle) })
	top.behind("middle", middle.url, "upstream", "")
	top.until("it sells", func(context.Context) error { return sells(top) })

	suite := exec.CommandContext(t.Context(), "go", "tool", "ginkgo", "--procs=12", "--no-color", "--succinct", "--timeout=10m", "./test/osb")
	suite.Dir = filepath.Join("..", "..")
	suite.Env = append(os.Environ(),
		"OSB_STRICT=1", "OSB_ASYNC_BIND=1", "OSB_URL="+top.url,
		"OSB_POLLING_INTERVAL=300ms", // twelve that ask three times as often take processors from both Sluices
		"OSB_USERNAME=first", "OSB_PASSWORD=first-password", "OSB_PREVIOUS_PASSWORD=first-previous-password", "OSB_TOKEN=first-token",
		"OSB_PLATFORM2_USERNAME=second", "OSB_PLATFORM2_PASSWORD=second-password",
		"OSB_SERVICE_ID=upstream", "OSB_PLAN_ID=ours-small", "OSB_OTHER_PLAN_ID=ours-large",
		`OSB_OTHER_PARAMETERS={"size":2}`, `OSB_PENDING_PARAMETERS={"pending":true}`, `OSB_FAILING_UPDATE_PARAMETERS={"fails":true}`,
	)
	if out, err := suite.CombinedOutput(); err != nil {
		t.Errorf("the suite: %v\n%s", err, out[max(0, len(out)-30_000):])
	}
	top.until("nothing is left at the bottom", func(context.Context) error {
		if left := bottom.left(); len(left) > 0 {
			return fmt.Errorf("%d are left: %.200s", len(left), strings.Join(left, " "))
		}
		return nil
	})
}

// TestBrokersInACircle: two Sluices that sell each other's plan refuse the order instead of ordering from each other
// for ever, say why, and leave nothing.
func TestBrokersInACircle(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&suitetest.Broker{})
	defer server.Close()
	first, second := serveAnother(t, "first"), serveAnother(t, "second")
	second.behind("bottom", server.URL, "name-of-service", "")
	second.until("it sells", func(context.Context) error { return sells(second) })
	first.behind("second", silent(t, second.url), "upstream", "")
	first.until("it sells", func(context.Context) error { return sells(first) })
	second.behind("first", first.url, "upstream", "")

	const path = "/v2/service_instances/one"
	const plan = "service_id=upstream&plan_id=ours-small"
	if status, answer := first.send(t, http.MethodPut, path+"?accepts_incomplete=true",
		`{"service_id":"upstream","plan_id":"ours-small","organization_guid":"o","space_guid":"s"}`); status != http.StatusAccepted {
		t.Fatalf("it is ordered: %d %s", status, answer)
	}
	first.until("the order fails, and says why", func(context.Context) error {
		_, answer := first.send(t, http.MethodGet, path+"/last_operation?"+plan, "")
		if !strings.Contains(answer, "failed") || !strings.Contains(answer, "sell each other's plans in a circle") {
			return fmt.Errorf("the operation is %s", answer)
		}
		return nil
	})
	if listed := second.must("instance", "list"); strings.Count(listed, "upstream/small") > 1 {
		t.Errorf("the second has more than the order of the first:\n%s", listed)
	}
	if status, answer := first.send(t, http.MethodDelete, path+"?accepts_incomplete=true&"+plan, ""); status >= http.StatusBadRequest {
		t.Fatalf("it is deleted: %d %s", status, answer)
	}
	for _, s := range []*served{first, second} {
		s.until("nothing is left", func(context.Context) error {
			if listed := s.must("instance", "list"); strings.Contains(listed, "upstream/small") {
				return fmt.Errorf("there is\n%s", listed)
			}
			return nil
		})
	}
}

// silent returns the URL of a proxy of a Sluice that takes what only Sluices say out of its catalog, as a broker that
// resells its plans would.
func silent(t *testing.T, to string) string {
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		if r.Request.URL.Path == "/v2/catalog" {
			body = bytes.ReplaceAll(body, []byte(`"sluice":`), []byte(`"unsaid":`)) // as long
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		return err
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// TestACircleInTheCatalogs: of two Sluices that sell each other's plan, the one that closes the circle orders nothing
// there, before any order is made, and says so. It sells again once the other has another broker.
func TestACircleInTheCatalogs(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&suitetest.Broker{})
	defer server.Close()
	first, second := serveAnother(t, "first"), serveAnother(t, "second")
	second.behind("bottom", server.URL, "name-of-service", "")
	second.until("it sells", func(context.Context) error { return sells(second) })
	first.behind("second", second.url, "upstream", "")
	first.until("its catalog names the one behind it", func(context.Context) error { return says(first, `"depth":2`) })
	if described := first.must("broker", "describe", "second"); !strings.Contains(described, "orders come through 1 Sluice at most") {
		t.Errorf("the first says\n%s", described)
	}
	second.behind("first", first.url, "upstream", "")
	second.until("its plans are withdrawn", func(context.Context) error { return says(second, `"withdrawn":true`) })
	said := second.must("broker", "describe", "first") + second.must("broker", "list", "-o", "json")
	for _, want := range []string{"upstream/small: the broker orders it from this one", "withdrawn: no broker offers it any more", "LoopDetected"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	status, answer := second.send(t, http.MethodPut, "/v2/service_instances/one?accepts_incomplete=true",
		`{"service_id":"upstream","plan_id":"ours-small","organization_guid":"o","space_guid":"s"}`)
	if status < http.StatusBadRequest {
		t.Errorf("an order in a circle is taken: %d %s", status, answer)
	}
	first.behind("bottom", server.URL, "name-of-service", "")
	second.until("it sells again", func(context.Context) error {
		if err := says(second, `"withdrawn":true`); err == nil {
			return errors.New("its plans are withdrawn")
		}
		return says(second, `"depth":2`)
	})
}

// says reports whether a catalog has a text.
func says(s *served, text string) error {
	_, catalog, err := s.ask(s.Context(), http.MethodGet, "/v2/catalog", "")
	if err == nil && !strings.Contains(catalog, text) {
		err = fmt.Errorf("the catalog is %s", catalog)
	}
	return err
}

// offers applies offerings and waits until the catalog has a text of theirs: it is served a moment after it is judged.
func (s *served) offers(file, text string) {
	s.Helper()
	s.must("catalog", "apply", "-f", file)
	s.until(file+" is offered", func(context.Context) error { return says(s, text) })
}

// sells reports whether both plans are offered.
func sells(s *served) error { return says(s, "ours-large") }
