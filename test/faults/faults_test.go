package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestFaults(t *testing.T) {
	b := newBed(t)
	t.Run("nothing is lost and nothing left behind under", func(t *testing.T) {
		for name, fault := range Faults {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				newLife(t, b, fault).run()
			})
		}
	})
	t.Run("a cluster whose writes hang keeps nobody else waiting", func(t *testing.T) { nobodyElseWaits(t, b) })
}

// life of one instance, whose requests to its cluster go wrong while it is
// provisioned, bound, updated, unbound and deprovisioned.
type life struct {
	*testing.T
	*bed
	instance  string // its path in the OSB API
	name      string // of its ServiceInstance
	namespace string // on the member cluster
	fault     Fault
	tokens    []string
}

func newLife(t *testing.T, b *bed, fault Fault) *life {
	id := strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, t.Name())
	l := &life{T: t, bed: b, instance: "/v2/service_instances/" + id, name: v1alpha1.InstanceName("p", id), fault: fault}
	l.namespace = v1alpha1.MemberNamespace(l.name)
	return l
}

// during has the instance's requests go wrong, three times at least, from the beginning of
// an operation on.
func (l *life) during(begin func()) {
	l.Helper()
	const enough = 3
	rule := &Rule{Fault: l.fault, Of: func(r *http.Request, body []byte) bool {
		return strings.Contains(r.URL.Path, l.namespace) || strings.Contains(string(body), l.namespace)
	}}
	l.proxy.Break(rule)
	begin()
	eventually(l.T, "the fault has happened", func(context.Context) (bool, error) { return rule.Hits() >= enough, nil })
	l.proxy.Heal(rule)
}

func (l *life) run() {
	l.during(func() { l.accepted(l.T, "PUT", l.instance, order(faulty+"-small")) })
	l.ends(l.T, l.instance, "succeeded")
	bindings := []string{l.instance + "/service_bindings/b-1", l.instance + "/service_bindings/b-2"}
	for _, binding := range bindings {
		l.during(func() { l.accepted(l.T, "PUT", binding, order(faulty+"-small")) })
		l.ends(l.T, binding, "succeeded")
		l.tokens = append(l.tokens, l.token(binding))
	}
	for i, token := range l.tokens {
		if !l.works(l.Context(), token) {
			l.Errorf("the token of %s does not work", bindings[i])
		}
	}
	l.during(func() {
		l.accepted(l.T, "PATCH", l.instance, object{"service_id": "s", "plan_id": faulty + "-large", "context": object{}})
	})
	l.ends(l.T, l.instance, "succeeded")
	if quota := l.quota(); quota != "4" {
		l.Errorf("the quota has %q pods after the update, want 4", quota)
	}

	l.during(func() { l.accepted(l.T, "DELETE", bindings[0], nil) })
	l.ends(l.T, bindings[0], "gone")
	l.revoked(l.tokens[0])
	if !l.works(l.Context(), l.tokens[1]) {
		l.Error("the other binding's token does not work any more")
	}
	l.during(func() { l.accepted(l.T, "DELETE", l.instance, nil) })
	l.ends(l.T, l.instance, "gone")
	l.audit()
}

// audit looks at the cluster as its administrator, at once: what Sluice says is gone is gone.
func (l *life) audit() {
	l.Helper()
	if _, err := l.admin.CoreV1().Namespaces().Get(l.Context(), l.namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		l.Errorf("namespace %s still stands (%v)", l.namespace, err)
	}
	l.revoked(l.tokens[1])
	// The hub lets the instance go a moment before the ledger does.
	eventually(l.T, "nothing is reserved", func(context.Context) (bool, error) {
		return l.inventory.Snapshot().Reserved(l.name, faulty) == nil, nil
	})
	var left v1alpha1.ServiceBindingList
	must(l.T, l.hub.List(l.Context(), &left, client.InNamespace(l.bed.namespace)))
	for i := range left.Items {
		if left.Items[i].Spec.InstanceName == l.name {
			l.Errorf("binding %s is left on the hub", left.Items[i].Name)
		}
	}
}

// token of a binding.
func (l *life) token(binding string) string {
	l.Helper()
	code, answer, err := l.call(l.Context(), "GET", binding, nil)
	credentials, ok := answer["credentials"].(object)
	if err != nil || code != 200 || !ok {
		l.Fatalf("fetch %s: %d %v", binding, code, err)
	}
	return credentials["token"].(string)
}

// works asks the cluster whether it takes a token.
func (l *life) works(ctx context.Context, token string) bool {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	answer, err := l.admin.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && answer.Status.Authenticated
}

// revoked allows for the ten seconds for which an API server remembers a good token.
func (l *life) revoked(token string) {
	l.Helper()
	const remembered = 15 * time.Second
	for start := time.Now(); l.works(l.Context(), token); {
		if time.Since(start) > remembered {
			l.Errorf("a token that was taken back still works")
			return
		}
		<-time.After(300 * time.Millisecond)
	}
}

func (l *life) quota() string {
	quota, err := l.admin.CoreV1().ResourceQuotas(l.namespace).Get(l.Context(), "sluice", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	pods := quota.Spec.Hard[corev1.ResourcePods]
	return pods.String()
}

// nobodyElseWaits begins 200 operations on a cluster that reads well and takes no write,
// and provisions on another.
func nobodyElseWaits(t *testing.T, b *bed) {
	const hanging, most = 200, time.Second
	provision := func(id string) time.Duration {
		t.Helper()
		path := "/v2/service_instances/" + id
		start := time.Now()
		b.accepted(t, "PUT", path, order(healthy+"-small"))
		b.ends(t, path, "succeeded")
		b.accepted(t, "PUT", path+"/service_bindings/b", order(healthy+"-small"))
		b.ends(t, path+"/service_bindings/b", "succeeded")
		return time.Since(start)
	}
	var alone time.Duration
	for i := range 3 {
		alone = max(alone, provision(fmt.Sprintf("alone-%d", i)))
	}
	rule := &Rule{Fault: Hang, Of: func(r *http.Request, _ []byte) bool { return r.Method != http.MethodGet }}
	b.proxy.Break(rule)
	defer b.proxy.Heal(rule)
	for i := range hanging {
		b.accepted(t, "PUT", fmt.Sprintf("/v2/service_instances/hanging-%d", i), order(faulty+"-small"))
	}
	eventually(t, "operations hang", func(context.Context) (bool, error) { return rule.Hits() >= 32, nil })
	var beside []time.Duration
	for i := range 5 {
		beside = append(beside, provision(fmt.Sprintf("beside-%d", i)))
	}
	slices.Sort(beside)
	t.Logf("provision and bind: %s alone, %s beside %d operations that hang", alone, beside, hanging)
	if median := beside[len(beside)/2]; median > alone+most { // one may meet a pause of this machine's
		t.Errorf("provision and bind on the healthy cluster took %s, alone %s", median, alone)
	}
	eventually(t, "the cluster that takes no writes is not ready", func(ctx context.Context) (bool, error) {
		return !b.ready(ctx, faulty), nil
	})
	b.proxy.Heal(rule)
	eventually(t, "it is ready again", func(ctx context.Context) (bool, error) { return b.ready(ctx, faulty), nil })
	for i := range hanging {
		b.ends(t, fmt.Sprintf("/v2/service_instances/hanging-%d", i), "succeeded")
	}
}
