package reader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	resourcesv1 "github.com/sluice-dev/sluice/api/resources/v1"
	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/reader"
	"github.com/sluice-dev/sluice/placement/reader/readertest"
)

// following is an external reader of a test's server.
type following struct {
	*testing.T
	*reader.External
	changes atomic.Int32
}

// shortly is the period of the tests' readers.
const shortly = 200 * time.Millisecond

func follow(t *testing.T, spec v1alpha1.ExternalReader, token string) *following {
	t.Helper()
	f := &following{T: t}
	o := reader.ExternalOptions{ExternalReader: spec, Cluster: "eu", Period: shortly, Changed: func() { f.changes.Add(1) }}
	if token != "" {
		o.Token = func(context.Context) (string, error) { return token, nil }
	}
	f.External = reader.NewExternal(t.Context(), o)
	return f
}

// until waits for a reading of so many cores, or for a reason why there is none, with words.
func (f *following) until(cores int64, reason, words string) reader.Reading {
	f.Helper()
	var reading reader.Reading
	f.eventually(fmt.Sprintf("%d cores, or %s: %s", cores, reason, words), func() bool {
		var err error
		reading, err = f.Read(f.Context())
		if unknown := (*reader.UnknownError)(nil); errors.As(err, &unknown) {
			return unknown.Reason == reason && strings.Contains(unknown.Message, words)
		}
		return reason == "" && reading.Allocatable.Cpu().Value() == cores
	})
	return reading
}

// eventually waits until something holds, for at most a minute.
func (f *following) eventually(what string, holds func() bool) {
	f.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !holds(); {
		select {
		case <-deadline:
			reading, err := f.Read(f.Context())
			f.Fatalf("%s: not within a minute; the reading is %+v, %v", what, reading, err)
		case <-tick.C:
		}
	}
}

func TestAnExternalReaderFollowsItsServer(t *testing.T) {
	for _, protocol := range []v1alpha1.ReaderProtocol{v1alpha1.ReaderProtocolV1, v1alpha1.ReaderProtocolPaper} {
		t.Run(string(protocol), func(t *testing.T) {
			server := readertest.Start(t)
			server.Answer(&resourcesv1.ReadResponse{
				Resources: map[string]string{"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2"}, Used: map[string]string{"cpu": "500m"},
				StorageClasses: []string{"slow", "fast"}, Architectures: []string{"arm64"}, OperatingSystems: []string{"linux"},
			})
			f := follow(t, server.Spec(protocol), "")
			f.Wait(t.Context())
			r := f.until(8, "", "")
			if r.Foreign.Cpu().MilliValue() != 500 || !slices.Equal(r.StorageClasses, []string{"fast", "slow"}) || !slices.Equal(r.Architectures, []string{"arm64"}) || !strings.Contains(r.Source, string(protocol)) {
				t.Errorf("the reading is %+v", r)
			}
			server.Has("cpu", "4")
			f.until(4, "", "")
			reads, changes := server.Reads("eu"), f.changes.Load()
			f.eventually("it is polled", func() bool { return server.Reads("eu") >= reads+3 })
			if f.changes.Load() != changes {
				t.Error("what is read again and is the same counts as a change")
			}
			f.Close(true)
			f.eventually("the server is told", func() bool { return len(server.Forgotten()) > 0 })
			if gone := server.Forgotten(); !slices.Equal(gone, []string{"eu"}) {
				t.Errorf("forgotten are %q", gone)
			}
		})
	}
}

// holed is an answer of a cluster with 8 cores, and nodes with an amount of a resource free, by their counts.
func holed(name, free string, counts ...int32) *resourcesv1.ReadResponse {
	holes := &resourcesv1.Holes{Free: map[string]string{name: free}}
	for _, count := range counts {
		holes.Nodes = append(holes.Nodes, &resourcesv1.NodesFree{Count: count, Free: map[string]string{name: free}})
	}
	return &resourcesv1.ReadResponse{Resources: map[string]string{"cpu": "8"}, Holes: holes}
}

