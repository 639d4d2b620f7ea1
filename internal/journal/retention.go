package journal

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
)

// Retention removes what is kept of resources that are gone: the events of those that ended longer ago than Age, and of
// the others the oldest, if there are more than Most; and the usage and the contracts of those that ended longer ago than UsageAge. A
// journal with none of them is removed. The pages of a journal, with older usage and contracts, stay as long as the journal
// needs its own. It runs on the leader.
type Retention struct {
	Client    client.Client
	Live      client.Reader
	Namespace string
	// Age is how long events are kept after their resource was removed; zero means for ever.
	Age time.Duration
	// Most is the number of removed resources whose events are kept; zero means any number.
	Most int
	// UsageAge is how long usage and contracts are kept after its instance was removed; zero means for ever.
	UsageAge time.Duration
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

// Run removes journals, or their events, once, and returns how many. It is idempotent.
func (r *Retention) Run(ctx context.Context) (removed int, err error) {
	var withEvents []old
	var others []old
	ends := map[string]*metav1.MicroTime{} // of resources, by the names of their journals; nil if they are not removed
	err = pages.Each(ctx, r.Live, &v1alpha1.JournalList{}, func(o client.Object) error {
		j := o.(*v1alpha1.Journal)
		if _, isPage := pageOf(j.Name); !isPage {
			ends[j.Name] = j.Spec.EndedAt
		}
		if j.Spec.EndedAt == nil {
			return nil
		}
		ended := old{name: j.Name, at: j.Spec.EndedAt.Time, isNeeded: len(j.Spec.Usage)+len(j.Spec.Contracts) > 0 && !r.isOlder(j.Spec.EndedAt.Time, r.UsageAge)}
		if len(j.Spec.Events) > 0 {
			withEvents = append(withEvents, ended)
		} else if !ended.isNeeded {
			others = append(others, ended)
		}
		return nil
	}, client.InNamespace(r.Namespace))
	if err != nil {
		return 0, err
	}
	slices.SortFunc(withEvents, func(a, b old) int { return a.at.Compare(b.at) })
	for i, j := range withEvents {
		tooMany := r.Most > 0 && len(withEvents)-i > r.Most
		if !tooMany && !r.isOlder(j.at, r.Age) {
			break
		}
		others = append(others, j)
	}
	for _, j := range others {
		if r.isPageInUse(j.name, ends) {
			continue
		}
		isRemoved, err := r.remove(ctx, j)
		if err != nil {
			return removed, err
		}
		if isRemoved {
			removed++
		}
	}
	return removed, nil
}

// pageOf returns the name of the journal of which another is a page.
func pageOf(name string) (of string, isPage bool) {
	of, _, isPage = strings.Cut(name, ".") // JournalPage and JournalContracts
	return of, isPage
}

// isPageInUse reports whether a journal is a page of another whose resource lives, or ended no longer than UsageAge ago.
func (r *Retention) isPageInUse(name string, ends map[string]*metav1.MicroTime) bool {
	of, isPage := pageOf(name)
	end, isThere := ends[of]
	return isPage && isThere && (end == nil || !r.isOlder(end.Time, r.UsageAge))
}

// old is the journal of a resource that was removed.
type old struct {
	name string
	at   time.Time
	// isNeeded reports that its usage or its contracts are kept.
	isNeeded bool
}

// remove removes a journal, or only its events if the rest is needed, and reports whether there was anything to
// remove.
func (r *Retention) remove(ctx context.Context, j old) (bool, error) {
	kept := &v1alpha1.Journal{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: j.name}}
	if !j.isNeeded {
		return true, client.IgnoreNotFound(r.Client.Delete(ctx, kept))
	}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(kept), kept)
	if err != nil || len(kept.Spec.Events) == 0 {
		return false, client.IgnoreNotFound(err)
	}
	kept.Spec.Events = []v1alpha1.Event{}
	return true, r.Client.Update(ctx, kept)
}

// isOlder reports whether a time was longer ago than an age, if there is one.
func (r *Retention) isOlder(at time.Time, age time.Duration) bool {
	return age > 0 && r.now().Sub(at) > age
}

func (r *Retention) now() time.Time {
	if r.Clock == nil {
		return time.Now()
	}
	return r.Clock.Now()
}
