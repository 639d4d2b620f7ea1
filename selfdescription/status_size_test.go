package selfdescription

import (
	"context"
	"math/rand/v2"
	"testing"
)

// TestAStatusListThatHardlyCompressesIsRead: its token is longer than that of any other credential may be.
func TestAStatusListThatHardlyCompressesIsRead(t *testing.T) {
	w := newWorld(t)
	c := w.listed(t, PurposeRevocation, false)
	list, dice := NewStatusList(MaxStatusList), rand.New(rand.NewPCG(1, 2))
	for i := range list.bits {
		list.bits[i] = byte(dice.Uint32())
	}
	for set, want := range map[bool]State{false: Verified, true: Revoked} {
		if err := list.Set(7, set); err != nil {
			t.Fatal(err)
		}
		w.publishList(t, provider, PurposeRevocation, list)
		token := w.lists[listURL]
		if len(token) <= MaxCredential || len(token) > MaxStatusListToken || !IsStatusList(token) {
			t.Errorf("%d bytes, a status list: %t", len(token), IsStatusList(token))
		}
		if _, report := w.verifier().Credential(context.Background(), c.Compact); report.State != want {
			t.Errorf("bit %t: want %s:\n%s", set, want, &report)
		}
	}
}
