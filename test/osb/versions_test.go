package osb

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// versions of the API that platforms in the field speak.
var versions = []string{"2.13", "2.14", "2.15", "2.16", "2.17"}

// fieldsSince lists the response fields that came after 2.13, from the release notes
// of the specification: older clients exist that refuse what they do not know.
var fieldsSince = map[string]string{
	"services[].instances_retrievable":            "2.14",
	"services[].bindings_retrievable":             "2.14",
	"services[].allow_context_updates":            "2.15",
	"services[].plans[].plan_updateable":          "2.15",
	"services[].plans[].maximum_polling_duration": "2.15",
	"services[].plans[].maintenance_info":         "2.15",
	"services[].plans[].binding_rotatable":        "2.17",
}

var (
	provisionFieldsSince = map[string]string{"metadata": "2.16", "metadata.attributes": "2.17"}
	fetchFieldsSince     = map[string]string{"metadata": "2.17", "maintenance_info": "2.17"}
	bindFieldsSince      = map[string]string{
		"endpoints": "2.15", "metadata": "2.16", "metadata.renew_before": "2.17",
	}
	failedFieldsSince = map[string]string{"instance_usable": "2.16", "update_repeatable": "2.16"}
)

// withoutNewer returns what a client of the version may see of a body of version 2.17.
func withoutNewer(body object, since map[string]string, version string) object {
	document, err := json.Marshal(body)
	Expect(err).NotTo(HaveOccurred())
	var older object
	Expect(json.Unmarshal(document, &older)).To(Succeed())
	for path, introduced := range since {
		if minor(introduced) > minor(version) {
			remove(older, strings.Split(path, "."))
		}
	}
	return older
}

func minor(version string) int {
	number, err := strconv.Atoi(strings.TrimPrefix(version, "2."))
	Expect(err).NotTo(HaveOccurred())
	return number
}

// remove deletes the field at the path; a segment that ends in [] means every element.
func remove(from object, path []string) {
	name, isList := strings.CutSuffix(path[0], "[]")
	switch value := from[name].(type) {
	case object:
		if len(path) > 1 {
			remove(value, path[1:])
			return
		}
	case []any:
		if isList {
			for _, element := range value {
				if element, ok := element.(object); ok {
					remove(element, path[1:])
				}
			}
			return
		}
	}
	if len(path) == 1 {
		delete(from, name)
	}
}

// newerFields are the fields of a body that the version does not know.
func newerFields(body object, since map[string]string, version string) []string {
	var found []string
	for path := range since {
		if only := map[string]string{path: since[path]}; !reflect.DeepEqual(withoutNewer(body, only, version), body) {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return found
}

var _ = Describe("API version header", func() {
	for _, version := range versions {
		clause("H1", "a client of version "+version+" is served", func(ctx SpecContext) {
			target.platform.at(version).catalog(ctx).mustBe(http.StatusOK)
		})

		clause("H1", "the catalog of version "+version+" is that of "+newest+" without what came later", func(ctx SpecContext) {
			beyondTheSpec("clients SHOULD ignore fields they do not know, and some do not")
			full := target.platform.catalog(ctx).object()
			Expect(newerFields(full, fieldsSince, "2.16")).NotTo(BeEmpty(), "the catalog has no field that came with 2.17")
			Expect(target.platform.at(version).catalog(ctx).object()).To(Equal(withoutNewer(full, fieldsSince, version)))
		})

		clause("H1", "a lifecycle in version "+version+" shows no field that came later", func(ctx SpecContext) {
			beyondTheSpec("clients SHOULD ignore fields they do not know, and some do not")
			i := newInstance()
			i.platform.version = version
			answer := i.provision(ctx)
			Expect(newerFields(answer.object(), provisionFieldsSince, version)).To(BeEmpty(), answer.String)
			repeated := i.put(ctx)
			repeated.mustBe(http.StatusOK)
			Expect(newerFields(repeated.object(), provisionFieldsSince, version)).To(BeEmpty(), repeated.String)
			b, bound := i.bind(ctx)
			Expect(newerFields(bound.object(), bindFieldsSince, version)).To(BeEmpty(), bound.String)
			if minor(version) >= 14 {
				fetched := i.get(ctx)
				fetched.mustBe(http.StatusOK)
				Expect(newerFields(fetched.object(), fetchFieldsSince, version)).To(BeEmpty(), fetched.String)
				fetchedBinding := b.get(ctx)
				fetchedBinding.mustBe(http.StatusOK)
				Expect(newerFields(fetchedBinding.object(), bindFieldsSince, version)).To(BeEmpty(), fetchedBinding.String)
			}
		})
	}

	clause("H1", "a client of a later 2.x, which only adds to "+newest+", is served as "+newest, func(ctx SpecContext) {
		beyondTheSpec("a broker MAY refuse a version it does not support")
		for _, later := range []string{"2.18", "2.99"} {
			answer := target.platform.at(later).catalog(ctx)
			answer.mustBe(http.StatusOK)
			Expect(answer.object()).To(Equal(target.platform.catalog(ctx).object()))
		}
	})

	for _, version := range []string{"1.0", "2.12", "3.0"} {
		clause("H1", "version "+version+" is refused", func(ctx SpecContext) {
			beyondTheSpec("a broker MAY refuse a version it does not support")
			target.platform.at(version).catalog(ctx).mustRefuse("", http.StatusPreconditionFailed)
		})
	}

	for _, version := range []string{"2", "two", "2.seventeen", "v2.17"} {
		clause("H1", "the malformed version "+strconv.Quote(version)+" is refused", func(ctx SpecContext) {
			beyondTheSpec("a broker MAY ignore the header")
			target.platform.at(version).catalog(ctx).mustRefuse("", http.StatusBadRequest, http.StatusPreconditionFailed)
		})
	}

	clause("H1", "a request without the header is refused on every route", func(ctx SpecContext) {
		beyondTheSpec("a broker MAY refuse it with 400; checkers in the field want 412")
		for name, r := range everyRoute() {
			By(name)
			target.platform.at("").do(ctx, r).mustRefuse("", http.StatusPreconditionFailed)
		}
	})

	clause("H1", "a PUT without the header changes nothing", func(ctx SpecContext) {
		beyondTheSpec("a broker MAY ignore a missing header")
		i := newInstance()
		target.platform.at("").do(ctx, request{method: http.MethodPut, path: i.path(), query: async(), body: i.body()}).mustRefuseAsUser()
		i.mustNotExist(ctx)
	})
})

// everyRoute has a valid request for each route, about an instance that is not there.
func everyRoute() map[string]request {
	i := newInstance()
	b := i.newBinding()
	return map[string]request{
		"catalog":                 {method: http.MethodGet, path: []string{"catalog"}},
		"provision":               {method: http.MethodPut, path: i.path(), query: async(), body: i.body()},
		"fetch instance":          {method: http.MethodGet, path: i.path()},
		"update":                  {method: http.MethodPatch, path: i.path(), query: async(), body: object{"service_id": i.serviceID}},
		"deprovision":             {method: http.MethodDelete, path: i.path(), query: i.deletion()},
		"instance last operation": {method: http.MethodGet, path: i.path("last_operation"), query: i.poll("")},
		"bind":                    {method: http.MethodPut, path: b.path(), body: b.body()},
		"fetch binding":           {method: http.MethodGet, path: b.path()},
		"unbind":                  {method: http.MethodDelete, path: b.path(), query: b.deletion()},
		"binding last operation":  {method: http.MethodGet, path: b.path("last_operation"), query: i.poll("")},
	}
}
