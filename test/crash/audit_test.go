//go:build faults

package crash

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// startAudit looks all the time whether anything is oversold, and reports the first
// time that it is. Calling what it returns ends that and tells how often it looked.
func (b *bed) startAudit(ctx context.Context) (stop func() int) {
	ctx, cancel := context.WithCancel(ctx)
	looks := make(chan int)
	go func() {
		ticks := time.NewTicker(250 * time.Millisecond)
		defer ticks.Stop()
		for n := 0; ; {
			select {
			case <-ctx.Done():
				looks <- n
				return
			case <-ticks.C:
			}
			err := b.each(func(_ string, m *member) error { return m.auditQuotas(ctx) })
			if err == nil {
				err = b.auditReservations(ctx)
			}
			if err != nil && ctx.Err() == nil {
				b.report(err)
				looks <- n
				return
			}
			n++
		}
	}()
	return func() int { cancel(); return <-looks }
}

// auditQuotas compares the quotas on a cluster with what it has.
func (m *member) auditQuotas(ctx context.Context) error {
	quotas, err := m.CoreV1().ResourceQuotas("").List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHub})
	if err != nil {
		return err
	}
	sold := corev1.ResourceList{}
	for _, quota := range quotas.Items {
		add(sold, corev1.ResourceList{
			corev1.ResourceCPU:    quota.Spec.Hard[corev1.ResourceLimitsCPU],
			corev1.ResourceMemory: quota.Spec.Hard[corev1.ResourceLimitsMemory],
		})
	}
	return m.oversold("quotas", sold)
}

// auditReservations does the same with what the statuses in the hub hold. A hub
// that is away has nothing to audit.
func (b *bed) auditReservations(ctx context.Context) error {
	hub, err := b.hub()
	if err != nil {
		return nil // between two lives
	}
	var instances v1alpha1.ServiceInstanceList
	if err := hub.List(ctx, &instances, client.InNamespace(namespace)); err != nil {
		return nil // between two lives
	}
	held := map[string]corev1.ResourceList{}
	for _, i := range instances.Items {
		for cluster, reserved := range reservations(&i.Status) {
			if held[cluster] == nil {
				held[cluster] = corev1.ResourceList{}
			}
			add(held[cluster], reserved)
		}
	}
	return b.each(func(cluster string, m *member) error { return m.oversold("reservations", held[cluster]) })
}

// reservations are, by cluster, the larger of what is delivered and what is being
// delivered.
func reservations(status *v1alpha1.ServiceInstanceStatus) map[string]corev1.ResourceList {
	held := map[string]corev1.ResourceList{}
	hold := func(decision *v1alpha1.Decision) {
		for _, p := range decision.Placements {
			if held[p.Cluster] == nil {
				held[p.Cluster] = corev1.ResourceList{}
			}
			for name, quantity := range p.Reserved {
				if before := held[p.Cluster][name]; quantity.Cmp(before) > 0 {
					held[p.Cluster][name] = quantity
				}
			}
		}
	}
	if status.Decision != nil {
		hold(status.Decision)
	}
	if status.Delivered != nil {
		hold(&status.Delivered.Decision)
	}
	return held
}

func (m *member) oversold(what string, sold corev1.ResourceList) error {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		has := m.allocatable[name]
		if total := sold[name]; total.Cmp(has) > 0 {
			return fmt.Errorf("oversold: %s of %s %s, of %s that there are", what, total.String(), name, has.String())
		}
	}
	return nil
}
