package market

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// maxClusterChange is the longest change of a cluster.
const maxClusterChange = 64 << 10

// taintCordoned keeps new placements off a cluster that its provider has cordoned. It is beside the operator's cordon
// (spec.unschedulable), which a provider cannot lift.
const taintCordoned = "sluice.dev/cordoned-by-provider"

// clusterBody is a member cluster as its provider sees it.
type clusterBody struct {
	Name     string `json:"name"`
	Provider string `json:"provider,omitempty"`
	Region   string `json:"region,omitempty"`
	Tier     string `json:"tier,omitempty"`
	// ETag for If-Match.
	ETag string `json:"etag"`
	// Ready reports whether new placements may be made there; Message says why not.
	Ready   bool   `json:"ready"`
	Message string `json:"message,omitempty"`
	// Admitted reports whether everything is proven that has to be; Unproven says what is not.
	Admitted bool   `json:"admitted"`
	Unproven string `json:"unproven,omitempty"`
	// AddedByProvider means that the provider has added the cluster, and may remove it.
	AddedByProvider bool `json:"added_by_provider"`
	// Cordoned by the provider, and by the operator: either takes no new placements. Draining means that the operator
	// moves the instances off it.
	Cordoned           bool                `json:"cordoned"`
	CordonedByOperator bool                `json:"cordoned_by_operator"`
	Draining           bool                `json:"draining"`
	Prices             *v1alpha1.PriceList `json:"prices,omitempty"`
	Sell               *v1alpha1.Sale      `json:"sell,omitempty"`
	// Allocatable is the capacity of the cluster, and ForeignUse the part of it that is used by others than Sluice.
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	ForeignUse  corev1.ResourceList `json:"foreign_use,omitempty"`
}

func isCordonTaint(t corev1.Taint) bool { return t.Key == taintCordoned }

func clusterBodyOf(m *v1alpha1.MemberCluster) clusterBody {
	body := clusterBody{
		Name: m.Name, Provider: m.Spec.Provider, Region: m.Spec.Region, Tier: string(m.Spec.Tier), ETag: tagOf(m),
		Admitted: m.Spec.Trust == nil, AddedByProvider: m.Spec.Guarded, Cordoned: slices.ContainsFunc(m.Spec.Taints, isCordonTaint), CordonedByOperator: m.Spec.Unschedulable, Draining: m.IsDraining(),
		Prices: m.Spec.Prices, Sell: m.Spec.Sell, Allocatable: m.Status.Allocatable, ForeignUse: m.Status.ForeignUse,
	}
	if ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		if body.Ready = ready.Status == "True"; !body.Ready {
			body.Message = ready.Message
		}
	}
	if admitted := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAdmitted); m.Spec.Trust != nil && admitted != nil {
		if body.Admitted = admitted.Status == "True"; !body.Admitted {
			body.Unproven = admitted.Message
		}
	}
	return body
}

// clusters answers with the clusters of a provider, or all of them.
func (s *server) clusters(c *call) error {
	var list v1alpha1.MemberClusterList
	if err := s.Live.List(c.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list member clusters: %w", err)
	}
	bodies := []clusterBody{}
	for i := range list.Items {
		if c.caller.Role == access.Operator || list.Items[i].Spec.Provider == c.caller.Name {
			bodies = append(bodies, clusterBodyOf(&list.Items[i]))
		}
	}
	slices.SortFunc(bodies, func(a, b clusterBody) int { return strings.Compare(a.Name, b.Name) })
	writeJSON(c.ResponseWriter, http.StatusOK, map[string]any{"clusters": bodies})
	return nil
}

// clusterChange changes what is present. Prices and what limits the sale are replaced as a whole; null removes them.
type clusterChange struct {
	// Cordoned, Prices and Sell are for the cluster's provider.
	Cordoned json.RawMessage `json:"cordoned"`
	Prices   json.RawMessage `json:"prices"`
	Sell     json.RawMessage `json:"sell"`
	// CordonedByOperator and Draining are for the operator.
	CordonedByOperator json.RawMessage `json:"cordoned_by_operator"`
	Draining           json.RawMessage `json:"draining"`
}

// check checks the booleans, which null does not remove. The error is an *Error.
func (change *clusterChange) check() error {
	for _, field := range []struct {
		name  string
		value json.RawMessage
	}{{"cordoned", change.Cordoned}, {"cordoned_by_operator", change.CordonedByOperator}, {"draining", change.Draining}} {
		if text := string(field.value); !slices.Contains([]string{"", "true", "false"}, text) {
			return badRequest("%s: want true or false.", field.name)
		}
	}
	return nil
}

func isTrue(value json.RawMessage) bool { return string(value) == "true" }

// patchCluster changes what the caller decides about a cluster.
func (s *server) patchCluster(c *call) error {
	if c.caller.Role == access.Provider {
		end, err := s.writes.begin(c.caller, s.Clock.Now())
		if err != nil {
			return err
		}
		defer end()
	}
	var change clusterChange
	if err := c.decode(maxClusterChange, &change); err != nil {
		return err
	}
	if err := change.check(); err != nil {
		return err
	}
	var m *v1alpha1.MemberCluster
	err := c.change("cluster", func() (err error) {
		if m, err = s.ownCluster(c); err != nil {
			return err
		}
		if err := s.mayChange(c, &change, m); err != nil {
			return err
		}
		if err := c.ifMatch(m); err != nil {
			return err
		}
		if err := change.apply(&m.Spec, s.Clock.Now()); err != nil {
			return err
		}
		return s.Hub.Update(c.Context(), m)
	})
	if err != nil {
		return err
	}
	body := clusterBodyOf(m)
	c.ResponseWriter.Header().Set("ETag", body.ETag)
	writeJSON(c.ResponseWriter, http.StatusOK, body)
	return nil
}

