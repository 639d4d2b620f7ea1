package seal

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestRedactedShowsNothing(t *testing.T) {
	const secret = "hunter2"
	type binding struct {
		Shown  string
		Secret Redacted
		hidden Redacted
		many   map[string][]Redacted
	}
	r := Redact([]byte(secret))
	values := map[string]any{
		"itself":  r,
		"pointer": &r,
		"struct":  binding{"s", r, r, map[string][]Redacted{"k": {r}}},
		"slice":   []Redacted{r},
		"map":     map[string]Redacted{"k": r},
		"any":     []any{r, &r},
	}
	// The secret as text, bytes and hexadecimal.
	traces := []string{secret, "104 117", "68756e", "68 75", "0x68", "aHVudGVyMg"}
	for name, value := range values {
		outputs := map[string]string{}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%o", "%T", "%p"} {
			outputs[verb] = fmt.Sprintf(verb, value)
		}
		outputs["Print"] = fmt.Sprint(value)
		for format, marshal := range map[string]func(any) ([]byte, error){"json": json.Marshal, "yaml": yaml.Marshal} {
			encoded, err := marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			outputs[format] = string(encoded)
		}
		var text, structured bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "value", value)
		slog.New(slog.NewJSONHandler(&structured, nil)).Info("m", "value", value)
		outputs["slog text"], outputs["slog JSON"] = text.String(), structured.String()

		for how, output := range outputs {
			for _, trace := range traces {
				if strings.Contains(output, trace) {
					t.Errorf("%s by %s shows %q: %s", name, how, trace, output)
				}
			}
		}
	}
	encoded, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"binding"`
		Secret  Redacted
	}{Secret: r})
	if err != nil || strings.Contains(string(encoded), secret) {
		t.Errorf("xml: %s, %v", encoded, err)
	}
	if got := string(r.Reveal()); got != secret {
		t.Errorf("Reveal gives %q", got)
	}
}

func TestRedactedComparesContent(t *testing.T) {
	a := Redact([]byte("a"))
	if !a.Equal(Redact([]byte("a"))) || a.Equal(Redact([]byte("b"))) || !(Redacted{}).Equal(Redact(nil)) {
		t.Error("Equal is wrong")
	}
	if (Redacted{}).Reveal() != nil {
		t.Error("the zero value has content")
	}
}

func ExampleRedacted() {
	password := Redact([]byte("hunter2"))
	fmt.Println("connecting with", password)
	fmt.Println(len(password.Reveal()), "bytes")
	// Output:
	// connecting with [redacted]
	// 7 bytes
}
