package member_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/internal/member"
)

// TestGuardedClusters: the address that a provider gave is reached where the operator allows it, and not elsewhere,
// whatever asks for it; the operator's own addresses are reached anyway.
func TestGuardedClusters(t *testing.T) {
	server := newAPIServer(t)
	f := newFixture(t)
	theirs := f.add(t, "theirs", f.sealed(t, "theirs", server.kubeconfig(t, "sluice")))
	theirs.Spec.Guarded = true
	ours := f.add(t, "ours", f.sealed(t, "ours", server.kubeconfig(t, "sluice")))
	if _, err := f.Open(t.Context(), theirs); !errors.As(err, new(*guarded.AddressError)) || !strings.Contains(err.Error(), "--join-allow-addresses") {
		t.Errorf("a provider's address: %v", err)
	}
	if server.asked.Load() != 0 {
		t.Error("its server was asked")
	}
	if _, err := f.Open(t.Context(), ours); err != nil {
		t.Errorf("the operator's address: %v", err)
	}
	f.AllowAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	opened, err := f.Open(t.Context(), theirs)
	if err != nil || opened.UID() != "uid-1" {
		t.Fatalf("an address that is allowed: %+v, %v", opened, err)
	}
	if hash, err := member.KeyHash(t.Context(), opened.Config); err != nil || !strings.HasPrefix(hash, "sha256-") {
		t.Errorf("the key of an address that is allowed: %q, %v", hash, err)
	}
	opened.Config.Dial = guarded.NewDialer(guarded.Options{}).DialContext
	if hash, err := member.KeyHash(t.Context(), opened.Config); !errors.As(err, new(*guarded.AddressError)) {
		t.Errorf("the key of a provider's address: %q, %v", hash, err)
	}
}
