package placement

import "sync"

// scratch is working memory of an evaluation, reused by the next one. It is half of the garbage
// that a decision would otherwise create, and garbage collection is what makes the slowest
// decisions slow.
type scratch struct {
	sets       []set
	candidates []candidate
	rowScores
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// take returns n zero values from a buffer. A buffer that is too short is replaced by a new one
// of twice the length; slices taken before stay valid.
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

// release returns the evaluation's memory for reuse. Nothing of the evaluation may be used
// afterwards.
func (e *evaluation) release() {
	e.scratch.sets, e.scratch.candidates = e.scratch.sets[:0], e.scratch.candidates[:0]
	scratches.Put(e.scratch)
	e.scratch = nil
}
