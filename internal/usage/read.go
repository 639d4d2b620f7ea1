package usage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
)

// Window is the time from From to To, exclusive.
type Window struct{ From, To time.Time }

// Month returns the calendar month of a time, in UTC.
func Month(of time.Time) Window {
	from := time.Date(of.UTC().Year(), of.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	return Window{from, from.AddDate(0, 1, 0)}
}

// ParseMonth returns the part before now of a month as YYYY-MM; of the present month, if the text is empty. A month that
// has not begun is refused.
func ParseMonth(text string, now time.Time) (Window, error) {
	month := Month(now)
	if text != "" {
		from, err := time.Parse("2006-01", text)
		if err != nil {
			return Window{}, fmt.Errorf("month %q: want YYYY-MM, for instance %s", text, now.UTC().Format("2006-01"))
		}
		month = Month(from)
	}
	if now.Before(month.From) {
		return Window{}, fmt.Errorf("month %q: has not begun", text)
	}
	if now.Before(month.To) {
		month.To = now.UTC().Truncate(time.Second)
	}
	return month, nil
}

// Metered is an instance, and its periods of usage.
type Metered struct {
	v1alpha1.EventSubject
	UID     types.UID
	Periods []v1alpha1.UsagePeriod
}

// Read returns the instances of a namespace of whose usage a query selects something, also those that are gone. The
// reader must be live. What happens meanwhile may be missing, but nothing is lost or doubled that happened before.
func Read(ctx context.Context, hub client.Reader, namespace string, q Query) ([]Metered, error) {
	var all []Metered
	known := map[types.UID]int{}
	add := func(uid types.UID, subject v1alpha1.EventSubject, periods []v1alpha1.UsagePeriod) {
		n, found := known[uid]
		if !found {
			if periods = q.only(&subject, periods); len(periods) == 0 {
				return
			}
			n, known[uid] = len(all), len(all)
			all = append(all, Metered{EventSubject: subject, UID: uid})
		}
		all[n].Periods = v1alpha1.MergeUsage(periods, all[n].Periods)
	}
	// Periods go from instances to journals. Read in this order, none is missed; one in both counts as the instance
	// has it.
	err := pages.Each(ctx, hub, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		i := o.(*v1alpha1.ServiceInstance)
		add(v1alpha1.UIDOf(i), i.Subject(), Of(i))
		return nil
	}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	err = pages.Each(ctx, hub, &v1alpha1.JournalList{}, func(o client.Object) error {
		uid, _, _ := strings.Cut(o.GetName(), v1alpha1.JournalPage)
		add(types.UID(uid), o.(*v1alpha1.Journal).Spec.EventSubject, o.(*v1alpha1.Journal).Spec.Usage)
		return nil
	}, client.InNamespace(namespace))
	return all, err
}

// only returns the periods of an instance of which the query selects something.
func (q Query) only(of *v1alpha1.EventSubject, periods []v1alpha1.UsagePeriod) []v1alpha1.UsagePeriod {
	return slices.DeleteFunc(slices.Clone(periods), func(p v1alpha1.UsagePeriod) bool { return !q.has(of, &p) || q.seconds(&p) == 0 })
}

// seconds returns how many seconds of a period are in the window. One that goes on ends with it.
func (w Window) seconds(p *v1alpha1.UsagePeriod) int64 {
	from, to := w.clip(p)
	return max(0, to.Unix()-from.Unix())
}

// clip returns when a period begins and ends in the window.
func (w Window) clip(p *v1alpha1.UsagePeriod) (from, to time.Time) {
	from, to = p.From.UTC(), w.To
	if from.Before(w.From) {
		from = w.From
	}
	if p.To != nil && p.To.Time.Before(to) {
		to = p.To.UTC()
	}
	return from, to
}
