package claims

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

func raw(document string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(document)} }

// TestClaims: a claim becomes an instance, and a binding claim a Secret, which is renewed before its credentials end; what
// it had before goes on for the overlap. Changes reach the broker, and everything goes with the claims.
func TestClaims(t *testing.T) {
	for name, broker := range map[string]*suitetest.Broker{"binds at once": {}, "binds later": {AsyncBind: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, broker)
			b.claim(claimsv1.ServiceClaimSpec{Plan: "small", Parameters: raw(`{"size": 3}`)}, &claimsv1.BindingClaimSpec{})
			b.serviceIs("Ready", "")
			b.bindingIs("Ready", "Secret db has the credentials; they end at ")
			first, claim := b.secret(), b.binding()
			if first.Type != "servicebinding.io/name-of-service" || string(first.Data["user"]) != "user-1" || string(first.Data["provider"]) != "default" ||
				string(first.Data["type"]) != "name-of-service" || !strings.Contains(string(first.Data["endpoints"]), `"host":"service.example.com"`) {
				t.Errorf("the Secret is %+v", first)
			}
			if claim.Status.Binding == nil || claim.Status.Binding.Name != "db" || claim.Status.ExpiresAt == nil || !metav1.IsControlledBy(first, claim) {
				t.Errorf("the binding claim is %+v", claim.Status)
			}
			if service := b.service(); service.Status.DashboardURL != "https://dashboard.example.com/instance" || service.Status.InstanceID != string(service.UID) || service.Status.Instance.MaintenanceVersion != "1.2.0" {
				t.Errorf("the service claim is %+v", service.Status)
			}

			changes(b, b.service(), func(claim *claimsv1.ServiceClaim) {
				claim.Spec.Plan, claim.Spec.Parameters = "large", raw(`{"size": 4}`)
			})
			b.serviceIs("Ready", "")
			if has := b.service().Status.Instance; has.Plan != "large" {
				t.Errorf("the instance is %+v", has)
			}
			if again := b.secret(); again.ResourceVersion != first.ResourceVersion {
				t.Error("the update has changed the Secret")
			}

			b.clock.SetTime(time.Now().Add(51 * time.Minute)) // of an hour, a sixth before its end
			b.until("it is renewed", func() error {
				if user := string(b.secret().Data["user"]); user != "user-2" {
					return fmt.Errorf("the user is %s", user)
				}
				return nil
			})
			if claim = b.binding(); claim.Status.Current.Predecessor == "" || len(claim.Status.Revoking) != 1 {
				t.Errorf("it was not rotated: %+v", claim.Status)
			}
			b.bindingIs("Ready", "") // after one more look
			if _, bindings := b.shop.counts(); bindings != 2 {
				t.Errorf("there are %d bindings during the overlap", bindings)
			}
			b.clock.SetTime(b.clock.Now().Add(b.overlap + time.Second))
			b.until("the former one is unbound", func() error {
				if _, bindings := b.shop.counts(); bindings != 1 {
					return fmt.Errorf("there are %d bindings", bindings)
				}
				return nil
			})

			b.clock.SetTime(b.clock.Now().Add(2 * time.Hour)) // it ends while nobody looks
			b.until("it is bound anew", func() error {
				if user := string(b.secret().Data["user"]); user != "user-3" {
					return fmt.Errorf("the user is %s", user)
				}
				return nil
			})
			if claim = b.binding(); claim.Status.Current.Predecessor != "" {
				t.Errorf("a binding that has ended is rotated: %+v", claim.Status.Current)
			}

			changes(b, b.binding(), func(claim *claimsv1.BindingClaim) { claim.Spec.Parameters = raw(`{"size": 1}`) })
			b.bindingIs("Ready", "")
			if user := string(b.secret().Data["user"]); user != "user-4" || b.binding().Status.Current.Predecessor != "" {
				t.Errorf("with other parameters, the user is %s, %+v", user, b.binding().Status.Current)
			}
			b.remove(b.secret())
			b.until("the Secret is there again", func() error {
				if user := string(b.secret().Data["user"]); user != "user-5" {
					return fmt.Errorf("the user is %q", user)
				}
				return nil
			})

			b.remove(b.service())
			b.serviceIs("Deleting", "it is deleted after its binding claims: db")
			b.remove(b.binding())
			b.gone()
		})
	}
}

