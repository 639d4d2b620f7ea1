// Package overlay computes the address at which one cluster reaches something in another
// that Liqo has peered it with.
//
// Clusters may have the same address ranges. Each cluster therefore maps every range of a
// peer to a range of its own choice, of the same size: an address keeps its host bits and
// gets the other prefix (Liqo's Configuration: spec.remote.cidr is the range as the peer
// declares it, status.remote.cidr the range as this cluster sees it). An address of a peer
// thus has a different form in every cluster; it must be mapped with the ranges of the
// consumer's cluster.
//
// The package is pure: it reads nothing and waits for nothing. It computes where something
// is, not whether it exists.
package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ErrUnfinished reports that a cluster has not chosen its side of all ranges yet.
var ErrUnfinished = errors.New("not all ranges are mapped yet")

// Range is a prefix of a peer and the prefix to which a cluster maps it. Both are masked,
// of one family and of the same length.
type Range struct {
	From, To netip.Prefix
}

// Ranges are the ranges of one peer, of one kind. If they overlap, the first one that
// contains an address counts, as in Liqo.
type Ranges []Range

// New pairs the ranges of a peer with the mapped ones, in their order. It returns
// ErrUnfinished if mapped ranges are missing or empty, and another error if a range is not
// a prefix or differs from its pair in family or length.
func New(from, to []string) (Ranges, error) {
	if len(from) != len(to) || slices.Contains(to, "") {
		return nil, fmt.Errorf("map %q to %q: %w", from, to, ErrUnfinished)
	}
	ranges := make(Ranges, 0, len(from))
	for i := range from {
		one, err := newRange(from[i], to[i])
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, one)
	}
	return ranges, nil
}

func newRange(from, to string) (Range, error) {
	refuse := func(why any) (Range, error) { return Range{}, fmt.Errorf("map %s to %s: %v", from, to, why) }
	f, err := netip.ParsePrefix(from)
	if err != nil {
		return refuse(err)
	}
	t, err := netip.ParsePrefix(to)
	if err != nil {
		return refuse(err)
	}
	switch {
	case f.Addr().Is4In6() || t.Addr().Is4In6():
		return refuse("an IPv4 range is written as such")
	case f.Bits() != t.Bits() || f.Addr().BitLen() != t.Addr().BitLen():
		return refuse("they are not of the same size")
	}
	return Range{From: f.Masked(), To: t.Masked()}, nil
}

// Map returns the address to which an address of the peer is mapped. It fails for an
// address outside all ranges, which cannot be reached; the error names the ranges.
func (rs Ranges) Map(address netip.Addr) (netip.Addr, error) {
	address = address.Unmap()
	for i := range rs {
		if rs[i].From.Contains(address) {
			return rs[i].swap(address), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s is in none of the ranges %s", address, rs)
}

// Sees reports whether an address lies in a range to which something of the peer is mapped.
func (rs Ranges) Sees(address netip.Addr) bool {
	address = address.Unmap()
	return slices.ContainsFunc(rs, func(r Range) bool { return r.To.Contains(address) })
}

func (rs Ranges) String() string {
	if len(rs) == 0 {
		return "(there are none)"
	}
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.From.String()
	}
	return strings.Join(texts, ", ")
}

// swap replaces the prefix From of an address by To.
func (r Range) swap(address netip.Addr) netip.Addr {
	bits := r.To.Bits()
	if address.Is4() {
		bits += 96 // As16 has 96 bits before an IPv4 address
	}
	host, mapped := address.As16(), r.To.Addr().As16()
	whole := bits / 8
	if rest := bits % 8; rest > 0 {
		mask := byte(0xff) << (8 - rest)
		mapped[whole] |= host[whole] &^ mask
		whole++
	}
	copy(mapped[whole:], host[whole:])
	if address.Is4() {
		return netip.AddrFrom4([4]byte(mapped[12:]))
	}
	return netip.AddrFrom16(mapped)
}
