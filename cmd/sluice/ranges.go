package main

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// ranges is the value of a flag with address ranges (CIDR), separated by commas or given one after the other.
type ranges []netip.Prefix

var _ pflag.SliceValue = (*ranges)(nil)

// Set adds address ranges; an empty text has none.
func (r *ranges) Set(text string) error {
	if text == "" {
		return nil
	}
	return r.add(strings.Split(text, ","))
}

// Append adds an address range.
func (r *ranges) Append(text string) error { return r.add([]string{text}) }

// Replace sets the address ranges.
func (r *ranges) Replace(texts []string) error {
	*r = nil
	return r.add(texts)
}

func (r *ranges) add(texts []string) error {
	more, err := guarded.ParseAddresses(texts)
	if err != nil {
		return errors.New("want address ranges (CIDR), for instance 10.0.0.0/8")
	}
	*r = append(*r, more...)
	return nil
}

// GetSlice returns the address ranges as texts.
func (r *ranges) GetSlice() (texts []string) {
	for _, prefix := range *r {
		texts = append(texts, prefix.String())
	}
	return texts
}

// String returns the address ranges in brackets; empty if there are none.
func (r *ranges) String() string {
	if len(*r) == 0 {
		return ""
	}
	return "[" + strings.Join(r.GetSlice(), ",") + "]"
}

// Type returns the name of the value in the help.
func (r *ranges) Type() string { return "ranges" }

// bindJoinAddresses binds the flag with the addresses of clusters that others have given.
func bindJoinAddresses(flags *pflag.FlagSet, to *ranges) {
	flags.Var(to, "join-allow-addresses", "private address ranges (CIDR) in which clusters may be reached that providers add, or that join by invitation (default: public addresses only)")
}
