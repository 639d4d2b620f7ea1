package workload

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
	"github.com/sluice-dev/sluice/internal/seal"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// order reads the order of a test file. Its secrets are known.
func order(t testing.TB, file string) *Order {
	t.Helper()
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var of struct {
		Plan       *v1alpha1.WorkloadPlan
		Parameters json.RawMessage
		Share      *Share
		Ports      map[string]int32
	}
	if err := yaml.UnmarshalStrict(document, &of); err != nil {
		t.Fatal(err)
	}
	for _, chart := range of.Plan.Charts() {
		chart.Digest = webDigest(t)
	}
	instance := &v1alpha1.ServiceInstance{Spec: v1alpha1.ServiceInstanceSpec{Platform: "cf", InstanceID: "i-1"}}
	instance.Name = "si-1"
	secrets := Secrets{fingerprintKey: seal.Redact([]byte("k"))}
	for _, s := range of.Plan.Secrets {
		secrets[s.Name] = seal.Redact([]byte("the-" + s.Name))
	}
	o, err := Of(of.Plan, instance, &v1alpha1.InstanceState{PlanID: "p", Parameters: &runtime.RawExtension{Raw: of.Parameters}}, nil, secrets)
	if err != nil {
		t.Fatal(err)
	}
	o.Share, o.Ports = of.Share, of.Ports
	return o
}

// webDigest is the digest of the chart that tests have.
func webDigest(t testing.TB) string {
	t.Helper()
	return charts.Digest(chartstest.Pack(t, chartstest.Web(t, nil)))
}

func TestRender(t *testing.T) {
	files, _ := filepath.Glob("testdata/render/*.yaml")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	known := chartstest.Of(t, chartstest.Pack(t, chartstest.Web(t, nil)))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cluster := Cluster{Name: "eu-1", Provider: "acme", Region: "eu", Tier: "cloud", Exposure: exposure, Kubernetes: "v1.34.4"}
			objects, err := order(t, file).Render(known, cluster, "sluice-si-1")
			if err != nil {
				t.Fatal(err)
			}
			taken, err := Taken(objects)
			if err != nil {
				t.Fatal(err)
			}
			got := yamlOf(t, map[string]any{"taken": taken})
			for _, o := range objects {
				got += "---\n" + yamlOf(t, o.Object)
			}
			matchesGolden(t, strings.TrimSuffix(file, ".yaml")+".golden", got)
		})
	}
}

// matchesGolden compares a text with a file; -update rewrites the file.
func matchesGolden(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got, -update rewrites:\n%s", diff)
	}
}

