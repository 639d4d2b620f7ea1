package market

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
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
	// Cordoned by the provider, and by the operator: either takes no new placements.
	Cordoned           bool                `json:"cordoned"`
	CordonedByOperator bool                `json:"cordoned_by_operator"`
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
		Cordoned: slices.ContainsFunc(m.Spec.Taints, isCordonTaint), CordonedByOperator: m.Spec.Unschedulable,
		Prices: m.Spec.Prices, Sell: m.Spec.Sell, Allocatable: m.Status.Allocatable, ForeignUse: m.Status.ForeignUse,
	}
	if ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		if body.Ready = ready.Status == "True"; !body.Ready {
			body.Message = ready.Message
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

// clusterChange changes what is present; null removes prices or what limits the sale.
type clusterChange struct {
	Cordoned *bool           `json:"cordoned"`
	Prices   json.RawMessage `json:"prices"`
	Sell     json.RawMessage `json:"sell"`
}

// patchCluster changes what a provider decides about its cluster (RFC 7396).
func (s *server) patchCluster(c *call) error {
	end, err := s.writes.begin(c.caller.Name, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	name, err := c.variable("id")
	if err != nil {
		return err
	}
	var change clusterChange
	if err := c.decode(maxClusterChange, &change); err != nil {
		return err
	}
	m := &v1alpha1.MemberCluster{}
	if err := s.Live.Get(c.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, m); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read member cluster %s: %w", name, err)
		}
		return &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "There is no cluster " + name + "."}
	}
	if m.Spec.Provider != c.caller.Name {
		return &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: "The cluster " + name + " is not " + c.caller.Name + "'s."}
	}
	if err := c.ifMatch(m); err != nil {
		return err
	}
	if err := change.apply(&m.Spec); err != nil {
		return err
	}
	if err := s.Hub.Update(c.Context(), m); err != nil {
		return writeError(err, "cluster "+name)
	}
	body := clusterBodyOf(m)
	c.ResponseWriter.Header().Set("ETag", body.ETag)
	writeJSON(c.ResponseWriter, http.StatusOK, body)
	return nil
}

// apply changes a spec. The error is an *Error.
func (change *clusterChange) apply(spec *v1alpha1.MemberClusterSpec) error {
	if change.Cordoned != nil {
		spec.Taints = slices.DeleteFunc(spec.Taints, isCordonTaint)
		if *change.Cordoned {
			spec.Taints = append(spec.Taints, corev1.Taint{Key: taintCordoned, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	if change.Prices != nil {
		prices, err := patched[v1alpha1.PriceList]("prices", change.Prices)
		if err != nil {
			return err
		}
		spec.Prices = prices
	}
	if change.Sell != nil {
		sell, err := patched[v1alpha1.Sale]("sell", change.Sell)
		if err != nil {
			return err
		}
		spec.Sell = sell
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
