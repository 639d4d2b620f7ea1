package console

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// TestLive: a browser hears of a change of the instance that it shows within a second, of others' changes it does not,
// and its stream ends with the server.
func TestLive(t *testing.T) {
	c := newConsole(t)
	mine, others := instanceOf("shop", "db", "large"), instanceOf("cf-eu", "db", "large")
	c.create(mine)
	c.create(others)
	in, err := cache.New(c.config, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{c.namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- in.Start(ctx) }()
	for _, o := range []client.Object{&v1alpha1.ServiceInstance{}, &v1alpha1.ServiceBinding{}, &v1alpha1.MemberCluster{}} {
		if _, err := in.GetInformer(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	go func() { ended <- c.changes.Follow(ctx, in) }()
	if !in.WaitForCacheSync(ctx) {
		t.Fatal("the cache does not start")
	}
	c.console.Hub = in // as sluice serve does

	shop := c.as(access.Caller{Role: access.Platform, Name: "shop"})
	if got := c.send(shop, Root+"live?instance="+others.Name, nil); got.StatusCode != http.StatusNotFound {
		t.Errorf("an instance of others is answered %d", got.StatusCode)
	}
	stream, err := shop.Get(c.server.URL + Root + "live?instance=" + mine.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	events := make(chan time.Time, 100)
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "event: change") {
				events <- time.Now()
			}
		}
	}()
	next := func(what string) time.Time {
		t.Helper()
		select {
		case at, open := <-events:
			if !open {
				t.Fatalf("the stream ended before %s", what)
			}
			return at
		case <-time.After(20 * time.Second):
			t.Fatalf("no event of %s", what)
		}
		return time.Time{}
	}
	next("the start")
	change := func(i *v1alpha1.ServiceInstance) time.Time {
		t.Helper()
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
				return err
			}
			i.Annotations = map[string]string{"changed": time.Now().String()}
			return c.Update(t.Context(), i)
		})
		if err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	// What the cache read at its start is announced as well, so the instance is changed until only that is heard of.
	changed := change(mine)
	for at := next("a change"); at.Before(changed); at = next("a change") {
		t.Log("an earlier change")
	}
	change(others)
	changed = change(mine)
	if took := next("another change").Sub(changed); took > liveSettled/2 {
		t.Errorf("a change is heard of after %s", took)
	}
	// The first page is made for everybody who looks at the same moment; who looks because of a change sees it.
	operator := c.as(access.Caller{Role: access.Operator})
	c.send(operator, Root, nil) // the first time, the cache begins to read
	c.console.looks.until, c.console.fleets.until = time.Time{}, time.Time{}
	c.send(operator, Root, nil)
	mine.Status.Conditions[0] = condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonFailed, "the disk is full", 0)
	failed := time.Now()
	if err := c.Status().Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	for at := next("a failure"); at.Before(failed.Add(livePause)); at = next("a failure") {
		t.Log("an event of an earlier change")
	}
	if text := words(c.send(operator, Root, nil).body); !strings.Contains(text, "the disk is full") {
		t.Errorf("after the event, the first page is %s", text)
	}
	stop()
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for range events { // until the stream ends
	}
}
