package osb

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// semver is the regular expression that semver.org suggests, without its groups.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// maxSchemaSize in bytes, OSB 2.17 "Input Parameters Schema Object".
const maxSchemaSize = 64_000

var _ = Describe("Catalog", func() {
	services := func(ctx SpecContext) []offering {
		GinkgoHelper()
		answer := target.platform.catalog(ctx)
		answer.mustBe(http.StatusOK)
		var c catalog
		answer.decode(&c)
		Expect(c.Services).NotTo(BeEmpty())
		return c.Services
	}
	// fields calls check for every offering and every plan as plain JSON.
	fields := func(ctx SpecContext, check func(kind string, fields object)) {
		GinkgoHelper()
		for _, service := range target.platform.catalog(ctx).object()["services"].([]any) {
			check("offering", service.(object))
			for _, plan := range service.(object)["plans"].([]any) {
				check("plan", plan.(object))
			}
		}
	}
	unique := func(seen map[string]bool, id string) {
		GinkgoHelper()
		Expect(id).NotTo(BeEmpty())
		Expect(seen).NotTo(HaveKey(id))
		seen[id] = true
	}

	clause("C1", "every offering and plan has an id, a name and a description, and no two the same id", func(ctx SpecContext) {
		ids, serviceNames := map[string]bool{}, map[string]bool{}
		for _, service := range services(ctx) {
			unique(ids, service.ID)
			unique(serviceNames, service.Name)
			Expect(service.Description).NotTo(BeEmpty())
			Expect(service.Plans).NotTo(BeEmpty(), "offering %s has no plan", service.Name)
			planNames := map[string]bool{}
			for _, plan := range service.Plans {
				unique(ids, plan.ID)
				unique(planNames, plan.Name)
				Expect(plan.Description).NotTo(BeEmpty())
			}
		}
	})

	clause("C1", "an offering requires nothing but syslog_drain, route_forwarding and volume_mount", func(ctx SpecContext) {
		for _, service := range services(ctx) {
			Expect([]string{"syslog_drain", "route_forwarding", "volume_mount"}).To(ContainElements(service.Requires))
		}
	})

	clause("C1", "every offering says whether it is bindable", func(ctx SpecContext) {
		fields(ctx, func(kind string, fields object) {
			if kind == "offering" {
				Expect(fields).To(HaveKeyWithValue("bindable", BeAssignableToTypeOf(true)))
			}
		})
	})

	clause("C1", "the catalog is the same each time", func(ctx SpecContext) {
		first := target.platform.catalog(ctx)
		for range 5 {
			Expect(string(target.platform.catalog(ctx).body)).To(Equal(string(first.body)))
		}
	})

	clause("C1", "fields are of their type, and absent rather than null", func(ctx SpecContext) {
		types := map[string]any{
			"bindable": true, "plan_updateable": true, "binding_rotatable": true, "free": true, "instances_retrievable": true,
			"bindings_retrievable": true, "allow_context_updates": true, "metadata": object{}, "schemas": object{},
			"maintenance_info": object{}, "dashboard_client": object{}, "tags": []any{}, "requires": []any{}, "maximum_polling_duration": 1.0,
		}
		fields(ctx, func(kind string, fields object) {
			for name, value := range fields {
				if example, known := types[name]; known {
					Expect(value).To(BeAssignableToTypeOf(example), "%s of %s %s", name, kind, fields["name"])
				}
			}
		})
	})

	describeEntityTags()

	clause("C3", "a schema names its dialect, refers to nothing outside and is no longer than 64 kB", func(ctx SpecContext) {
		fields(ctx, func(kind string, fields object) {
			schemas, _ := fields["schemas"].(object)
			for _, path := range [][]string{{"service_instance", "create"}, {"service_instance", "update"}, {"service_binding", "create"}} {
				parent, there := schemas[path[0]]
				if !there {
					continue
				}
				action, there := parent.(object)[path[1]]
				if !there {
					continue
				}
				parameters, there := action.(object)["parameters"]
				if !there {
					continue
				}
				name := fmt.Sprintf("schema %s of %s %s", strings.Join(path, "."), kind, fields["name"])
				Expect(parameters).To(BeAssignableToTypeOf(object{}), name)
				Expect(parameters).To(HaveKeyWithValue("$schema", HavePrefix("http")), name)
				Expect(len(encode(parameters))).To(BeNumerically("<=", maxSchemaSize), name)
				for _, reference := range references(parameters) {
					Expect(reference).To(HavePrefix("#"), name)
				}
			}
		})
	})

	clause("C4", "a plan may say whether its bindings can be rotated, and then it says true or false", func(ctx SpecContext) {
		var rotatable int
		fields(ctx, func(kind string, fields object) {
			if value, there := fields["binding_rotatable"]; there {
				Expect(kind).To(Equal("plan"))
				Expect(value).To(BeAssignableToTypeOf(true))
				rotatable++
			}
		})
		need(rotatable > 0, "a plan with binding_rotatable")
	})

	clause("C5", "maximum_polling_duration is a positive number of whole seconds", func(ctx SpecContext) {
		for _, service := range services(ctx) {
			for _, plan := range service.Plans {
				if plan.MaximumPollingDuration != nil {
					seconds, err := plan.MaximumPollingDuration.Int64()
					Expect(err).NotTo(HaveOccurred())
					Expect(seconds).To(BeNumerically(">", 0))
				}
			}
		}
	})

	clause("C5", "maintenance_info has a semantic version", func(ctx SpecContext) {
		for _, service := range services(ctx) {
			for _, plan := range service.Plans {
				if plan.MaintenanceInfo != nil {
					Expect(plan.MaintenanceInfo.Version).To(MatchRegexp(semver.String()))
				}
			}
		}
	})

	clause("C5", "what is said to be retrievable is", func(ctx SpecContext) {
		need(target.service.InstancesRetrievable && target.service.BindingsRetrievable, "instances_retrievable and bindings_retrievable")
		i := provisionedInstance(ctx)
		b, _ := i.bind(ctx)
		i.get(ctx).mustBe(http.StatusOK)
		b.get(ctx).mustBe(http.StatusOK)
	})
})

