package osb

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// malformation makes a malformed document of a valid body.
type malformation struct {
	make func(valid object) []byte
	// beyond says why a broker MAY accept the document; empty where it may not.
	beyond string
}

func replaced(field string, value any) malformation {
	return malformation{make: func(valid object) []byte {
		valid[field] = value
		return encode(valid)
	}}
}

func document(text string) malformation {
	return malformation{make: func(object) []byte { return []byte(text) }}
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// again repeats the member service_id under a name that means the same.
func again(name string) malformation {
	return malformation{
		make: func(valid object) []byte {
			return append([]byte(`{"`+name+`":"another-service",`), encode(valid)[1:]...)
		},
		beyond: "RFC 8259 leaves open which of two members counts",
	}
}

func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
}

var malformations = map[string]malformation{
	"empty":                    document(""),
	"white space":              document(" \n"),
	"not JSON":                 document("service_id=1&plan_id=2"),
	"an open object":           {make: func(valid object) []byte { return bytes.TrimSuffix(encode(valid), []byte("}")) }},
	"null":                     document("null"),
	"an array":                 {make: func(valid object) []byte { return encode([]any{valid}) }},
	"a string":                 document(`"service_id"`),
	"trailing garbage":         {make: func(valid object) []byte { return append(encode(valid), "garbage"...) }},
	"a second object after it": {make: func(valid object) []byte { return append(encode(valid), " {}"...) }},
	"a comment":                {make: func(valid object) []byte { return append([]byte("/* a */"), encode(valid)...) }},
	"a trailing comma":         {make: func(valid object) []byte { return append(bytes.TrimSuffix(encode(valid), []byte("}")), ",}"...) }},
	"a member twice":           again("service_id"),
	"a member twice, escaped":  again(`servic\u0065_id`),
	"ids in another case": {make: func(valid object) []byte {
		return bytes.Replace(encode(valid), []byte(`"service_id"`), []byte(`"Service_ID"`), 1)
	}},
	"invalid UTF-8": {make: func(valid object) []byte {
		return bytes.Replace(encode(valid), []byte(`"service_id":"`), []byte("\"extra\":\"\xff\",\"service_id\":\""), 1)
	}},
	"service_id a number":        replaced("service_id", 1),
	"service_id an object":       replaced("service_id", object{}),
	"service_id null":            replaced("service_id", nil),
	"plan_id a list":             replaced("plan_id", []any{"plan"}),
	"parameters an array":        replaced("parameters", []any{1}),
	"parameters a string":        replaced("parameters", "{}"),
	"parameters a number":        replaced("parameters", 1),
	"context a string":           replaced("context", "cloudfoundry"),
	"context an array":           replaced("context", []any{}),
	"maintenance_info a string":  replaced("maintenance_info", "1.0.0"),
	"organization_guid a number": replaced("organization_guid", 1),
	"a number of no end": {
		make: func(valid object) []byte {
			return append([]byte(`{"context":{"a":1e400},`), encode(valid)[1:]...)
		},
		beyond: "RFC 8259 sets no bounds for numbers; what a broker cannot store it must not answer with 500",
	},
	"nested 20,000 levels": {
		make: func(valid object) []byte {
			return append([]byte(`{"parameters":`+nested(20_000)+`,`), encode(valid)[1:]...)
		},
		beyond: "the spec sets no limit",
	},
	"2 MiB long": {
		make:   func(valid object) []byte { valid["extra"] = strings.Repeat("x", 2<<20); return encode(valid) },
		beyond: "the spec sets no limit, and unknown fields are ignored",
	},
}

// ofProvision are the malformations about what only a provision has.
var ofProvision = map[string]bool{"organization_guid a number": true}

// notOfBind are the malformations about what a bind does not have.
var notOfBind = map[string]bool{"organization_guid a number": true, "maintenance_info a string": true}

var _ = Describe("Malformed bodies", func() {
	mustBeMalformed := func(answer response) {
		GinkgoHelper()
		answer.mustRefuse("", http.StatusBadRequest, http.StatusRequestEntityTooLarge)
	}

	clauses("H4", "a provision that is malformed is refused and changes nothing", malformations, func(ctx SpecContext, m malformation) {
		if m.beyond != "" {
			beyondTheSpec(m.beyond)
		}
		i := newInstance()
		mustBeMalformed(i.send(ctx, http.MethodPut, m.make(i.body())))
		i.mustNotExist(ctx)
	})

	clause("H7", "an update that is malformed is refused and changes nothing", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		before := i.get(ctx).object()
		for _, name := range sortedKeys(malformations) {
			if m := malformations[name]; !ofProvision[name] && (m.beyond == "" || target.strict) {
				By(name)
				valid := object{"service_id": i.serviceID, "plan_id": target.otherPlan.ID}
				mustBeMalformed(i.send(ctx, http.MethodPatch, m.make(valid)))
			}
		}
		Expect(i.get(ctx).object()).To(Equal(before))
		Expect(i.lastOperation(ctx, "").object()).To(HaveKeyWithValue("state", succeeded))
	})

	clause("H7", "a bind that is malformed is refused and changes nothing", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		for _, name := range sortedKeys(malformations) {
			if m := malformations[name]; !notOfBind[name] && (m.beyond == "" || target.strict) {
				By(name)
				b := i.newBinding()
				mustBeMalformed(b.do(ctx, request{method: http.MethodPut, path: b.path(), body: m.make(b.body())}))
				b.mustNotExist(ctx)
			}
		}
	})

	clause("H4", "fields that the broker does not know are ignored", func(ctx SpecContext) {
		i := newInstance()
		extended := with("x-example-com-extension", object{"nested": []any{1, "two", nil}})
		i.provision(ctx, extended)
		i.put(ctx, extended, with("x-another", true)).mustBe(http.StatusOK)
		b := i.newBinding()
		b.create(ctx, extended)
		b.put(ctx).mustBe(http.StatusOK)
	})
})
