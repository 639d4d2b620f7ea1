//go:build browser

package console

import (
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/test/browser/chromium"
)

// These tests run in Debian's Chromium. SLUICE_AXE is the file axe.min.js of axe-core, SLUICE_SCREENSHOTS a folder for
// the pictures of docs/console.md; without it, none are taken.

// window opens a browser in which a caller has logged in.
func (c *consoleOf) window(caller access.Caller) chromium.Window {
	c.Helper()
	w := chromium.Open(c)
	if caller == (access.Caller{}) {
		return w
	}
	token, err := c.tokens.Issue(c.Context(), caller, time.Hour)
	if err != nil {
		c.Fatal(err)
	}
	w.Do(chromium.Command(log.Enable, cdp.Empty{}), chromium.Command(network.SetCookie, network.SetCookieParams{Name: "sluice", Value: token, URL: c.server.URL}))
	return w
}

// TestInABrowser: on every page, in the light and the dark look, on a wide screen and on a phone, axe finds nothing, and
// nothing is wider than the screen.
func TestInABrowser(t *testing.T) {
	axe, err := os.ReadFile(os.Getenv("SLUICE_AXE"))
	if err != nil {
		t.Fatalf("SLUICE_AXE: %v; `make browser` sets it", err)
	}
	c := newConsole(t)
	c.seed()
	orders, mine := v1alpha1.InstanceName("cf-eu", "orders-db"), v1alpha1.InstanceName("shop", "inventory")
	for _, of := range []struct {
		caller access.Caller
		paths  []string
	}{
		{access.Caller{Role: access.Operator}, []string{"", "fleet", "clusters/eu-north-1", "clusters/eu-central-1", "clusters/eu-central-1/drain", "clusters/eu-central-1/loss", "instances", "instances/" + orders, "instances/" + orders + "/clusters", "peerings", "consumers", "policies", "expiring", "journal", "no-such-page", "login", "enter"}},
		{access.Caller{Role: access.Platform, Name: "shop"}, []string{"market", "order?service=postgresql&plan=large", "mine", "mine/" + mine, "mine/" + mine + "/delete", "usage", "policies", "policies/edit"}},
		{access.Caller{Role: access.Provider, Name: "acme"}, []string{"supply", "supply/add", "clusters/eu-central-1", "offers", "offers/edit", "offers/edit?offer=acme-vms", "credentials", "policies", "policies/edit", "policies/edit?policy=acme.terms"}},
	} {
		w := c.window(of.caller)
		for _, path := range of.paths {
			for _, is := range []struct {
				scheme string
				width  int64
			}{{"light", 1200}, {"dark", 360}, {"light", 360}, {"dark", 1200}} {
				w.Do(chromium.Look(is.scheme, is.width), chromedp.Navigate(c.server.URL+Root+path), chromedp.WaitVisible("main"))
				if wide := chromium.Read(w, chromedp.Evaluate[int64]("document.documentElement.scrollWidth")); wide > is.width {
					t.Errorf("%s is %d wide on a screen of %d", path, wide, is.width)
				}
				found := chromium.Read(w, chromedp.Evaluate[[]violation](string(axe)+"; axe.run().then(r => r.violations)", chromedp.EvalAwaitPromise))
				for _, v := range found {
					for _, n := range v.Nodes {
						t.Errorf("%s, %s, %d wide: %s: %s\n%s\n%s", path, is.scheme, is.width, v.ID, v.Help, n.HTML, n.FailureSummary)
					}
				}
			}
		}
	}
	w := c.window(access.Caller{Role: access.Provider, Name: "acme"})
	w.Do(chromium.Look("dark", 360), chromedp.Navigate(c.server.URL+Root+"policies/edit?policy=acme.terms"), chromedp.WaitVisible("#text"))
	for _, shown := range []string{"#refused", `section[role="status"] table`} { // first nobody is given, then somebody
		w.Do(chromedp.Click(`button[value="check"]`), chromedp.WaitVisible(shown))
		for _, v := range chromium.Read(w, chromedp.Evaluate[[]violation](string(axe)+"; axe.run().then(r => r.violations)", chromedp.EvalAwaitPromise)) {
			t.Errorf("a check: %s: %s: %+v", v.ID, v.Help, v.Nodes)
		}
		w.Do(chromedp.SendKeys("#organization", "friends"))
	}
	w = c.window(access.Caller{})
	w.Do(chromedp.Navigate(c.server.URL+Root+"login"), chromedp.WaitVisible("main"))
	spoilt := chromium.Read(w, chromedp.Evaluate[[]violation](string(axe)+`; document.documentElement.removeAttribute("lang"); axe.run().then(r => r.violations)`, chromedp.EvalAwaitPromise))
	if len(spoilt) != 1 || spoilt[0].ID != "html-has-lang" {
		t.Errorf("of a page without a language, axe finds %+v", spoilt)
	}
	c.pictures(orders)
}

// violation is something that axe has found.
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, FailureSummary string }
}

// pictures takes those of the docs, if they are wanted.
func (c *consoleOf) pictures(instance string) {
	w := c.window(access.Caller{Role: access.Operator})
	for path, picture := range map[string]struct{ name, scheme string }{"instances/" + instance: {"console-instance.png", "light"}, "fleet": {"console-fleet.png", "dark"}} {
		w.Do(chromium.Look(picture.scheme, 1200), chromedp.Navigate(c.server.URL+Root+path), chromedp.WaitVisible("main"))
		w.Picture(picture.name)
	}
}

