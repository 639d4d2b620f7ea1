package strictjson

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pivotal-cf/brokerapi/v10/domain"
)

type order struct {
	ID     string           `json:"id"`
	Count  int8             `json:"count"`
	Urgent bool             `json:"urgent"`
	Tags   []string         `json:"tags"`
	Size   *struct{ W int } `json:"size"`
	Raw    json.RawMessage  `json:"raw"`
	Any    any              `json:"any"`
	Blob   []byte           `json:"blob"`
}

func TestDecodeRefuses(t *testing.T) {
	for _, row := range []struct {
		name     string
		document string
		limits   Limits
		want     string // of Error
		kind     Kind
	}{
		{"an empty document", ``, Limits{}, `malformed JSON at byte 0: the document is empty`, Syntax},
		{"white space", " \n", Limits{}, `malformed JSON at byte 2: the document is empty`, Syntax},
		{"white space for an object", " \n", Limits{Object: true}, `malformed JSON at byte 2: the document is empty`, Syntax},
		{"an unfinished document", `{"id":"x"`, Limits{}, `malformed JSON at byte 9: the document ends too early`, Syntax},
		{"a comment", `{"id":/**/"x"}`, Limits{}, `malformed JSON at "/id": not valid JSON`, Syntax},
		{"a comma too many", `{"id":"x",}`, Limits{}, `malformed JSON at byte 9: not valid JSON`, Syntax},
		{"a name without quotes", `{id:"x"}`, Limits{}, `malformed JSON at byte 1: not valid JSON`, Syntax},
		{"a name that is a number", `{1:"x"}`, Limits{}, `malformed JSON at byte 1: a member name is not a string`, Syntax},
		{"a byte order mark", "\ufeff{}", Limits{}, `malformed JSON at byte 0: not valid JSON`, Syntax},
		{"a lone surrogate", `{"id":"\ud800"}`, Limits{}, `malformed JSON at "/id": not valid JSON`, Syntax},
		{"broken UTF-8", "{\"id\":\"\xff\"}", Limits{}, `malformed JSON at "/id": not valid UTF-8`, Syntax},
		{"broken UTF-8 in an unknown member", "{\"more\":\"\xff\"}", Limits{}, `malformed JSON at "/more": not valid UTF-8`, Syntax},
		{"infinity", `{"any":Infinity}`, Limits{}, `malformed JSON at "/any": not valid JSON`, Syntax},

		{"a name twice", `{"id":"x","id":"y"}`, Limits{}, `duplicate member at "/id": the name occurs twice in its object`, Duplicate},
		{"a name twice in another form", `{"id":"x","\u0069d":"y"}`, Limits{}, `duplicate member at "/id": the name occurs twice in its object`, Duplicate},
		{"a name twice deep in an unknown member", `{"more":[0,{"a":{"b":1,"b":1}}]}`, Limits{}, `duplicate member at "/more/1/a/b": the name occurs twice in its object`, Duplicate},
		{"a name twice in raw JSON", `{"raw":{"b":1,"b":1}}`, Limits{}, `duplicate member at "/raw/b": the name occurs twice in its object`, Duplicate},

		{"a second value", `{} {}`, Limits{}, `trailing data at byte 2: more data after the top-level value`, Trailing},
		{"garbage at the end", `{}]`, Limits{}, `trailing data at byte 2: more data after the top-level value`, Trailing},
		{"half a string at the end", `{} "`, Limits{}, `trailing data at byte 2: more data after the top-level value`, Trailing},
		{"a zero byte at the end", "{}\x00", Limits{}, `trailing data at byte 2: more data after the top-level value`, Trailing},

		{"a byte too many", `{"id":"x"}`, Limits{Bytes: 9}, `too large: longer than 9 bytes`, TooLarge},
		{"a level too many", `{"raw":[[[]]]}`, Limits{Depth: 3}, `too deep at "/raw/0/0": nested more than 3 levels`, TooDeep},
		{"endless arrays", strings.Repeat("[", 500_000), Limits{}, `too deep at "` + strings.Repeat("/0", 64) + `": nested more than 64 levels`, TooDeep},

		{"an array for an object", `[]`, Limits{Object: true}, `wrong type of value: want an object, got an array`, Type},
		{"null for an object", `null`, Limits{Object: true}, `wrong type of value: want an object, got null`, Type},
		{"a number for a string", `{"id":5}`, Limits{}, `wrong type of value at "/id": want a string, got a number`, Type},
		{"a string for a number", `{"count":"5"}`, Limits{}, `wrong type of value at "/count": want a number, got a string`, Type},
		{"a string for a boolean", `{"urgent":"true"}`, Limits{}, `wrong type of value at "/urgent": want a boolean, got a string`, Type},
		{"a string for an array", `{"tags":"a"}`, Limits{}, `wrong type of value at "/tags": want an array, got a string`, Type},
		{"a string for an object", `{"size":"a"}`, Limits{}, `wrong type of value at "/size": want an object, got a string`, Type},
		{"a number in an array of strings", `{"tags":["a",7]}`, Limits{}, `wrong type of value at "/tags/1": want a string, got a number`, Type},
		{"a number out of range", `{"count":128}`, Limits{}, `wrong type of value at "/count": the number is out of range`, Type},
		{"a number that no float64 reaches", `{"any":[1e400]}`, Limits{Float64: true}, `wrong type of value at "/any/0": the number is out of range`, Type},
		{"a number too close to zero", `{"any":{"a":1e-400}}`, Limits{Float64: true}, `wrong type of value at "/any/a": the number is too close to zero`, Type},
		{"a long fraction", `{"any":-0.` + strings.Repeat("0", 400) + `1}`, Limits{Float64: true}, `wrong type of value at "/any": the number is too close to zero`, Type},
		{"a great negative exponent", `{"any":1e-2000000}`, Limits{Float64: true}, `wrong type of value at "/any": the number's exponent is out of range`, Type},
		{"an exponent of many digits", `{"any":0E99999999999999999999}`, Limits{Float64: true}, `wrong type of value at "/any": the number's exponent is out of range`, Type},
		{"digits that make up for the exponent", `{"any":0.` + strings.Repeat("0", 2000) + `1e2001}`, Limits{Float64: true}, `wrong type of value at "/any": the number's exponent is out of range`, Type},
		{"a fraction for an integer", `{"count":1.5}`, Limits{}, `wrong type of value at "/count": the value is not valid`, Type},
		{"a string that is not Base64", `{"blob":"s3cret!"}`, Limits{}, `wrong type of value at "/blob": the value is not valid`, Type},
		{"an unknown member", `{"size":{"W":1,"h":2}}`, Limits{KnownMembers: true}, `unknown member at "/size/h": no such member is known here`, Unknown},
		{"a known member in another case", `{"ID":"x"}`, Limits{KnownMembers: true}, `unknown member at "/ID": no such member is known here`, Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := Decode(strings.NewReader(row.document), row.limits, &order{})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if e.Kind != row.kind || e.Error() != row.want {
				t.Errorf("got kind %q\n     %s\nwant %s", e.Kind, e, row.want)
			}
		})
	}
}