// Move is the expected result for an instance on a cluster that is drained or lost.
type Move struct {
	// Instance is the name of its resource.
	Instance string `json:"instance"`
	// To are the clusters on which it would be; none if it would stay. A lost cluster is not among them, although
	// components with volumes would wait for it there.
	To []string `json:"to,omitempty"`
	// Why it would stay; empty if it would move.
	Why string `json:"why,omitempty"`
}

// moves answers with what would happen to the instances on a cluster.
func (s *server) moves(c *call) error {
	m, err := s.ownCluster(c)
	if err != nil {
		return err
	}
	supposed := c.URL.Query().Get("if")
	if supposed != "drained" && supposed != "lost" {
		return badRequest("if: want drained or lost.")
	}
	moves, untried, err := s.Moves(c.Context(), m.Name, supposed == "lost")
	if err != nil {
		return err
	}
	writeJSON(c.ResponseWriter, http.StatusOK, map[string]any{"moves": moves, "untried": untried})
	return nil
}

// ownCluster reads the cluster in the URL. The error is an *Error if it is not the caller's.
func (s *server) ownCluster(c *call) (*v1alpha1.MemberCluster, error) {
	name, err := c.variable("id")
	if err != nil {
		return nil, err
	}
	none := &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "There is no cluster " + name + "."}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, none // the client refuses some such names
	}
	m := &v1alpha1.MemberCluster{}
	if err := s.Live.Get(c.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, m); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read member cluster %s: %w", name, err)
		}
		return nil, none
	}
	if c.caller.Role == access.Provider && m.Spec.Provider != c.caller.Name {
		return nil, &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: "The cluster " + name + " is not " + c.caller.Name + "'s."}
	}
	return m, nil
}

// mayChange returns an error, which is an *Error, if the caller may not decide something in a change, or if it would
// cost instances their data.
func (s *server) mayChange(c *call, change *clusterChange, m *v1alpha1.MemberCluster) error {
	forbidden := func(text string) error {
		return &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: text}
	}
	switch provider := c.caller.Role == access.Provider; {
	case provider && (change.CordonedByOperator != nil || change.Draining != nil):
		return forbidden("cordoned_by_operator and draining are for the operator to change; a provider changes cordoned.")
	case !provider && (change.Cordoned != nil || change.Prices != nil || change.Sell != nil):
		return forbidden("cordoned, prices and sell are for the cluster's provider to change; an operator changes cordoned_by_operator and draining.")
	case change.drains() && change.CordonedByOperator != nil && !isTrue(change.CordonedByOperator):
		return badRequest("cordoned_by_operator: a cluster that is drained takes no new placements; leave it out.")
	case !change.drains():
		return nil
	}
	var instances v1alpha1.ServiceInstanceList
	if err := s.Live.List(c.Context(), &instances, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	if pinned := v1alpha1.PinnedOn(instances.Items, m.Name); len(pinned) > 0 {
		return &Error{Status: http.StatusConflict, Code: "Pinned", Description: fmt.Sprintf(
			"Instances have volumes on %s whose data would be lost by a move: %s. Their consumers have to deprovision them first; until then a cordon stops new placements.", m.Name, lists.Some(pinned, 10))}
	}
	return nil
}

// drains reports whether the cluster is to be drained.
func (change *clusterChange) drains() bool { return isTrue(change.Draining) }

// apply changes a spec. The error is an *Error.
func (change *clusterChange) apply(spec *v1alpha1.MemberClusterSpec, now time.Time) error {
	switch cordon := change.CordonedByOperator; {
	case change.drains():
		spec.Drain(metav1.NewTime(now))
	case isTrue(cordon):
		spec.Cordon()
	case cordon != nil:
		spec.Uncordon()
	}
	if change.Draining != nil && !change.drains() {
		spec.EndDrain()
	}
	if change.Cordoned != nil {
		spec.Taints = slices.DeleteFunc(spec.Taints, isCordonTaint)
		if isTrue(change.Cordoned) {
			spec.Taints = append(spec.Taints, corev1.Taint{Key: taintCordoned, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	if change.Prices != nil {
		prices, err := patched[v1alpha1.PriceList]("prices", change.Prices)
		if err != nil {
			return err
		}
		if err := checkPrices(prices); err != nil {
			return err
		}
		spec.Prices = prices
	}
	if change.Sell != nil {
		sell, err := patched[v1alpha1.Sale]("sell", change.Sell)
		if err != nil {
			return err
		}
		if err := checkSale(sell); err != nil {
			return err
		}
		spec.Sell = sell
	}
	return nil
}

// checkPrices checks a price list, if there is one. The error is an *Error.
func checkPrices(prices *v1alpha1.PriceList) error {
	if err := prices.Check(); err != nil {
		return invalid("prices." + err.Error() + ".")
	}
	return nil
}

// checkSale checks what is sold of a cluster. The error is an *Error.
func checkSale(sell *v1alpha1.Sale) error {
	if err := sell.Check(); err != nil {
		return invalid("sell." + err.Error() + ".")
	}
	return nil
}

// patched reads a part of a change; nil for null.
func patched[T any](name string, raw json.RawMessage) (*T, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	value := new(T)
	if err := strictjson.Decode(bytes.NewReader(raw), strictjson.Limits{Object: true, KnownMembers: true, Float64: true}, value); err != nil {
		return nil, badRequest("%s: %s.", name, err)
	}
	return value, nil
}
