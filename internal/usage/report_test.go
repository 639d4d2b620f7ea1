package usage_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/usage"
)

// TestParseQuery: what cannot be meant is refused, so that nobody takes the answer for another.
func TestParseQuery(t *testing.T) {
	now := time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC)
	for text, wrong := range map[string]string{
		"": "", "month=2026-02&per=day&by=plan,instance": "", "month=2026-03": "",
		"month=2026-04": "has not begun", "month=March": "want YYYY-MM", "mnth=2026-02": "want some of month, per, by", "per=week": "none of month, day, hour",
		"by=plan,city": `by: "city" is none of platform, organization`, "by=cluster": "is none of", "by=plan&by=instance": "by: is given 2 times",
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		q, err := usage.ParseQuery(values, usage.ForConsumers, now)
		if wrong == "" && (err != nil || !q.From.Before(q.To) || now.Before(q.To)) || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %+v, %v", text, q, err)
		}
	}
	values := url.Values{"month": {"2026-02"}, "per": {"day"}, "by": {"plan,instance"}}
	q, err := usage.ParseQuery(values, usage.ForConsumers, now)
	if err != nil || q.Per != usage.PerDay || !slices.Equal(q.By, []usage.Dimension{usage.ByPlan, usage.ByInstance}) || q.To.Month() != time.March {
		t.Errorf("got %+v, %v", q, err)
	}
	if _, err := usage.ParseQuery(values, nil, now); err == nil || !strings.Contains(err.Error(), "want some of month, per") {
		t.Errorf("without a choice of dimensions: %v", err)
	}
	q.Most = 1
	read := []usage.Metered{{Periods: []v1alpha1.UsagePeriod{{From: metav1.NewTime(q.From)}}}}
	if _, err := usage.Sums(read, q); !errors.Is(err, usage.ErrTooMany) {
		t.Errorf("more sums than allowed: %v", err)
	}
}

// asked is a report that a caller has asked for, in its context.
type asked struct {
	sync.Once
	caller string
}

type askedKey struct{}

// slow is a hub that answers a report after another.
type slow struct {
	client.Reader
	order []string
	next  chan struct{}
}

func (s *slow) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	a := ctx.Value(askedKey{}).(*asked)
	a.Do(func() {
		s.order = append(s.order, a.caller)
		<-s.next
	})
	return nil
}

// TestReportsOfOneCallerWaitForOneAnother: and those of others come between.
func TestReportsOfOneCallerWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := &slow{next: make(chan struct{})}
		reports := usage.NewReports(hub, "ns")
		for _, caller := range []string{"greedy", "greedy", "greedy", "modest"} {
			go func() {
				ctx := context.WithValue(t.Context(), askedKey{}, &asked{caller: caller})
				if _, err := reports.Make(ctx, caller, usage.Query{Window: usage.Month(time.Now()), Per: usage.PerMonth}); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		for range 4 {
			hub.next <- struct{}{}
			synctest.Wait()
		}
		if want := []string{"greedy", "modest", "greedy", "greedy"}; !slices.Equal(hub.order, want) {
			t.Errorf("the order is %q, want %q", hub.order, want)
		}
	})
}