func TestDecodeAccepts(t *testing.T) {
	for _, row := range []struct {
		name     string
		document string
		limits   Limits
		want     order
	}{
		{"exactly the limits", `{"tags":["a"]}`, Limits{Bytes: 14, Depth: 2}, order{Tags: []string{"a"}}},
		{"white space around", " {\"id\":\"x\"}\n", Limits{Object: true}, order{ID: "x"}},
		{"unknown members", `{"id":"x","new":{"y":[1]}}`, Limits{}, order{ID: "x"}},
		{"a name in another case as another name", `{"Id":"y","id":"x","ID":"z"}`, Limits{}, order{ID: "x"}},
		{"an escaped name", `{"\u0069d":"x"}`, Limits{}, order{ID: "x"}},
		{"null as absent", `{"id":null,"size":null}`, Limits{}, order{}},
		{"raw JSON byte for byte", `{"raw":{"n": 1.000000000000000000001e400 }}`, Limits{}, order{Raw: json.RawMessage(`{"n": 1.000000000000000000001e400 }`)}},
		{"all digits of a number in an interface", `{"any":{"n":[9007199254740993]}}`, Limits{}, order{Any: map[string]any{"n": []any{json.Number("9007199254740993")}}}},
		{"numbers that a float64 holds", `{"any":[0,-0.0,0e5,5e-324,1.7e308,1E+2]}`, Limits{Float64: true}, order{Any: []any{json.Number("0"), json.Number("-0.0"), json.Number("0e5"), json.Number("5e-324"), json.Number("1.7e308"), json.Number("1E+2")}}},
		{"one name in sibling objects", `{"any":[{"a":"1"},{"a":"2"}]}`, Limits{}, order{Any: []any{map[string]any{"a": "1"}, map[string]any{"a": "2"}}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got order
			if err := Decode(strings.NewReader(row.document), row.limits, &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("got  %+v\nwant %+v", got, row.want)
			}
		})
	}
}

