package placement

import (
	"iter"
	"math/bits"
)

// pageRows is the number of clusters on a page, and of bits in a set.
const pageRows = 256

// set is a set of rows of a page.
type set [pageRows / 64]uint64

// rowsBelow returns the set of the first n rows.
func rowsBelow(n int) set {
	var s set
	for row := range n {
		s.add(row)
	}
	return s
}

func (s *set) add(row int)      { s[row/64] |= 1 << (row % 64) }
func (s *set) remove(row int)   { s[row/64] &^= 1 << (row % 64) }
func (s *set) has(row int) bool { return s[row/64]&(1<<(row%64)) != 0 }

// put adds or removes a row.
func (s *set) put(row int, is bool) {
	if is {
		s.add(row)
	} else {
		s.remove(row)
	}
}

func (s set) and(t set) set {
	for i := range s {
		s[i] &= t[i]
	}
	return s
}

func (s set) or(t set) set {
	for i := range s {
		s[i] |= t[i]
	}
	return s
}

func (s set) without(t set) set {
	for i := range s {
		s[i] &^= t[i]
	}
	return s
}

// opened returns the set after a row was inserted, which is not in it: all later rows are one further on. The last
// row must not be in the set.
func (s set) opened(row int) set {
	word, below := row/64, uint64(1)<<(row%64)-1
	for i := len(s) - 1; i > word; i-- {
		s[i] = s[i]<<1 | s[i-1]>>63
	}
	s[word] = s[word]&below | s[word]&^below<<1
	return s
}

// closed returns the set after a row was deleted, which was not in it: all later rows are one back.
func (s set) closed(row int) set {
	word, below := row/64, uint64(1)<<(row%64)-1
	s[word] = s[word]&below | s[word]>>1&^below
	for i := word + 1; i < len(s); i++ {
		s[i-1] |= s[i] << 63
		s[i] >>= 1
	}
	return s
}

func (s set) len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// first returns the first row of a set that has one.
func (s set) first() int {
	for row := range s.rows() {
		return row
	}
	return pageRows
}

// where returns the rows of the set for which something holds.
func (s set) where(holds func(row int) bool) (some set) {
	for row := range s.rows() {
		if holds(row) {
			some.add(row)
		}
	}
	return some
}

// rows yields the rows of the set in order.
func (s set) rows() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}
