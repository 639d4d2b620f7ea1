package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/journal/journaltest"
	"github.com/sluice-dev/sluice/placement"
)

// audit adds up the hub's statuses and the clusters' content.
func (h *history) audit() {
	known := map[string]*v1alpha1.ServiceInstance{}
	reserved := map[string]int64{}
	all := h.instances()
	for i := range all {
		h.meter(&all[i])
		h.sign(&all[i])
		known[all[i].Name] = &all[i]
		for cluster, held := range h.counted(&all[i]) {
			reserved[cluster] += held[corev1.ResourceCPU]
		}
	}
	for _, name := range h.clusters {
		mc := &v1alpha1.MemberCluster{}
		h.must(h.hub.Get(context.Background(), client.ObjectKey{Namespace: historyNamespace, Name: name}, mc))
		room := mc.Status.Allocatable.Cpu().MilliValue()
		switch {
		case reserved[name] <= room:
			h.shrunk[name] = false
		case h.did == "disturb a cluster":
			h.shrunk[name] = true
		case !h.shrunk[name]:
			h.Fatalf("after %s: oversold: %d of %d thousandths of a core are reserved on %s", h.did, reserved[name], room, name)
		}
	}
	h.auditPreemptions(known)
	for cluster, instances := range h.driver.carried {
		for name := range instances {
			instance := known[name]
			if instance == nil {
				h.Fatalf("after %s: leaked: %s carries %s, which is gone", h.did, cluster, name)
			}
			if _, named := placement.Ledger(&instance.Status)[cluster]; !named {
				h.Fatalf("after %s: leaked: %s carries %s, whose status does not name it", h.did, cluster, name)
			}
		}
	}
}

// auditPreemptions checks that only instances that may be displaced are.
func (h *history) auditPreemptions(known map[string]*v1alpha1.ServiceInstance) {
	for name, instance := range known {
		p := instance.Status.Preemption
		if p != nil && h.preempts == "" {
			h.Fatalf("after %s: %s has room made, and no class is declared", h.did, name)
		}
		var victims []v1alpha1.Victim
		if p != nil {
			victims = p.AllVictims()
		}
		for _, v := range victims {
			victim := known[v.Instance]
			if victim == nil {
				continue // gone in the meantime
			}
			if v.Priority >= p.Priority {
				h.Fatalf("after %s: %s displaces %+v", h.did, name, v)
			}
			if h.preempts == v1alpha1.PreemptsSameConsumer && victim.Spec.SpaceGUID != instance.Spec.SpaceGUID {
				h.Fatalf("after %s: %s displaces %s of another consumer", h.did, name, victim.Name)
			}
			h.victims[victim.Name] = true
		}
		if d := instance.Status.Decision; d != nil && len(d.Displaced) > 0 && !h.victims[name] {
			h.Fatalf("after %s: %s is displaced, and nobody wanted its room", h.did, name)
		}
	}
}

// versions returns the version of each instance.
func (h *history) versions() map[string]string {
	found := map[string]string{}
	for _, instance := range h.instances() {
		found[instance.Name] = instance.ResourceVersion
	}
	return found
}

// rest stops all faults, and lets time pass until nothing more is going to happen.
func (h *history) rest() {
	h.faults = false
	clear(h.driver.failing)
	for _, name := range h.clusters {
		h.change(name, func(mc *v1alpha1.MemberCluster) {
			h.reachable(mc, true)
			mc.Spec.Unschedulable, mc.Spec.Taints = false, nil
		})
	}
	// One that is displaced displaces others in turn, so rounds go on until four have changed nothing.
	before := h.versions()
	for round, quiet := 0, 0; round < 16 || quiet < 4; round++ {
		if round == 64 {
			h.Fatalf("it is never at rest: %+v", h.instances())
		}
		for n := range h.made { // as the work queue: those that are gone, too
			h.pass(fmt.Sprintf("si-%d", n+1))
			h.audit()
		}
		now := h.versions()
		if quiet++; !maps.Equal(before, now) {
			quiet = 0
		}
		before = now
		h.clock.SetTime(h.clock.Now().Add(10 * time.Second))
	}
	for i := range h.driver.carried {
		for name := range h.driver.carried[i] {
			h.wantAtRest(name, i)
		}
	}
	h.auditEvents()
	h.auditUsage()
	h.auditContracts()
	for _, instance := range h.instances() {
		status := &instance.Status
		switch {
		case !instance.DeletionTimestamp.IsZero():
			h.Fatalf("%s is still being deprovisioned: %+v", instance.Name, status)
		case status.Operation == nil || status.Operation.State == v1alpha1.StateInProgress:
			h.Fatalf("%s is still at %+v", instance.Name, status.Operation)
		case status.Preemption != nil:
			h.Fatalf("%s still has room made: %+v", instance.Name, status.Preemption)
		case len(status.Left) > 0 || status.Decision != nil && len(status.Decision.Leaving) > 0:
			h.Fatalf("%s is still leaving: left %v, decision %+v", instance.Name, status.Left, status.Decision)
		case status.Delivered == nil && status.Decision != nil:
			h.Fatalf("%s has failed and still holds %+v", instance.Name, status.Decision)
		case status.Delivered != nil && !equality.Semantic.DeepEqual(*status.Decision, status.Delivered.Decision):
			h.Fatalf("%s is delivered as %+v, and decided as %+v", instance.Name, status.Delivered.Decision, status.Decision)
		}
		held := map[string]placement.Resources{}
		for _, name := range h.clusters {
			if r := h.inventory.Snapshot().Reserved(instance.Name, name); r != nil {
				held[name] = r
			}
		}
		if !maps.EqualFunc(held, placement.Ledger(status), maps.Equal) {
			h.Fatalf("%s holds %v in the inventory, %v by its status", instance.Name, held, placement.Ledger(status))
		}
		if status.Delivered == nil {
			continue
		}
		if len(status.Delivered.Decision.Displaced) > 0 {
			h.wantNoRoom(&instance)
		} else if status.Delivered.State.PlanID == planEach {
			h.wantInEach(&instance)
		}
		for _, p := range status.Delivered.Decision.Placements {
			if got := h.driver.carried[p.Cluster][instance.Name]; got != p.Reserved.Cpu().Value() {
				h.Fatalf("%s is delivered to %s with %s, which carries %d", instance.Name, p.Cluster, p.Reserved.Cpu(), got)
			}
		}
	}
}

