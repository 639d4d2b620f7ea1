package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// TestCopiesAreListedByTheLabelsOfTheirClusters: the status says where there is a copy for each
// combination of the labels of a plan, whether it works, and since when; it follows the labels.
func TestCopiesAreListedByTheLabelsOfTheirClusters(t *testing.T) {
	w := newWorld(t)
	w.reconciler.plan = testCatalog(t, func(plan *v1alpha1.ResourcesPlan) {
		plan.Clusters, plan.MaxClusters, plan.Components = 1, 1, nil
		plan.Spread = &v1alpha1.Spread{By: []string{v1alpha1.LabelRegion, v1alpha1.LabelProvider}, Each: true}
	}).Plan
	label := func(name, region, provider string) {
		w.Helper()
		var mc v1alpha1.MemberCluster
		w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &mc))
		mc.Spec.Region, mc.Spec.Provider = region, provider
		w.must(w.hub.Update(w.Context(), &mc))
		w.inventory.UpsertCluster(placement.ClusterOf(&mc, w.clock.Now()))
	}
	began := w.clock.Now()
	wantCopies := func(what string, instance *v1alpha1.ServiceInstance, want ...string) {
		w.Helper()
		var got []string
		for _, c := range instance.Status.Copies {
			got = append(got, fmt.Sprintf("%s %s %t +%dm", c.In(), c.Cluster, c.Ready, int(c.Since.Sub(began).Round(time.Minute).Minutes())))
		}
		if !slices.Equal(got, want) {
			w.Fatalf("%s the copies are\n%q, want\n%q", what, got, want)
		}
	}
	const acme, globex = "sluice.dev/provider=acme,topology.kubernetes.io/region=", "sluice.dev/provider=globex,topology.kubernetes.io/region="
	for _, name := range []string{"a", "b", "c"} {
		w.cluster(name, 8)
	}
	label("a", "eu", "acme")
	label("b", "us", "acme")
	w.provision("si-a", "plan-2", "") // c is in no group yet
	wantCopies("at first", w.passes("si-a"), acme+"eu a true +0m", acme+"us b true +0m")

	w.woken = nil
	w.after(time.Minute)
	label("b", "us", "globex")
	w.wantWoken("si-a")
	wantCopies("with another provider", w.settle("si-a"), acme+"eu a true +0m", globex+"us b true +1m")
	before := w.instance("si-a").ResourceVersion
	if again := w.settle("si-a"); again.ResourceVersion != before {
		t.Error("another look wrote what is no news")
	}

	w.after(time.Minute)
	label("c", "eu", "globex")
	w.driver.fail("deliver c", &delivery.PendingError{Step: "slow"})
	wantCopies("while a combination gets its copy", w.passes("si-a"), acme+"eu a true +0m", globex+"us b true +1m")
	w.driver.fail("deliver c", nil)
	wantCopies("with a new combination", w.settle("si-a"), acme+"eu a true +0m", globex+"eu c true +2m", globex+"us b true +1m")

	w.after(time.Minute)
	w.lose("b")
	w.wantWoken("si-a")
	wantCopies("with a lost cluster", w.settle("si-a"), acme+"eu a true +0m", globex+"eu c true +2m", globex+"us b false +3m")
	w.comeBack("b")
	w.reconciler.lost("si-a")
	w.after(time.Minute)
	wantCopies("when it is back", w.settle("si-a"), acme+"eu a true +0m", globex+"eu c true +2m", globex+"us b true +4m")

	label("c", "us", "globex")
	now := w.settle("si-a")
	if len(now.Status.Copies) != 2 || now.Status.Copies[0].Cluster != "a" || now.Status.Copies[1].In() != globex+"us" {
		t.Errorf("of a combination that is gone there is still a copy: %+v", now.Status.Copies)
	}
}
