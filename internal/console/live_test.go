package console

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// TestLiveBeforeTheStart: a browser is asked to come back while the hub cannot be read, and not to log in.
func TestLiveBeforeTheStart(t *testing.T) {
	c := newConsole(t)
	operator := c.as(access.Caller{Role: access.Operator})
	in, err := cache.New(c.config, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{c.namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	c.tokens.Hub = in // it is not started
	if got := c.send(operator, Root+"live", nil); got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("with a session: %d, %v", got.StatusCode, got.Header)
	}
	if got := c.send(c.as(access.Caller{}), Root+"live", nil); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without one: %d", got.StatusCode)
	}
}

// TestLiveParts: a live page has the same parts whatever there is, so that each can come and go. The links to the other
// pages of a list are in one.
func TestLiveParts(t *testing.T) {
	c := newConsole(t)
	operator, shop, acme := c.as(access.Caller{Role: access.Operator}), c.as(access.Caller{Role: access.Platform, Name: "shop"}), c.as(access.Caller{Role: access.Provider, Name: "acme"})
	parts := func(browser *http.Client, path string) (names string) {
		t.Helper()
		got := c.send(browser, Root+path, nil)
		if !got.isLive() {
			t.Errorf("%s is answered %d, and is not live", path, got.StatusCode)
		}
		_ = nodes(got.body, func(n *html.Node) {
			if name := attributeOf(n, "data-part"); name != "" {
				names += name + " "
			}
		})
		return names
	}
	browsers, before := map[string]*http.Client{"": operator, "instances": operator, "peerings": operator, "mine": shop, "supply": acme}, map[string]string{}
	for path, browser := range browsers {
		before[path] = parts(browser, path)
	}
	c.seed()
	bare := instanceOf("shop", "bare", "large")
	c.create(bare)
	c.create(cluster("bare", "", "", "8", "32Gi"))
	for path := range before {
		c.console.looks.until, c.console.fleets.until, c.console.lists.until = time.Time{}, time.Time{}, time.Time{}
		if after := parts(browsers[path], path); after == "" || after != before[path] {
			t.Errorf("%s has the parts %s, and had %s without anything", path, after, before[path])
		}
	}
	for full, path := range map[string]string{"instances/" + v1alpha1.InstanceName("cf-eu", "orders-db"): "instances/" + bare.Name, "clusters/eu-north-2": "clusters/bare"} {
		if is, without := parts(operator, full), parts(operator, path); is != without {
			t.Errorf("%s has the parts %s, and %s has %s", full, is, path, without)
		}
	}

	for range pageSize + 1 {
		c.console.lists.value = append(c.console.lists.value, &instanceRow{Platform: "shop"})
	}
	for path, browser := range map[string]*http.Client{"instances": operator, "mine": shop} {
		c.console.lists.until = time.Now().Add(time.Hour)
		isInPart := false
		_ = nodes(c.send(browser, Root+path, nil).body, func(n *html.Node) {
			for within := range n.Ancestors() {
				isInPart = isInPart || attributeOf(n, "class") == "pager" && attributeOf(within, "data-part") == "instances"
			}
		})
		if !isInPart {
			t.Errorf("of %s, the links to other pages are in no part", path)
		}
	}
}

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
