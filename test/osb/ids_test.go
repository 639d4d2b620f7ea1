package osb

import (
	"crypto/rand"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// OSB 2.17, "URL Properties": ids are opaque, and any character may be in them.
var _ = Describe("Ids with any characters", func() {
	alphabet := "abcdefghijklmnopqrstuvwxyz"
	entries := map[string]func() string{
		"one character":       func() string { return alphabet[GinkgoParallelProcess()%len(alphabet):][:1] },
		"a slash":             func() string { return "team/one/" + rand.Text() },
		"a slash at the end":  func() string { return rand.Text() + "/" },
		"an encoded slash":    func() string { return "team%2Fone%2f" + rand.Text() },
		"a percent sign":      func() string { return "100% " + rand.Text() + "%" },
		"blanks":              func() string { return " a  b\t" + rand.Text() + " " },
		"not ASCII":           func() string { return "instância-实例-💾-" + rand.Text() },
		"URL delimiters":      func() string { return "?a=b&c;d#e+f:g@h,i$j!k=" + rand.Text() },
		"quotes and brackets": func() string { return `"'<>{}[]|\^` + "`" + rand.Text() },
		"dots":                func() string { return "a..b..." + rand.Text() + ".json" },
		"upper case":          func() string { return "UPPER-" + strings.ToUpper(rand.Text()) },
		"the name of a route": func() string { return rand.Text() + "/last_operation" },
		"200 characters":      func() string { return strings.Repeat("ab-", 58) + rand.Text() },
	}
	clauses("P2", "an instance and a binding can have any id", entries, func(ctx SpecContext, id func() string) {
		i := newInstanceOf(target.platform, id())
		i.provision(ctx)
		i.put(ctx).mustBe(http.StatusOK)
		b := i.newBindingOf(i.id)
		b.create(ctx)
		b.put(ctx).mustBe(http.StatusOK)
		if target.service.InstancesRetrievable && target.service.BindingsRetrievable {
			i.get(ctx).mustBe(http.StatusOK)
			b.get(ctx).mustBe(http.StatusOK)
		}
		b.unbind(ctx)
		i.remove(ctx)
		i.mustNotExist(ctx)
	})

	clause("P2", "ids that differ in spelling only are different instances", func(ctx SpecContext) {
		unique := rand.Text()
		first := newInstanceOf(target.platform, "a/B "+unique)
		first.provision(ctx)
		for _, id := range []string{"a%2FB " + unique, "A/B " + unique, "a/B+" + unique, "a/B%20" + unique, "a/B  " + unique, " a/B " + unique} {
			other := newInstanceOf(target.platform, id)
			other.lastOperation(ctx, "").mustRefuse("", http.StatusNotFound)
			other.delete(ctx).mustBe(http.StatusGone)
		}
		first.put(ctx).mustBe(http.StatusOK)
	})

	clause("B6", "the ids of an instance and a binding are not mixed up", func(ctx SpecContext) {
		unique := rand.Text()
		one := newInstanceOf(target.platform, unique+"-a")
		one.provision(ctx)
		other := newInstanceOf(target.platform, unique)
		other.provision(ctx)
		bound := one.newBindingOf("b")
		bound.create(ctx)
		other.newBindingOf("a-b").mustNotExist(ctx)
		other.newBindingOf("-ab").mustNotExist(ctx)
		Expect(bound.put(ctx).status).To(Equal(http.StatusOK))
	})
})