// TestOrder: the broker learns where an order comes from, as the OSB profile asks of Kubernetes.
func TestOrder(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	bodies := map[string]map[string]any{}
	b.shop.set(func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
		if r.Method == http.MethodPut {
			content, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(content)))
			body := map[string]any{}
			_ = json.Unmarshal(content, &body)
			kind := "instance"
			if strings.Contains(r.URL.Path, "service_bindings") {
				kind = "binding"
			}
			who, value, _ := strings.Cut(r.Header.Get("X-Broker-API-Originating-Identity"), " ")
			decoded, _ := base64.StdEncoding.DecodeString(value)
			body["who"] = who + " " + string(decoded)
			bodies[kind] = body
		}
		return false
	})
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "sizes"}, Data: map[string][]byte{"yaml": []byte("size: 7\n")}})
	from := []claimsv1.ParametersSource{{SecretKeyRef: claimsv1.SecretKeyReference{Name: "sizes", Key: "yaml"}}}
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small", ParametersFrom: from}, &claimsv1.BindingClaimSpec{Parameters: raw(`{"size": 1}`)})
	b.bindingIs("Ready", "")
	var space, system corev1.Namespace
	if err := errors.Join(
		b.client.Get(t.Context(), client.ObjectKey{Name: b.namespace}, &space), b.client.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &system),
	); err != nil {
		t.Fatal(err)
	}
	place := fmt.Sprintf("map[clusterid:%s instance_name:db namespace:%s platform:kubernetes]", system.UID, b.namespace)
	for kind, want := range map[string]map[string]string{
		"instance": {"context": place, "organization_guid": string(system.UID), "space_guid": string(space.UID), "parameters": "map[size:7]", "maintenance_info": "map[version:1.2.0]"},
		"binding":  {"context": place, "parameters": "map[size:1]"},
	} {
		for field, value := range want {
			if got := fmt.Sprint(bodies[kind][field]); got != value {
				t.Errorf("%s: %s is %s, want %s", kind, field, got, value)
			}
		}
		if who := fmt.Sprint(bodies[kind]["who"]); !strings.HasPrefix(who, `kubernetes {`) || !strings.Contains(who, `"username":"`) || !strings.Contains(who, `"system:masters"`) {
			t.Errorf("%s: who asks is %s", kind, who)
		}
	}

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "sizes"}, Data: map[string][]byte{"yaml": []byte("size: 8\n")}}
	if err := b.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	before := b.service().Status.Instance.Digest
	b.until("the Secret's change is known", func() error {
		if has := b.service().Status.Instance; has.Digest == before || b.service().Status.Operation != nil {
			return fmt.Errorf("the instance is %+v", has)
		}
		return nil
	})
}

// TestSecretThatCannotBeWritten: the condition says why, and the Secret is there once it can be written.
func TestSecretThatCannotBeWritten(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	none := corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse("0")}
	full := &corev1.ResourceQuota{ObjectMeta: b.named(), Spec: corev1.ResourceQuotaSpec{Hard: none}}
	b.create(full)
	full.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	if err := b.client.Status().Update(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
	b.bindingIs("Failed", "exceeded quota: db")
	b.remove(full)
	b.bindingIs("Ready", "")
}

