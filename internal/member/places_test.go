package member_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/internal/member"
)

var errSilent = fmt.Errorf("create namespace: %w", context.DeadlineExceeded)

// enters fails the test unless there is a place, or there is none.
func enters(t *testing.T, p *member.Places, cluster, name string, want bool) func(error) {
	t.Helper()
	leave, err := p.Enter(cluster, name)
	var busy *member.BusyError
	if (err == nil) != want || err != nil && (!errors.As(err, &busy) || busy.Cluster != cluster) {
		t.Fatalf("%s on %s: %v, want a place: %v", name, cluster, err, want)
	}
	return leave
}

func TestPlacesAreBoundedByClusterAndWakeWhoWaits(t *testing.T) {
	var woken []string
	p := &member.Places{Most: 2, Wake: func(name string) { woken = append(woken, name) }}
	first := enters(t, p, "a", "1", true)
	enters(t, p, "a", "2", true)
	for range 2 { // who asks again waits once
		enters(t, p, "a", "3", false)
		enters(t, p, "a", "4", false)
	}
	enters(t, p, "b", "5", true)(nil)
	first(nil)
	if fmt.Sprint(woken) != "[3]" {
		t.Errorf("one place was given back, woken are %v", woken)
	}
	enters(t, p, "a", "3", true)(nil)
	if fmt.Sprint(woken) != "[3 4]" {
		t.Errorf("woken are %v", woken)
	}
}

// A cluster that hangs gets fewer and fewer calls, until one ends in time.
func TestAClusterThatTimesOutTakesLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := make(chan string, 10)
		p := &member.Places{Most: 4, Wake: func(name string) { woken <- name }}
		wave := func() (n int) {
			var inside []func(error)
			for {
				leave, err := p.Enter("a", "x")
				if err != nil {
					break
				}
				inside = append(inside, leave)
			}
			for _, leave := range inside {
				leave(errSilent)
			}
			return len(inside)
		}
		if n := wave(); n != 4 {
			t.Errorf("%d at a time at first, want 4", n)
		}
		for len(woken) > 0 {
			<-woken
		}
		enters(t, p, "a", "later", false)
		start := time.Now()
		for range 2 { // x waited too
			<-woken
			if len(woken) == 0 {
				break
			}
		}
		for pause := time.Since(start); ; pause = time.Since(start) {
			leave, err := p.Enter("a", "later")
			if err == nil {
				t.Logf("tried again after %s", pause)
				enters(t, p, "a", "beside", false)
				leave(nil) // it is well again
				break
			}
			<-woken
		}
		enters(t, p, "a", "1", true)
		enters(t, p, "a", "2", true)
		enters(t, p, "a", "3", false)
	})
}

// A place is given to the next caller if the woken one does not come.
func TestAPlaceGoesToTheNextWhenNobodyComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := make(chan string, 10)
		p := &member.Places{Most: 1, Wake: func(name string) { woken <- name }}
		leave := enters(t, p, "a", "1", true)
		for _, name := range []string{"2", "3", "4"} {
			enters(t, p, "a", name, false)
		}
		leave(nil)
		enters(t, p, "a", "3", true)(nil) // it came by itself
		for _, want := range []string{"2", "4"} {
			if got := <-woken; got != want {
				t.Errorf("%s is woken, want %s", got, want)
			}
		}
		time.Sleep(time.Minute)
		if len(woken) > 0 {
			t.Errorf("%s is woken, and waits for nothing", <-woken)
		}
	})
}

func TestNoPlacesAreAlwaysFree(t *testing.T) {
	var p *member.Places
	enters(t, p, "a", "1", true)(errSilent)
}
