package controller

import (
	"slices"
	"sync"
	"time"
)

// moves limits how many instances move at the same time. begin takes a place, which is kept
// until end. Instances without a place wait in a queue.
type moves struct {
	most int
	// wake is called with an instance whose turn has come; may be nil.
	wake func(instance string)

	mu       sync.Mutex
	inFlight map[string]bool
	// queue of the instances that wait for their turn, each once.
	queue []string
}

func (m *moves) setWake(wake func(instance string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wake = wake
}

// turnPatience is how long an instance waits for its turn before it asks again by itself.
const turnPatience = time.Minute

// begin takes a place for an instance, which keeps it until end. False means that all places
// are taken; the instance is woken when its turn comes.
func (m *moves) begin(instance string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight == nil {
		m.inFlight = map[string]bool{}
	}
	waits := slices.Index(m.queue, instance)
	if !m.inFlight[instance] && len(m.inFlight) >= m.most {
		if waits < 0 {
			m.queue = append(m.queue, instance)
		}
		return false
	}
	if waits >= 0 {
		m.queue = slices.Delete(m.queue, waits, waits+1)
	}
	m.inFlight[instance] = true
	return true
}

// end gives the place of an instance, or its turn, to the next in the queue, which keeps its
// turn until it begins or ends itself. It does nothing for an instance that has not begun.
func (m *moves) end(instance string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits := slices.Index(m.queue, instance)
	if waits >= 0 {
		m.queue = slices.Delete(m.queue, waits, waits+1)
	}
	if waits < 0 && !m.inFlight[instance] {
		return
	}
	delete(m.inFlight, instance)
	if m.wake == nil {
		return
	}
	for _, next := range m.queue[:min(len(m.queue), max(m.most-len(m.inFlight), 0))] {
		m.wake(next)
	}
}
