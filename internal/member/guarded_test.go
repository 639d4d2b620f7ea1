package member_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
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
	joined := f.add(t, "joined", f.sealed(t, "joined", server.kubeconfig(t, "sluice")))
	joined.Spec.Liqo = &v1alpha1.LiqoCluster{Joined: &v1alpha1.JoinedPeering{}}
	if _, err := f.Open(t.Context(), joined); !errors.As(err, new(*guarded.AddressError)) || !strings.Contains(err.Error(), "--join-allow-addresses") {
		t.Errorf("the address of a cluster that has joined by invitation: %v", err)
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
	if _, err := f.Open(t.Context(), joined); err != nil {
		t.Errorf("an address of a joined cluster that is allowed: %v", err)
	}
	opened.Config.Dial = guarded.NewDialer(guarded.Options{}).DialContext
	if hash, err := member.KeyHash(t.Context(), opened.Config); !errors.As(err, new(*guarded.AddressError)) {
		t.Errorf("the key of a provider's address: %q, %v", hash, err)
	}
}