// TestBuyingInABrowser: with the keyboard alone, somebody finds a plan, orders it, and sees it become ready without a
// reload.
func TestBuyingInABrowser(t *testing.T) {
	c := newConsole(t)
	c.selling()
	c.follow()
	w := c.window(access.Caller{Role: access.Platform, Name: "shop"})
	focused := func() string {
		return chromium.Read(w, chromedp.Evaluate[string](`(document.activeElement.name || document.activeElement.textContent).trim()`))
	}
	// reach goes on with the key Tab until something has the focus.
	reach := func(what string) {
		t.Helper()
		for range 60 {
			if focused() == what {
				return
			}
			w.Do(chromedp.KeyEvent(kb.Tab))
		}
		t.Fatalf("the keyboard does not reach %q", what)
	}
	w.Do(chromedp.Navigate(c.server.URL+Root), chromedp.WaitVisible(".offers"), chromedp.KeyEvent(kb.Tab))
	if first := focused(); first != "Skip to the content" {
		t.Errorf("first is %q", first)
	}
	reach("postgresql large")
	w.Do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#name"))
	reach("name")
	w.Do(chromedp.KeyEvent("db"))
	reach("parameter/location/latitude")
	w.Do(chromedp.KeyEvent("52.5"), chromedp.KeyEvent(kb.Enter))
	w.Do(chromedp.WaitVisible(".refused"))
	reach("parameter/location/longitude")
	w.Do(chromedp.KeyEvent("13.4"))
	reach("Order")
	w.Do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`//h1[contains(., "db")]`))
	chromium.Read(w, chromedp.Evaluate[bool]("window.kept = true"))

	i := &v1alpha1.ServiceInstance{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: v1alpha1.InstanceName("shop", "db")}, i); err != nil {
		t.Fatal(err)
	}
	if got := string(i.Spec.Desired.Raw()); got != `{"location":{"latitude":52.5,"longitude":13.4}}` {
		t.Errorf("ordered is %s", got)
	}
	done := instanceOf("shop", "db", "large", "eu-1")
	i.Status = done.Status
	i.Status.Delivered.State = i.Spec.Desired
	i.Status.ObservedGeneration = i.Generation
	if err := c.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	w.Do(chromedp.WaitVisible(`//h1//*[contains(., "Ready")]`), chromedp.WaitVisible(`//dd[contains(., "0.084 EUR an hour")]`))
	if !chromium.Read(w, chromedp.Evaluate[bool]("window.kept === true")) {
		t.Error("the page was loaded again")
	}
}

// TestReconnectingInABrowser: a page whose stream is refused opens it again, and then shows what has come meanwhile.
func TestReconnectingInABrowser(t *testing.T) {
	c := newConsole(t)
	c.selling()
	var isRefused atomic.Bool
	isRefused.Store(true)
	next := c.handler
	c.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isRefused.Load() && r.URL.Path == Root+"live" {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
	c.server.Close()
	c.start(false)
	w := c.window(access.Caller{Role: access.Platform, Name: "shop"})
	w.Do(chromedp.Navigate(c.server.URL+Root+"mine"), chromedp.WaitVisible(`//*[@id="live"][. = "not connected; trying again"]`))
	chromium.Read(w, chromedp.Evaluate[bool]("window.kept = true"))
	c.create(instanceOf("shop", "db", "large", "eu-1"))
	isRefused.Store(false)
	w.Do(chromedp.WaitVisible(`//*[@id="live"][. = "live"]`), chromedp.WaitVisible(`//th[contains(., "db")]`), chromedp.WaitVisible(`input[name="text"]`))
	if !chromium.Read(w, chromedp.Evaluate[bool]("window.kept === true")) {
		t.Error("the page was loaded again")
	}
}

// follow makes the console's pages live.
func (c *consoleOf) follow() {
	c.Helper()
	in, err := cache.New(c.config, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{c.namespace: {}}})
	if err != nil {
		c.Fatal(err)
	}
	go func() { _ = in.Start(c.Context()) }()
	go func() { _ = c.changes.Follow(c.Context(), in) }()
	if !in.WaitForCacheSync(c.Context()) {
		c.Fatal("the cache does not start")
	}
}

// TestEnteringInABrowser: the link of the command console opens a session, and the ticket is not kept in the address.
func TestEnteringInABrowser(t *testing.T) {
	c := newConsole(t)
	w := c.window(access.Caller{Role: access.Operator})
	w.Do(chromium.Command(network.ClearBrowserCookies, cdp.Empty{}), chromedp.Navigate(fmt.Sprintf("%s%senter#ticket=%s", c.server.URL, Root, c.ticket())),
		chromedp.WaitVisible(`//h1[contains(., "Nothing needs attention")]`))
	if at := chromium.Read(w, chromedp.Location()); at != c.server.URL+Root {
		t.Errorf("the address is %s", at)
	}
	if known := chromium.Read(w, chromedp.Evaluate[string]("document.cookie")); known != "" {
		t.Errorf("a script reads the cookie %q", known)
	}
}
