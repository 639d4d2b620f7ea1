package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// load is the result of many requests.
type load struct {
	latencies
	took time.Duration
	err  error // the first one
}

func (l *load) rate() float64 { return float64(len(l.latencies)) / l.took.Seconds() }

// closedLoop has so many clients each send one request after the other.
func closedLoop(ctx context.Context, clients int, length time.Duration, send func(context.Context) error) load {
	deadline := time.Now().Add(length)
	return collect(clients, func(client int, done func(time.Duration, error)) {
		for time.Now().Before(deadline) && ctx.Err() == nil {
			began := time.Now()
			err := send(ctx)
			done(time.Since(began), err)
			if err != nil {
				return
			}
		}
	})
}

// openLoop sends so many requests a second, whether or not those before have been
// answered; latency counts from the instant at which a request was due.
func openLoop(ctx context.Context, perSecond int, length time.Duration, send func(context.Context) error) load {
	gap := time.Second / time.Duration(perSecond)
	began := time.Now()
	return collect(int(length/gap), func(n int, done func(time.Duration, error)) {
		due := began.Add(time.Duration(n) * gap)
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := send(ctx)
		done(time.Since(due), err)
	})
}

// collect runs workers at the same time and gathers what they report.
func collect(workers int, work func(worker int, done func(time.Duration, error))) load {
	var all load
	var mu sync.Mutex
	var running sync.WaitGroup
	began := time.Now()
	for worker := range workers {
		running.Go(func() {
			work(worker, func(took time.Duration, err error) {
				mu.Lock()
				defer mu.Unlock()
				all.latencies = append(all.latencies, took)
				all.err = errors.Join(all.err, err)
			})
		})
	}
	running.Wait()
	all.took = time.Since(began)
	return all
}