func yamlOf(t testing.TB, value any) string {
	t.Helper()
	document, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

func TestCredentials(t *testing.T) {
	o := order(t, "testdata/render/database.yaml")
	o.Plan = o.Plan.DeepCopy()
	o.Plan.Credentials = &runtime.RawExtension{Raw: []byte(`{"uri": "postgres://app:${secrets.password}@${components.db.host}:${components.db.ports.postgres}/app", "port": "${components.db.ports.postgres}", "limits": {"connections": "${parameters.connections}"}}`)}
	at, err := o.Addresses(func(service string) string { return service + ".example" }, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	got, err := o.Credentials(at, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"limits":{"connections":20},"port":5432,"uri":"postgres://app:the-password@db.example:5432/app"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestErrorsContainNoSecret(t *testing.T) {
	o := order(t, "testdata/render/database.yaml")
	o.Plan = o.Plan.DeepCopy()
	o.Plan.Credentials = &runtime.RawExtension{Raw: []byte(`{"port": "${components[secrets.password]}"}`)}
	_, err := o.Credentials(nil, nil)
	if err == nil || strings.Contains(err.Error(), "the-password") || !strings.Contains(err.Error(), "***") {
		t.Errorf("got %v, want an error in which the password is replaced", err)
	}
}

func TestSecretsAreGeneratedOnce(t *testing.T) {
	plan := planOf(t, "components: []\nsecrets: [{name: a}, {name: b, length: 64}]")
	first, changed := Secrets(nil).Complete(plan.Secrets)
	if a, b := first["a"].Reveal(), first["b"].Reveal(); !changed || len(a) != usualLength || len(b) != 64 {
		t.Fatalf("got %d and %d characters, changed %v", len(a), len(b), changed)
	}
	plan.Secrets = append(plan.Secrets[1:], v1alpha1.WorkloadSecret{Name: "c", Length: 20})
	second, changed := first.Complete(plan.Secrets)
	if !changed || !second["a"].Equal(first["a"]) || !second["b"].Equal(first["b"]) || len(second["c"].Reveal()) != 20 {
		t.Error("an upgrade changes or drops a secret, or does not add its own")
	}
	if _, changed := second.Complete(plan.Secrets); changed {
		t.Error("changed once more")
	}
}

func TestSecretsAreSealedForTheirOwner(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := Secrets{"password": seal.Redact([]byte("secret"))}
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x", UID: "1"}}
	if i.Status.SealedSecrets, err = secrets.SealInstance(i, keys); err != nil {
		t.Fatal(err)
	}
	if got, err := UnsealInstance(i, keys); err != nil || !got["password"].Equal(secrets["password"]) || len(got) != 1 {
		t.Errorf("unsealed %d secrets: %v", len(got), err)
	}
	again := i.DeepCopy()
	again.UID = "2"
	if _, err := UnsealInstance(again, keys); err == nil {
		t.Error("an instance of the same name unseals them")
	}
	b := &v1alpha1.ServiceBinding{ObjectMeta: i.ObjectMeta}
	b.Status.SealedSecrets = i.Status.SealedSecrets
	if _, err := UnsealBinding(b, keys); err == nil {
		t.Error("a binding unseals them")
	}
}

func TestPodsAreReplacedWhenTheirContentChanges(t *testing.T) {
	annotation := func(o *Order) string {
		objects, err := o.Render(nil, Cluster{}, "n")
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			if object.GetKind() == "StatefulSet" {
				text, _, _ := unstructured.NestedString(object.Object, "spec", "template", "metadata", "annotations", annotationContent)
				return text
			}
		}
		return ""
	}
	o := order(t, "testdata/render/database.yaml")
	before := annotation(o)
	o.Parameters["connections"] = int64(21)
	if after := annotation(o); before == "" || after == before {
		t.Errorf("%q after a change of a file, %q before", after, before)
	}
}

func BenchmarkRender(b *testing.B) {
	o := order(b, "testdata/render/application.yaml")
	web := o.Plan.Components[0]
	for _, n := range []int{1, 5, 20} {
		plan := &v1alpha1.WorkloadPlan{}
		for i := range n {
			c := *web.DeepCopy()
			c.Name = "c" + string(rune('a'+i))
			plan.Components = append(plan.Components, c)
		}
		api := *o.Plan.Components[1].DeepCopy()
		plan.Components = append(plan.Components[:n-1], api)
		many := *o
		many.Plan = plan
		b.Run(string(rune('0'+n/10))+string(rune('0'+n%10))+"-components", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := many.Render(nil, Cluster{Tier: "cloud"}, "n"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestText(t *testing.T) {
	e := order(t, "testdata/render/database.yaml").expressions(nil)
	for in, want := range map[string]string{
		"":                                    "",
		"plain $HOME $ {x}":                   "plain $HOME $ {x}",
		"$${HOME}":                            "${HOME}",
		"a$${b}${1 + 1}c":                     "a${b}2c",
		"${'}'}${\"{\"}":                      "}{",
		"${{'a': {'b': 3}}.a.b}":              "3",
		"${'it\\'s'}":                         "it's",
		"${1.5}|${true}|${parameters.memory}": "1.5|true|512Mi",
		"${base64.encode(b'x')}":              "eA==",
	} {
		if got, err := e.text(in); err != nil || got != want {
			t.Errorf("%q: %q (%v), want %q", in, got, err, want)
		}
	}
}

// FuzzText: a string without expressions stays as it is, and no string panics.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"plain", "${", "$${", "${'}", "${parameters.memory}", "${{}"} {
		f.Add(seed)
	}
	e := order(f, "testdata/render/database.yaml").expressions(nil)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := e.text(s)
		if !strings.Contains(s, "${") && (err != nil || got != s) {
			t.Errorf("%q became %q: %v", s, got, err)
		}
	})
}
