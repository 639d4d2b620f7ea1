//go:build browser || e2e

// Package chromium drives Chromium, Debian's or any that is installed, in tests.
package chromium

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long steps may take together.
const patience = time.Minute

// Window is a browser of its own, with one tab.
type Window struct {
	testing.TB
	tab context.Context
}

// Open opens a browser until the test ends. Whatever its pages complain of is an error of the test, except for answers
// that refuse something.
func Open(t testing.TB, options ...chromedp.ExecAllocatorOption) Window {
	t.Helper()
	options = append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1200, 1000)), options...)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError && !strings.Contains(e.Entry.Text, "status of 4") {
				t.Errorf("the page complains: %s", e.Entry.Text)
			}
		case *runtime.EventExceptionThrown:
			t.Errorf("the script fails: %s", e.ExceptionDetails.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return Window{t, ctx}
}

// Command sends one command of the protocol.
func Command[P, R any](what cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, what, params)
		return err
	})
}

// Do takes steps, within a minute.
func (w Window) Do(steps ...chromedp.Action[chromedp.Void]) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.tab, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		w.Fatalf("%v; shown is:\n%s", err, w.shown())
	}
}

// shown returns the address and the text of the page, as far as they can be read.
func (w Window) shown() string {
	ctx, cancel := context.WithTimeout(w.tab, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// Read returns the value of an action, within a minute.
func Read[T any](w Window, action chromedp.Action[T]) T {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.tab, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		w.Fatalf("%v; shown is:\n%s", err, w.shown())
	}
	return value
}

// Look makes the browser prefer a colour scheme, and its screen so wide.
func Look(scheme string, width int64) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(
		Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		Command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 1000, DeviceScaleFactor: 1, Mobile: width < 500}),
	)
}

// Picture writes what the window shows into a file of the folder $SLUICE_SCREENSHOTS; without it, nothing.
func (w Window) Picture(name string) {
	w.Helper()
	folder := os.Getenv("SLUICE_SCREENSHOTS")
	if folder == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, name), Read(w, chromedp.CaptureScreenshot()), 0o644); err != nil {
		w.Fatal(err)
	}
}
