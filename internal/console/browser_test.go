//go:build browser

package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// These tests run in Debian's Chromium. SLUICE_AXE is the file axe.min.js of axe-core, SLUICE_SCREENSHOTS a folder for
// the pictures of docs/console.md; without it, none are taken.

// window is a browser in which a caller has logged in.
type window struct {
	*consoleOf
	tab context.Context
}

// window opens a browser. Everything that a page complains of is an error of the test.
func (c *consoleOf) window(caller access.Caller) window {
	c.Helper()
	ctx, cancel := chromedp.NewExecAllocator(c.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1200, 1000))...)
	c.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	c.Cleanup(cancel)
	w := window{c, ctx}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError && !strings.Contains(e.Entry.Text, "status of 4") {
				c.Errorf("the page complains: %s", e.Entry.Text)
			}
		case *runtime.EventExceptionThrown:
			c.Errorf("the script fails: %s", e.ExceptionDetails.Text)
		}
	})
	if err != nil {
		c.Fatal(err)
	}
	if caller == (access.Caller{}) {
		return w
	}
	token, err := c.tokens.Issue(c.Context(), caller, time.Hour)
	if err != nil {
		c.Fatal(err)
	}
	w.do(command(log.Enable, cdp.Empty{}), command(network.SetCookie, network.SetCookieParams{Name: "sluice", Value: token, URL: c.server.URL}))
	return w
}

// command sends one command of the protocol.
func command[P, R any](what cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, what, params)
		return err
	})
}

func (w window) do(steps ...chromedp.Action[chromedp.Void]) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.tab, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		w.Fatal(err)
	}
}

// read returns the value of an action.
func read[T any](w window, action chromedp.Action[T]) T {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.tab, time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		w.Fatal(err)
	}
	return value
}

// look makes the browser prefer a colour scheme, and its screen so wide.
func look(scheme string, width int64) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 1000, DeviceScaleFactor: 1, Mobile: width < 500}),
	)
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
		{access.Caller{Role: access.Operator}, []string{"", "fleet", "clusters/eu-north-1", "clusters/eu-central-1", "instances", "instances/" + orders, "instances/" + orders + "/clusters", "policies", "expiring", "journal", "no-such-page", "login", "enter"}},
		{access.Caller{Role: access.Platform, Name: "shop"}, []string{"market", "order?service=postgresql&plan=large", "mine", "mine/" + mine, "mine/" + mine + "/delete", "usage"}},
		{access.Caller{Role: access.Provider, Name: "acme"}, []string{"supply", "clusters/eu-central-1", "credentials", "policies"}},
	} {
		w := c.window(of.caller)
		for _, path := range of.paths {
			for _, is := range []struct {
				scheme string
				width  int64
			}{{"light", 1200}, {"dark", 360}, {"light", 360}, {"dark", 1200}} {
				w.do(look(is.scheme, is.width), chromedp.Navigate(c.server.URL+Root+path), chromedp.WaitVisible("main"))
				if wide := read(w, chromedp.Evaluate[int64]("document.documentElement.scrollWidth")); wide > is.width {
					t.Errorf("%s is %d wide on a screen of %d", path, wide, is.width)
				}
				found := read(w, chromedp.Evaluate[[]violation](string(axe)+"; axe.run().then(r => r.violations)", chromedp.EvalAwaitPromise))
				for _, v := range found {
					for _, n := range v.Nodes {
						t.Errorf("%s, %s, %d wide: %s: %s\n%s\n%s", path, is.scheme, is.width, v.ID, v.Help, n.HTML, n.FailureSummary)
					}
				}
			}
		}
	}
	w := c.window(access.Caller{})
	w.do(chromedp.Navigate(c.server.URL+Root+"login"), chromedp.WaitVisible("main"))
	spoilt := read(w, chromedp.Evaluate[[]violation](string(axe)+`; document.documentElement.removeAttribute("lang"); axe.run().then(r => r.violations)`, chromedp.EvalAwaitPromise))
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

// pictures takes those of the docs.
func (c *consoleOf) pictures(instance string) {
	folder := os.Getenv("SLUICE_SCREENSHOTS")
	if folder == "" {
		return
	}
	w := c.window(access.Caller{Role: access.Operator})
	for path, picture := range map[string]struct{ name, scheme string }{"instances/" + instance: {"console-instance.png", "light"}, "fleet": {"console-fleet.png", "dark"}} {
		w.do(look(picture.scheme, 1200), chromedp.Navigate(c.server.URL+Root+path), chromedp.WaitVisible("main"))
		if err := os.WriteFile(filepath.Join(folder, picture.name), read(w, chromedp.CaptureScreenshot()), 0o644); err != nil {
			c.Fatal(err)
		}
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
		return read(w, chromedp.Evaluate[string](`(document.activeElement.name || document.activeElement.textContent).trim()`))
	}
	// reach goes on with the key Tab until something has the focus.
	reach := func(what string) {
		t.Helper()
		for range 60 {
			if focused() == what {
				return
			}
			w.do(chromedp.KeyEvent(kb.Tab))
		}
		t.Fatalf("the keyboard does not reach %q", what)
	}
	w.do(chromedp.Navigate(c.server.URL+Root), chromedp.WaitVisible(".offers"), chromedp.KeyEvent(kb.Tab))
	if first := focused(); first != "Skip to the content" {
		t.Errorf("first is %q", first)
	}
	reach("postgresql large")
	w.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#name"))
	reach("name")
	w.do(chromedp.KeyEvent("db"))
	reach("parameter/location/latitude")
	w.do(chromedp.KeyEvent("52.5"), chromedp.KeyEvent(kb.Enter))
	w.do(chromedp.WaitVisible(".refused"))
	reach("parameter/location/longitude")
	w.do(chromedp.KeyEvent("13.4"))
	reach("Order")
	w.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`//h1[contains(., "db")]`))
	read(w, chromedp.Evaluate[bool]("window.kept = true"))

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
	w.do(chromedp.WaitVisible(`//h1//*[contains(., "Ready")]`), chromedp.WaitVisible(`//dd[contains(., "0.084 EUR an hour")]`))
	if !read(w, chromedp.Evaluate[bool]("window.kept === true")) {
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
	w.do(command(network.ClearBrowserCookies, cdp.Empty{}), chromedp.Navigate(fmt.Sprintf("%s%senter#ticket=%s", c.server.URL, Root, c.ticket())),
		chromedp.WaitVisible(`//h1[contains(., "Nothing needs attention")]`))
	if at := read(w, chromedp.Location()); at != c.server.URL+Root {
		t.Errorf("the address is %s", at)
	}
	if known := read(w, chromedp.Evaluate[string]("document.cookie")); known != "" {
		t.Errorf("a script reads the cookie %q", known)
	}
}