// describeEntityTags: the catalog may be fetched conditionally (OSB 2.17, "Catalog
// Management"; RFC 7232).
func describeEntityTags() {
	conditional := func(ctx SpecContext, p platform, tag string) response {
		return p.do(ctx, request{
			method: http.MethodGet, path: []string{"catalog"}, header: http.Header{"If-None-Match": {tag}},
		})
	}
	tag := func(ctx SpecContext) string {
		GinkgoHelper()
		beyondTheSpec("a broker MAY give an ETag")
		tag := target.platform.catalog(ctx).header.Get("ETag")
		Expect(tag).To(MatchRegexp(`^(W/)?"[^"]*"$`))
		return tag
	}

	clause("C2", "the catalog's ETag, sent back alone, in a list, weak or as *, is answered 304 without a body", func(ctx SpecContext) {
		tag := tag(ctx)
		for _, sent := range []string{tag, `"another", ` + tag, "W/" + strings.TrimPrefix(tag, "W/"), "*"} {
			answer := conditional(ctx, target.platform, sent)
			Expect(answer.status).To(Equal(http.StatusNotModified), "If-None-Match: %s", sent)
			Expect(answer.body).To(BeEmpty())
			Expect(answer.header.Get("ETag")).To(Equal(tag))
		}
	})

	clause("C2", "another ETag is answered with the catalog", func(ctx SpecContext) {
		tag(ctx)
		conditional(ctx, target.platform, `"another"`).mustBe(http.StatusOK)
	})

	clause("C2", "catalogs that differ between versions differ in their ETag", func(ctx SpecContext) {
		tag(ctx)
		bodies := map[string]string{}
		for _, version := range versions {
			answer := target.platform.at(version).catalog(ctx)
			tag := answer.header.Get("ETag")
			if body, seen := bodies[tag]; seen {
				Expect(string(answer.body)).To(Equal(body), "ETag %s of version %s", tag, version)
			}
			bodies[tag] = string(answer.body)
		}
	})

	clause("C2", "a request that cannot be authenticated gets no 304", func(ctx SpecContext) {
		tag := tag(ctx)
		stranger := platform{username: "nobody", password: "nothing", version: newest}
		conditional(ctx, stranger, tag).mustRefuse("", http.StatusUnauthorized)
	})
}

// references are the values of all $ref in a schema.
func references(schema any) []string {
	var found []string
	switch value := schema.(type) {
	case object:
		for name, child := range value {
			if reference, isText := child.(string); name == "$ref" && isText {
				found = append(found, reference)
			}
			found = append(found, references(child)...)
		}
	case []any:
		for _, child := range value {
			found = append(found, references(child)...)
		}
	}
	return found
}