func TestDecodeKnowsBrokerAPITypes(t *testing.T) {
	const document = `{
		"service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "sp",
		"context": {"platform": "kubernetes", "n": 12345678901234567890},
		"parameters": {"cpu": 1.50},
		"maintenance_info": {"version": "1.2.3"},
		"x-later": true
	}`
	want := domain.ProvisionDetails{
		ServiceID: "s", PlanID: "p", OrganizationGUID: "o", SpaceGUID: "sp",
		RawContext:      json.RawMessage(`{"platform": "kubernetes", "n": 12345678901234567890}`),
		RawParameters:   json.RawMessage(`{"cpu": 1.50}`),
		MaintenanceInfo: &domain.MaintenanceInfo{Version: "1.2.3"},
	}
	var got domain.ProvisionDetails
	if err := Decode(strings.NewReader(document), Limits{Object: true}, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	err := Decode(strings.NewReader(`{"bind_resource":{"app_guid":1}}`), Limits{Object: true}, &domain.BindDetails{})
	if e := new(Error); !errors.As(err, &e) || e.Path != "/bind_resource/app_guid" {
		t.Errorf("got %v", err)
	}
}

func TestErrorsShowNoValue(t *testing.T) {
	const secret = "hunter2"
	for _, document := range []string{
		`{"count":"` + secret + `"}`, `{"blob":"` + secret + `"}`, `{"id":"` + secret + `","id":"` + secret + `"}`,
		`{"id":"` + secret, `{"id":` + secret + `}`, `{"id":"x"}` + secret, `{"id":"` + secret + "\xff" + `"}`,
	} {
		err := Decode(strings.NewReader(document), Limits{}, &order{})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", document, err)
		}
	}
}

func TestLongPathsAreCut(t *testing.T) {
	err := Decode(strings.NewReader(`{"`+strings.Repeat("é", 1000)+`":bad}`), Limits{}, &order{})
	if e := new(Error); !errors.As(err, &e) || len(e.Path) > maxPath+len("…") || !strings.HasSuffix(e.Path, "é…") {
		t.Errorf("got %v", err)
	}
}

func TestDecodePassesOnOtherErrors(t *testing.T) {
	broken := errors.New("connection reset")
	if err := Decode(iotest.ErrReader(broken), Limits{}, &order{}); !errors.Is(err, broken) {
		t.Errorf("reader's error: got %v", err)
	}
	for _, into := range []any{nil, order{}, (*order)(nil)} {
		err := Decode(strings.NewReader(`{}`), Limits{}, into)
		if e := new(Error); err == nil || errors.As(err, &e) {
			t.Errorf("into %T: got %v, want an error that is not the sender's", into, err)
		}
	}
}

func TestDecodeReadsNoFurtherThanItsLimit(t *testing.T) {
	r := strings.NewReader(strings.Repeat(" ", 1000))
	if err := Decode(r, Limits{Bytes: 10}, &order{}); err == nil {
		t.Fatal("accepted")
	}
	if rest, _ := io.ReadAll(r); len(rest) != 1000-11 {
		t.Errorf("%d bytes are left", len(rest))
	}
}

// FuzzDecode looks for documents that are accepted though the standard library
// refuses or reads them differently, and for panics.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[1,2]`, `{"a":{"b":[null,true,"x",1e9]}}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `"\ud83d\ude00"`,
		`{} x`, "\"\xff\"", `[[[[[[[[]]]]]]]]`, `-0`, `{"":{"":""}}`, strings.Repeat("[", 100),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var got any
		err := Decode(strings.NewReader(string(document)), Limits{Depth: 8, Bytes: 1 << 16}, &got)
		if err != nil {
			if e := new(Error); !errors.As(err, &e) {
				t.Fatalf("%q: %v is not an *Error", document, err)
			}
			return
		}
		var want any
		decoder := json.NewDecoder(strings.NewReader(string(document)))
		decoder.UseNumber()
		if err := decoder.Decode(&want); err != nil {
			t.Fatalf("%q: accepted, but encoding/json says %v", document, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %#v, encoding/json %#v", document, got, want)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	const document = `{"service_id":"a7c1e7b8-5ff1-4d5f-9a39-6a8c2d1f0b44","plan_id":"0d9f8f9e-3b35-4b5e-8d5d-90c4b3a2f111",
		"organization_guid":"org","space_guid":"space","context":{"platform":"kubernetes","namespace":"dev","clusterid":"c-1"},
		"parameters":{"cpu":"2","memory":"4Gi","storage":"20Gi","regions":["eu-west","eu-north"],"labels":{"team":"a","stage":"prod"}}}`
	b.Run("strict", func(b *testing.B) {
		b.SetBytes(int64(len(document)))
		b.ReportAllocs()
		for b.Loop() {
			var details domain.ProvisionDetails
			if err := Decode(strings.NewReader(document), Limits{Object: true}, &details); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(document)))
		b.ReportAllocs()
		for b.Loop() {
			var details domain.ProvisionDetails
			if err := json.NewDecoder(strings.NewReader(document)).Decode(&details); err != nil {
				b.Fatal(err)
			}
		}
	})
}