// TestSecrets: a Secret of somebody else is neither written nor deleted, and nothing is bound for it; nor is a claim of
// another broker carried out.
func TestSecrets(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	mine := &corev1.Secret{ObjectMeta: b.named(), Data: map[string][]byte{"mine": []byte("1")}}
	b.create(mine)
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
	b.create(&claimsv1.ServiceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "other"}, Spec: claimsv1.ServiceClaimSpec{Broker: "other", Service: "name-of-service", Plan: "small"}})
	b.serviceIs("Ready", "")
	b.bindingIs("SecretConflict", "there is a Secret db that this claim does not own")
	if _, bindings := b.shop.counts(); bindings != 0 {
		t.Error("it is bound without a place for the credentials")
	}
	b.remove(b.binding())
	b.until("the binding claim is gone", func() error {
		if b.binding().Name != "" {
			return errors.New("it is there")
		}
		return nil
	})
	if got := b.secret(); got.ResourceVersion != mine.ResourceVersion {
		t.Errorf("the Secret is now %+v", got)
	}
	b.remove(mine)
	if _, err := b.ReconcileService(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: b.namespace, Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	if instances, _ := b.shop.counts(); instances != 1 {
		t.Errorf("there are %d instances", instances)
	}
	b.remove(b.service())
	b.gone()
}

// TestData: members of credentials become entries; names that no entry can have are changed, and what the broker says of
// its type stays.
func TestData(t *testing.T) {
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"credentials": {"uri": "mysql://u:p@h/d", "port": 3306, "tls": true, "nothing": null, "a b/c": "x", "..": "y",
			"hosts": ["a", {"b": 1}], "type": "mysql", "number": 12345678901234567890}}`))
	}))
	defer broker.Close()
	bound, _, err := open(t, configOf(broker.URL)).Bind(t.Context(), "i", "b", osbclient.BindOrder{}, false)
	if err != nil {
		t.Fatal(err)
	}
	data, err := dataOf(bound, "service", "broker")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"uri": "mysql://u:p@h/d", "port": "3306", "tls": "true", "nothing": "null", "a_b_c": "x", "_..": "y", "hosts": `["a", {"b": 1}]`,
		"type": "mysql", "provider": "broker", "number": "12345678901234567890",
	} {
		if got := string(data[name]); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if len(data) != 10 {
		t.Errorf("there are %d entries: %s", len(data), data)
	}
}

// TestWithoutABroker: claims that are as they should be stay so while the broker is away; what is new says so.
func TestWithoutABroker(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
	b.bindingIs("Ready", "")
	b.shop.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	b.start() // with an empty memory
	for range 3 {
		b.serviceIs("Ready", "")
		b.bindingIs("Ready", "")
	}
	changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.Plan = "large" })
	b.serviceIs("BrokerUnavailable", "read the catalog: 503 Service Unavailable")
	changes(b, b.binding(), func(claim *claimsv1.BindingClaim) { claim.Spec.Renewal = "now" })
	b.bindingIs("RenewalFailed", "the credentials in the Secret still work, and others cannot be had: read the catalog: 503")
	b.clock.SetTime(time.Now().Add(2 * time.Hour))
	b.bindingIs("Expired", "the credentials ended at ")
	b.shop.set(nil)
	b.serviceIs("Ready", "")
	b.bindingIs("Ready", "")
	b.remove(b.service())
	b.remove(b.binding())
	b.gone()
}

// TestFixed: what a broker cannot change is refused when the claim is written.
func TestFixed(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
	for says, change := range map[string]func(*claimsv1.ServiceClaim){
		"does not change its service":        func(claim *claimsv1.ServiceClaim) { claim.Spec.Service = "another" },
		"does not move to another broker":    func(claim *claimsv1.ServiceClaim) { claim.Spec.Broker = "another" },
		"spec.plan in body should be at lea": func(claim *claimsv1.ServiceClaim) { claim.Spec.Plan = "" },
	} {
		claim := b.service()
		change(claim)
		if err := b.client.Update(t.Context(), claim); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("it is changed, want %q: %v", says, err)
		}
	}
	for says, change := range map[string]func(*claimsv1.BindingClaim){
		"does not change its instance":       func(claim *claimsv1.BindingClaim) { claim.Spec.ServiceClaim = "another" },
		"name of the Secret does not change": func(claim *claimsv1.BindingClaim) { claim.Spec.SecretName = "another" },
	} {
		claim := b.binding()
		change(claim)
		if err := b.client.Update(t.Context(), claim); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("it is changed, want %q: %v", says, err)
		}
	}
	b.remove(b.binding())
	b.remove(b.service())
	b.gone()
}
