package placement

import "sync"

// scratch is memory that an evaluation works in, and that the next one can have. Half of
// what a decision would otherwise leave to the garbage collector is this; the collector's
// work is what the slowest decisions wait for.
type scratch struct {
	sets       []set
	candidates []candidate
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// take cuts n zero values off a buffer; one that is too short is replaced by another twice
// as long, what was cut off before stays valid.
func take[T any](buffer *[]T, n int) []T {
	if cap(*buffer)-len(*buffer) < n {
		*buffer = make([]T, 0, max(2*cap(*buffer), n, 64))
	}
	at := len(*buffer)
	*buffer = (*buffer)[:at+n]
	cut := (*buffer)[at : at+n : at+n]
	clear(cut)
	return cut
}

// release gives the evaluation's memory to the next one. Nothing of the evaluation may be
// used afterwards.
func (e *evaluation) release() {
	e.scratch.sets, e.scratch.candidates = e.scratch.sets[:0], e.scratch.candidates[:0]
	scratches.Put(e.scratch)
	e.scratch = nil
}