// wantNoRoom checks that a displaced instance fits nowhere.
func (h *history) wantNoRoom(instance *v1alpha1.ServiceInstance) {
	s := &scope{ServiceInstance: instance, now: h.clock.Now()}
	plan, err := h.plans.Plan(instance.Spec.ServiceID, s.wanted().PlanID)
	h.must(err)
	request, err := h.reconciler.request(s, plan, nil)
	h.must(err)
	if decision, err := placement.Place(request, h.inventory.Snapshot()); err == nil {
		h.Fatalf("%s is displaced from %v, and fits on %+v", instance.Name, named(instance.Status.Delivered.Decision.Displaced), decision.Placements)
	}
}

// wantInEach checks that an instance of such a plan has one cluster in each region, or that
// there is no room for that.
func (h *history) wantInEach(instance *v1alpha1.ServiceInstance) {
	s := &scope{ServiceInstance: instance, now: h.clock.Now()}
	c := h.reconciler.coverage(s)
	if c.Lacks && !s.Status.IsUncovered() && !s.Status.IsStranded() || len(c.Surplus) > 0 && !s.Status.IsStranded() {
		h.Fatalf("%s is on %v, not in each region: %+v; conditions %+v", instance.Name, instance.Status.Delivered.Decision.Clusters(), c, instance.Status.Conditions)
	}
}

// wantAtRest checks that what a cluster carries is delivered there.
func (h *history) wantAtRest(name, cluster string) {
	for _, instance := range h.instances() {
		if instance.Name == name && instance.Status.Delivered != nil && slices.Contains(instance.Status.Delivered.Decision.Clusters(), cluster) {
			return
		}
	}
	h.Fatalf("left over: %s carries %s", cluster, name)
}

// auditEvents checks that each instance has all of its events once, from its order on; one that is gone, to its
// removal.
func (h *history) auditEvents() {
	there := map[types.UID]bool{}
	for _, instance := range h.instances() {
		there[instance.UID] = true
	}
	lives, err := journaltest.Audit(context.Background(), h.hub, historyNamespace, func(uid types.UID) bool { return there[uid] })
	h.must(err)
	if lives != h.made {
		h.Fatalf("%d instances were ordered, %d have events", h.made, lives)
	}
	h.auditRecorded()
}

// auditRecorded checks that each event, and each end of an operation, is counted once; or, if a Sluice was killed, at
// most once.
func (h *history) auditRecorded() {
	all, err := journal.Read(context.Background(), h.hub, historyNamespace, func(journal.Entry) bool { return true })
	h.must(err)
	want, counted := map[string]int{}, map[string]int{}
	for _, e := range all {
		want[string(e.Type)]++
		if state := e.Ends(); state != "" {
			want[string(e.Operation)+" "+string(state)]++
		}
	}
	for _, life := range h.lives {
		registry := prometheus.NewRegistry()
		h.must(registry.Register(life))
		families, err := registry.Gather()
		h.must(err)
		for _, family := range families {
			for _, m := range family.Metric {
				labels := map[string]string{}
				for _, pair := range m.Label {
					labels[pair.GetName()] = pair.GetValue()
				}
				if family.GetName() == "sluice_events_total" {
					counted[labels["type"]] += int(m.Counter.GetValue())
					continue
				}
				counted[labels["operation"]+" "+labels["result"]] += int(m.Histogram.GetSampleCount())
			}
		}
	}
	for what := range want {
		if n := counted[what]; n > want[what] || n < want[what] && !h.killed {
			h.Fatalf("%s: %d happened, %d are counted (killed: %t)", what, want[what], n, h.killed)
		}
	}
	for what, n := range counted {
		if want[what] == 0 {
			h.Fatalf("%s: none happened, %d are counted", what, n)
		}
	}
}