// Each of these answers makes the capacity unknown, and says why; a valid one ends that.
func TestAnAnswerThatCannotBeTrueIsNotBelieved(t *testing.T) {
	server := readertest.Start(t)
	server.Has("cpu", "8")
	f := follow(t, server.Spec(""), "")
	f.until(8, "", "")
	many := func(n int, name string) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("example.com/%s-%d", name, i)] = "1"
		}
		return all
	}
	for words, lie := range map[string]*resourcesv1.ReadResponse{
		`resources: cpu: "-1" is not between 0 and`:               {Resources: map[string]string{"cpu": "-1"}},
		`resources: cpu: "2000000000" is not between 0 and`:       {Resources: map[string]string{"cpu": "2000000000"}},
		`resources: memory: "9E" is not between 0 and`:            {Resources: map[string]string{"memory": "9E"}},
		`resources: memory: "plenty" is no quantity`:              {Resources: map[string]string{"memory": "plenty"}},
		`holes.free: cpu: "-1" is not between 0 and`:              holed("cpu", "-1"),
		`holes.free: "memory": is not among the resources`:        holed("memory", "1"),
		`holes.free: "pods": is not among the resources`:          {Resources: map[string]string{"pods": "1"}, Holes: &resourcesv1.Holes{Free: map[string]string{"pods": "1"}}},
		`holes.nodes: 9, and at most 8 are allowed`:               holed("cpu", "1", slices.Repeat([]int32{1}, 9)...),
		`holes.nodes[1].count: 0 is not between 1 and`:            holed("cpu", "1", 1, 0),
		`holes.free: 9 resources, and at most 8 are allowed`:      {Resources: many(9, "device"), Holes: &resourcesv1.Holes{Free: many(9, "device")}},
		`used: cpu: "1e" is no quantity`:                          {Used: map[string]string{"cpu": "1e"}},
		`resources: "a b": name part`:                             {Resources: map[string]string{"a b": "1"}},
		`resources: 65, and at most 64 are allowed`:               {Resources: many(65, "device")},
		`storage_classes: "Fast": a lowercase RFC 1123 subdomain`: {StorageClasses: []string{"Fast"}},
		`architectures: 17, and at most 16 are allowed`:           {Architectures: slices.Repeat([]string{"amd64"}, 17)},
		`operating_systems: "x/y": a lowercase RFC 1123 label`:    {OperatingSystems: []string{"x/y"}},
	} {
		server.Answer(lie)
		f.until(0, reader.ReasonInvalid, words)
		server.Has("cpu", "8")
		f.until(8, "", "")
	}
	// An answer of more than 64 KiB is not read at all; the last one holds until it is too old.
	server.Answer(&resourcesv1.ReadResponse{StorageClasses: []string{strings.Repeat("x", 70<<10)}})
	f.until(0, reader.ReasonStale, "received message larger than max")
	server.Has("cpu", "8")
	f.until(8, "", "")
}

func TestASilentServerIsStale(t *testing.T) {
	server := readertest.Start(t)
	server.Hang(true)
	f := follow(t, server.Spec(""), "")
	f.until(0, reader.ReasonSyncing, "has not answered yet: read: rpc error: code = DeadlineExceeded")
	short, cancel := context.WithTimeout(t.Context(), shortly)
	defer cancel()
	f.Wait(short) // no longer than its context
	server.Has("cpu", "8")
	server.Hang(false)
	f.until(8, "", "")
	server.Hang(true)
	f.until(0, reader.ReasonStale, "has been silent since ")
	server.Hang(false)
	f.until(8, "", "")
}

// A flood is read no faster than ten times a second, and waits at its sender.
func TestAFloodWaitsAtItsSender(t *testing.T) {
	server := readertest.Start(t)
	server.Has("cpu", "8")
	f := follow(t, server.Spec(""), "")
	f.until(8, "", "")
	server.Flood(true)
	reads, start := server.Reads("eu"), time.Now()
	server.Has("cpu", "4")
	f.until(4, "", "")
	f.eventually("ten reads", func() bool { return server.Reads("eu") >= reads+10 })
	if took := time.Since(start); took < 800*time.Millisecond {
		t.Errorf("ten reads in %s", took)
	}
	// A notification of no bytes takes 5 bytes of the window; what a sender and a receiver buffer is on top.
	sent := server.Sent()
	if sent > 200_000 {
		t.Errorf("%d notifications were taken", sent)
	}
	f.until(4, "", "")
}

func TestOnlyTheServerOfTheSpecIsBelieved(t *testing.T) {
	server, other := readertest.Start(t), readertest.Start(t)
	server.Require("secret")
	spec := server.Spec("")
	follow(t, spec, "").until(0, reader.ReasonSyncing, "the token is not accepted")
	follow(t, spec, "guessed").until(0, reader.ReasonSyncing, "the token is not accepted")
	follow(t, spec, "secret").until(0, "", "")
	unknown := other.Spec("")
	unknown.CABundle = server.CABundle
	follow(t, unknown, "").until(0, reader.ReasonSyncing, "certificate")
	misnamed := server.Spec("")
	misnamed.ServerName = "reader.example"
	follow(t, misnamed, "secret").until(0, reader.ReasonSyncing, "wanted to match reader.example")
	broken := server.Spec("")
	broken.CABundle = []byte("no certificate")
	follow(t, broken, "secret").until(0, reader.ReasonSyncing, "caBundle: contains no PEM certificate")
	if other.Reads("eu") != 0 {
		t.Error("a server that is not known was asked")
	}
	if got := server.Reads("eu"); got == 0 {
		t.Error("nothing was read")
	}
}

// BenchmarkPush measures the time from a notification of one server for 1,000 clusters until the last of their
// readers has the new capacity.
func BenchmarkPush(b *testing.B) {
	const clusters = 1000
	server := readertest.Start(b)
	server.Has("cpu", "1")
	readers := make([]*reader.External, clusters)
	changed := make([]chan struct{}, clusters)
	for i := range readers {
		changed[i] = make(chan struct{}, 16)
		spec := server.Spec("")
		spec.PeriodSeconds = 600
		readers[i] = reader.NewExternal(b.Context(), reader.ExternalOptions{ExternalReader: spec, Cluster: fmt.Sprintf("c-%d", i), Changed: func() { changed[i] <- struct{}{} }})
	}
	for i := range readers {
		<-changed[i]
	}
	round := 1
	var all []time.Duration
	for b.Loop() {
		round++
		start := time.Now()
		server.Has("cpu", fmt.Sprint(round))
		for i, r := range readers {
			for {
				<-changed[i]
				if reading, err := r.Read(b.Context()); err == nil && reading.Allocatable.Cpu().Value() == int64(round) {
					break
				}
			}
			all = append(all, time.Since(start))
		}
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*99/100].Milliseconds()), "p99-ms")
}
