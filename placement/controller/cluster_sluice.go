package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// A broker that is a Sluice says in its catalog which Sluices orders of a plan come to. So plans of brokers that order
// from each other in a circle are seen before anything is ordered.

// Limits of the lists in the status of a broker, and the reasons of its condition Acyclic.
const (
	maxSluicePlans, maxWithheld = 256, 100

	reasonAcyclic      = "Acyclic"
	reasonLoopDetected = "LoopDetected"
	reasonTooDeep      = "TooDeep"
)

// reportSluice writes what a catalog says beyond OSB into the status of a broker, and takes out of it the plans that
// lead back to a hub, or through too many Sluices. ordered names the plans that offerings order.
func reportSluice(status *v1alpha1.UpstreamBrokerStatus, catalog *osbclient.Catalog, ordered map[string]bool, hub string) {
	chains := chainsOf(catalog)
	if len(chains) == 0 {
		return
	}
	sluice := &v1alpha1.UpstreamSluice{}
	status.Plans = slices.DeleteFunc(status.Plans, func(p v1alpha1.OfferedPlan) bool {
		chain, known := chains[p.Name()]
		if !known {
			return false
		}
		sluice.Hub = cmp.Or(sluice.Hub, chain.Hub)
		if why := withheld(chain, hub); why != "" {
			status.LeftOut++
			if len(sluice.Withheld) < maxWithheld {
				sluice.Withheld = append(sluice.Withheld, v1alpha1.WithheldPlan{Plan: p.Name(), Reason: why})
			}
			return true
		}
		sluice.Depth = max(sluice.Depth, chain.Depth)
		if ordered[p.Name()] && len(sluice.Plans) < maxSluicePlans {
			sluice.Plans = append(sluice.Plans, v1alpha1.SluicePlan{Plan: p.Name(), Hubs: chain.Hubs(), Depth: chain.Depth})
		}
		return false
	})
	if sluice.Hub != "" { // otherwise nothing of it may be ordered
		status.Sluice = sluice
	}
}

// chainsOf returns the chains of a catalog's plans that have one, by SERVICE/PLAN.
func chainsOf(catalog *osbclient.Catalog) map[string]osbclient.Chain {
	chains := map[string]osbclient.Chain{}
	for i := range catalog.Services {
		s := &catalog.Services[i]
		for k := range s.Plans {
			if chain, ok := s.Plans[k].Chain(); ok {
				chains[s.Name+"/"+s.Plans[k].Name] = chain
			}
		}
	}
	return chains
}

// withheld returns why nothing may be ordered by a chain; "" if it may.
func withheld(chain osbclient.Chain, hub string) string {
	switch {
	case chain.Hub == hub:
		return "the broker is this one itself"
	case slices.Contains(chain.Behind, hub):
		return fmt.Sprintf("the broker orders it from this one, directly or through others (the hubs behind it are %s): orders would come back", strings.Join(chain.Behind, ", "))
	case chain.Depth > v1alpha1.MaxSluices:
		return fmt.Sprintf("orders would come through %d Sluices, at most %d are allowed", chain.Depth, v1alpha1.MaxSluices)
	}
	return ""
}

// reportAcyclic writes the condition of brokers that are Sluices.
func reportAcyclic(cluster *v1alpha1.MemberCluster) {
	if cluster.Status.Broker == nil || cluster.Status.Broker.Sluice == nil {
		meta.RemoveStatusCondition(&cluster.Status.Conditions, v1alpha1.ConditionAcyclic)
		return
	}
	sluice := cluster.Status.Broker.Sluice
	state, reason, message := metav1.ConditionTrue, reasonAcyclic, "no plan leads orders back here"
	if left := sluice.Withheld; len(left) > 0 {
		state, reason = metav1.ConditionFalse, reasonLoopDetected
		if !slices.ContainsFunc(left, func(p v1alpha1.WithheldPlan) bool { return !strings.HasPrefix(p.Reason, "orders would come through") }) {
			reason = reasonTooDeep
		}
		names := make([]string, 0, len(left))
		for i := range left {
			names = append(names, left[i].Plan)
		}
		message = fmt.Sprintf("broker %s: not ordered there: %s: %s", cluster.Name, lists.Some(names, 3), left[0].Reason)
	}
	v1alpha1.SetCondition(&cluster.Status.Conditions, cluster.Generation, v1alpha1.ConditionAcyclic, state, reason, message)
}
