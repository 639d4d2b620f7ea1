package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/internal/osbclient"
)

// TestWriteOnlyIsRecorded: which parameters a broker calls writeOnly is known also of schemas that are left out: those
// that cannot be checked, are too long, or have no room beside those of other plans.
func TestWriteOnlyIsRecorded(t *testing.T) {
	const least = `{"properties":{"key":{"writeOnly":true},"login":{"properties":{"password":{"writeOnly":true}}}},"type":"object"}`
	schema := func(more string) osbclient.Parameters {
		return osbclient.Parameters{Schema: json.RawMessage(`{"type": "object", ` + more + ` "properties": {"size": {"type": "integer"},
			"key": {"type": "string", "writeOnly": true}, "login": {"type": "object", "properties": {"password": {"type": "string", "writeOnly": true}}}}}`)}
	}
	long := func(length int) string { return `"description": "` + strings.Repeat("x", length) + `",` }
	forks := strings.Builder{}
	for i := range 40 {
		fmt.Fprintf(&forks, `"a%d": {"allOf": [{"$ref": "#/a%d"}, {"$ref": "#/a%d"}]}, `, i, i+1, i+1)
	}
	forks.WriteString(`"a40": {}, "allOf": [{"$ref": "#/a0"}],`)
	plan := func(name string, create osbclient.Parameters) osbclient.Plan {
		p := osbclient.Plan{Name: name}
		p.Schemas.Instance.Create, p.Schemas.Binding.Create = create, create
		return p
	}
	for name, row := range map[string]struct {
		create osbclient.Parameters
		plans  int
		want   map[string]bool // by plan: whether the schema is there as a whole
	}{
		"as it is":                         {schema(""), 1, map[string]bool{"db/0": true}},
		"too long":                         {schema(long(65_000)), 1, map[string]bool{"db/0": false}},
		"refers to another document":       {schema(`"allOf": [{"$ref": "https://example.org/schema"}],`), 1, map[string]bool{"db/0": false}},
		"checked for ever":                 {schema(forks.String()), 1, map[string]bool{"db/0": false}},
		"of no draft":                      {schema(`"$schema": "https://example.org/schema",`), 1, map[string]bool{"db/0": false}},
		"the last ones of too many, great": {schema(long(30_000)), 6, map[string]bool{"db/0": true, "db/3": true, "db/4": false, "db/5": false}},
	} {
		t.Run(name, func(t *testing.T) {
			ordered, of := map[string]bool{}, osbclient.Service{Name: "db"}
			for i := range row.plans {
				ordered[fmt.Sprint("db/", i)] = true
				of.Plans = append(of.Plans, plan(fmt.Sprint(i), row.create))
			}
			all := schemasOf(&osbclient.Catalog{Services: []osbclient.Service{of}}, ordered, nil)
			if len(all) != row.plans {
				t.Fatalf("there are %d schemas, want %d", len(all), row.plans)
			}
			for _, one := range all {
				whole, asked := row.want[one.Plan]
				for _, schema := range []*runtime.RawExtension{one.InstanceCreate, one.BindingCreate} {
					if raw := string(schema.Raw); asked && (whole && raw != string(row.create.Schema) || !whole && raw != least) {
						t.Errorf("the schema of %s is %.200s", one.Plan, raw)
					}
				}
			}
		})
	}
	t.Run("before schemas that hide nothing", func(t *testing.T) {
		ordered, of := map[string]bool{}, osbclient.Service{Name: "db"}
		for i := range maxSchemas + 1 {
			create := osbclient.Parameters{Schema: json.RawMessage(`{"type": "object"}`)}
			if i == maxSchemas {
				create = schema("")
			}
			ordered[fmt.Sprint("db/", i)] = true
			of.Plans = append(of.Plans, plan(fmt.Sprint(i), create))
		}
		all := schemasOf(&osbclient.Catalog{Services: []osbclient.Service{of}}, ordered, nil)
		there := false
		for _, one := range all {
			there = there || one.Plan == fmt.Sprint("db/", maxSchemas)
		}
		if len(all) != maxSchemas || !there {
			t.Errorf("there are %d schemas; the one that hides parameters is there: %v", len(all), there)
		}
	})
	t.Run("none", func(t *testing.T) {
		of := osbclient.Service{Name: "db", Plans: []osbclient.Plan{plan("0", osbclient.Parameters{}), plan("1", osbclient.Parameters{})}}
		all := schemasOf(&osbclient.Catalog{Services: []osbclient.Service{of}}, map[string]bool{"db/1": true}, nil)
		if len(all) != 1 || all[0].Plan != "db/1" || bytesOf(&all[0].PlanSchemas) != 0 {
			t.Errorf("a plan without schemas cannot be told from one that was not read: %+v", all)
		}
	})
}
