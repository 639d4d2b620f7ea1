//go:build faults

package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	// pauses is how often the leader is stopped.
	pauses = 30
	// ordered in each round, of which pauseRoom fit.
	ordered   = 12
	pauseRoom = 8
	pausePlan = "large" // a fifth of a core
)

// TestLeaderSleeps stops the leader of several replicas while orders come in through another
// one, after a random number of them, has that one take over, and lets the leader go on at
// a random instant. At none may the cluster carry more than it has room for, and
// every order is delivered, or waits because nothing fits.
func TestLeaderSleeps(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	b := newReplicas(ctx, t, 3, "1600m") // so that two are there while the one that slept starts anew
	seed := uint64(time.Now().UnixNano())
	chance := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	audit := b.startAudit(t)
	began, takeovers := time.Now(), 0
	var slept time.Duration
	for round := range pauses {
		pause, took, err := b.round(ctx, fmt.Sprintf("round-%02d", round), chance)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		slept += pause
		if took {
			takeovers++
		}
		if most := audit.most.Load(); most > pauseRoom {
			t.Fatalf("oversold: in round %d the cluster carries %d instances, and has room for %d", round, most, pauseRoom)
		}
	}
	t.Logf("%d pauses of %s on average, %d of which another replica took over in, %d orders, in %s; the auditor looked %d times and saw %d instances on the cluster at most, which has room for %d",
		pauses, (slept / pauses).Round(time.Millisecond), takeovers, pauses*ordered, time.Since(began).Round(time.Second), audit.looks.Load(), audit.most.Load(), pauseRoom)
}

// round is one pause. What the round orders is deleted at its end, and goes during the next.
func (b *replicas) round(ctx context.Context, id string, chance *rand.Rand) (pause time.Duration, took bool, err error) {
	leader, standby, err := b.roles(ctx, nil)
	if err != nil {
		return 0, false, err
	}
	before := 1 + chance.IntN(ordered)                          // orders until it is stopped
	after := time.Duration(chance.IntN(600)) * time.Millisecond // from the take-over until it goes on
	orders, ordering := errgroup.WithContext(ctx)
	orders.SetLimit(4)
	accepted := make(chan struct{}, ordered)
	go func() {
		for n := range ordered {
			orders.Go(func() error {
				i := &instance{id: fmt.Sprintf("%s-%02d", id, n), plan: pausePlan}
				_, err := standby.send(ordering, http.MethodPut, i.path(), async, i.body(i.plan, 0), http.StatusAccepted, http.StatusOK)
				accepted <- struct{}{}
				return err
			})
		}
	}()
	for range before {
		<-accepted
	}
	if err := leader.signal(syscall.SIGSTOP); err != nil {
		return 0, false, err
	}
	stopped := time.Now()
	next, _, err := b.roles(ctx, leader)
	if err == nil {
		sleep(ctx, after)
	}
	if err := leader.signal(syscall.SIGCONT); err != nil {
		return 0, false, err
	}
	pause, took = time.Since(stopped), next != nil && next != leader
	if err != nil {
		return pause, took, err
	}
	if err := b.settle(ordering, id); err != nil {
		return pause, took, err
	}
	if err := orders.Wait(); err != nil {
		return pause, took, err
	}
	return pause, took, b.takeBack(ctx, id, standby)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// settle waits until every order of a round is dealt with, or one of them is refused.
func (b *replicas) settle(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return until(ctx, func(ctx context.Context) error {
		all, err := b.instances(ctx)
		if err != nil {
			return err
		}
		for n := range ordered {
			id := fmt.Sprintf("%s-%02d", id, n)
			switch i := all[v1alpha1.InstanceName(platformName, id)]; {
			case i == nil:
				return fmt.Errorf("%s is not ordered yet", id)
			case i.Status.Delivered == nil && !isParked(i):
				return fmt.Errorf("%s is neither delivered nor waits: %+v", id, i.Status.Operation)
			}
		}
		return nil
	})
}

// takeBack deletes what a round has ordered.
func (b *replicas) takeBack(ctx context.Context, id string, through *replica) error {
	var deletions errgroup.Group
	deletions.SetLimit(8)
	for n := range ordered {
		deletions.Go(func() error {
			i := &instance{id: fmt.Sprintf("%s-%02d", id, n), plan: pausePlan}
			_, err := through.send(ctx, http.MethodDelete, i.path(), i.query(), nil, http.StatusAccepted, http.StatusOK, http.StatusGone)
			return err
		})
	}
	return deletions.Wait()
}

// audit counts the looks at the quotas on a cluster, and the most instances in one of them.
type audit struct{ looks, most atomic.Int64 }

// startAudit adds up, again and again, the quotas that stand on the cluster, in instances.
func (b *replicas) startAudit(t *testing.T) *audit {
	a := &audit{}
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			quotas, err := b.CoreV1().ResourceQuotas("").List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHub})
			if err == nil {
				var sum resource.Quantity
				for _, q := range quotas.Items {
					sum.Add(q.Spec.Hard[corev1.ResourceLimitsCPU])
				}
				a.looks.Add(1)
				if carried := (sum.MilliValue() + 199) / 200; carried > a.most.Load() {
					a.most.Store(carried)
				}
			}
			sleep(ctx, 50*time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel()
		looking.Wait()
	})
	return a
}
