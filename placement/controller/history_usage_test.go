package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/usage"
)

// metered adds up what an instance has had so far, by looking at the hub after each step.
type metered struct {
	has map[string]has // by cluster
	// sum is core seconds by cluster, without those of what it has.
	sum map[string]int64
	// last is the last time that is in its usage, as the hub has it.
	last time.Time
}

// has describes an instance on a cluster.
type has struct {
	plan  string
	cores int64
	since time.Time
}

// meter looks at what an instance has. What happens later does not happen before, whatever the clock says.
func (h *history) meter(i *v1alpha1.ServiceInstance) {
	if h.metered == nil {
		return
	}
	m := h.metered[i.Name]
	if m == nil {
		m = &metered{has: map[string]has{}, sum: map[string]int64{}}
		h.metered[i.Name] = m
	}
	now := h.clock.Now()
	if !i.DeletionTimestamp.IsZero() {
		now = i.DeletionTimestamp.Time // by the real clock
	}
	if now.Before(m.last) {
		now = m.last
	}
	found := map[string]has{}
	if i.Status.Delivered != nil && i.DeletionTimestamp.IsZero() {
		for _, p := range i.Status.Delivered.Decision.Placements {
			found[p.Cluster] = has{i.Status.Delivered.State.PlanID, p.Reserved.Cpu().Value(), now}
		}
	}
	for cluster, was := range m.has {
		if is := found[cluster]; is.plan == was.plan && is.cores == was.cores {
			found[cluster] = was
		}
	}
	m.end(now, func(cluster string) bool { return found[cluster] == m.has[cluster] })
	m.has, m.last = found, time.Time{}
	for _, p := range i.Status.Usage {
		for _, at := range []*metav1.Time{&p.From, p.To} {
			if at != nil && m.last.Before(at.Time) {
				m.last = at.Time
			}
		}
	}
}

// end adds up what the instance has had until a time, except on clusters where it stays as it is.
func (m *metered) end(now time.Time, stays func(cluster string) bool) {
	for cluster, had := range m.has {
		if !stays(cluster) && now.After(had.since) {
			m.sum[cluster] += had.cores * (now.Unix() - had.since.Unix())
		}
	}
}

// auditUsage checks that the usage of each instance, also of those that are gone, is what it has had, and that none of it
// is doubled.
func (h *history) auditUsage() {
	always := usage.Query{Window: usage.Window{From: historyStart.AddDate(-1, 0, 0), To: historyStart.AddDate(100, 0, 0)}}
	all, err := usage.Read(context.Background(), h.hub, historyNamespace, always)
	h.must(err)
	for _, m := range h.metered {
		m.end(h.clock.Now(), func(string) bool { return false })
	}
	for _, instance := range all {
		got, last := map[string]int64{}, map[string]time.Time{}
		slices.SortFunc(instance.Periods, func(a, b v1alpha1.UsagePeriod) int { return a.From.Compare(b.From.Time) })
		for _, p := range instance.Periods {
			if p.From.Time.Before(last[p.Cluster]) {
				h.Fatalf("%s has used %s twice: %+v", instance.Name, p.Cluster, instance.Periods)
			}
			if last[p.Cluster] = always.To; p.To != nil {
				last[p.Cluster] = p.To.Time
			}
			to := h.clock.Now().Unix()
			if p.To != nil {
				to = p.To.Unix()
			}
			got[p.Cluster] += p.Reserved.Cpu().Value() * (to - p.From.Unix())
		}
		if h.metered == nil {
			continue
		}
		maps.DeleteFunc(got, func(_ string, seconds int64) bool { return seconds == 0 })
		want := h.metered[instance.Name].sum
		maps.DeleteFunc(want, func(_ string, seconds int64) bool { return seconds == 0 })
		if !maps.Equal(got, want) {
			h.Fatalf("%s has used %v core seconds, and had %v: %+v", instance.Name, got, want, instance.Periods)
		}
		delete(h.metered, instance.Name)
	}
	for name, m := range h.metered {
		for cluster, seconds := range m.sum {
			if seconds != 0 {
				h.Fatalf("%s had %d core seconds on %s, and has no usage", name, seconds, cluster)
			}
		}
	}
}
