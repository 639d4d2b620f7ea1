package journal

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
)

// Retention removes the journals of resources that are gone: those that ended longer ago than Age, and of
// the others the oldest, if there are more than Most. It runs on the leader.
type Retention struct {
	Client    client.Client
	Live      client.Reader
	Namespace string
	// Age is how long a journal is kept after its resource was removed; zero means for ever.
	Age time.Duration
	// Most is the number of journals of removed resources that are kept; zero means any number.
	Most int
	// Every is the time between two runs; zero means an hour.
	Every time.Duration
	// Clock; nil means the real one.
	Clock clock.PassiveClock
}

// Start removes journals until the context ends. A run that fails is logged, and tried again at the next.
func (r *Retention) Start(ctx context.Context) error {
	every := r.Every
	if every == 0 {
		every = time.Hour
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		removed, err := r.Run(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Old journals are not removed")
		}
		if removed > 0 {
			log.FromContext(ctx).Info("Removed old journals", "count", removed)
		}
	}, every)
	return nil
}

// Run removes journals once, and returns how many. It is idempotent.
func (r *Retention) Run(ctx context.Context) (removed int, err error) {
	var ended []v1alpha1.Journal // without events
	err = pages.Each(ctx, r.Live, &v1alpha1.JournalList{}, func(o client.Object) error {
		if j := o.(*v1alpha1.Journal); j.Spec.EndedAt != nil {
			ended = append(ended, v1alpha1.Journal{ObjectMeta: j.ObjectMeta, Spec: v1alpha1.JournalSpec{EndedAt: j.Spec.EndedAt}})
		}
		return nil
	}, client.InNamespace(r.Namespace))
	if err != nil {
		return 0, err
	}
	slices.SortFunc(ended, func(a, b v1alpha1.Journal) int { return a.Spec.EndedAt.Compare(b.Spec.EndedAt.Time) })
	for i := range ended {
		tooMany := r.Most > 0 && len(ended)-i > r.Most
		tooOld := r.Age > 0 && r.now().Sub(ended[i].Spec.EndedAt.Time) > r.Age
		if !tooMany && !tooOld {
			return removed, nil
		}
		if err := r.Client.Delete(ctx, &ended[i]); client.IgnoreNotFound(err) != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

func (r *Retention) now() time.Time {
	if r.Clock == nil {
		return time.Now()
	}
	return r.Clock.Now()
}
