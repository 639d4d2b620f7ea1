package controller

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

func TestAKeyIsPublishedUntilTheLastCredentialSignedWithItEnds(t *testing.T) {
	keys, err := seal.Open(t.TempDir() + "/keyset.json")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakePassiveClock(start)
	r := &keyring{Options: Options{
		DID: "did:web:broker.example", Seal: keys, Clock: clock, RotateEvery: 90 * 24 * time.Hour,
		Measure: Measure{Probes: &Probes{Window: 24 * time.Hour}},
	}}
	id := &v1alpha1.Identity{Spec: v1alpha1.IdentitySpec{DID: r.DID}}
	turn := func(at time.Duration, asked string, changes bool, published int) {
		t.Helper()
		clock.SetTime(start.Add(at))
		id.Annotations = map[string]string{AnnotationRotate: asked}
		changed, err := r.turn(id)
		if err != nil {
			t.Fatal(err)
		}
		if changed != changes || len(id.Spec.Keys) != published {
			t.Errorf("after %s: changed is %t, %d keys are published; want %t, %d", at, changed, len(id.Spec.Keys), changes, published)
		}
	}
	const day = 24 * time.Hour
	turn(0, "", true, 1)
	turn(89*day, "", false, 1)
	turn(90*day, "", true, 2) // due
	first, second := id.Spec.Keys[1].ID, id.Spec.Keys[0].ID
	turn(90*day+time.Millisecond, "now", true, 3) // asked for in the same second
	if third := id.Spec.Keys[0].ID; third == second || second == first {
		t.Errorf("keys have one name: %s, %s, %s", first, second, third)
	}
	turn(91*day, "now", false, 3)
	turn(92*day+time.Second, "now", true, 1) // two windows later, measurements of the old keys have ended
	r.DID = "did:web:other.example"
	turn(93*day, "now", true, 1) // under another name the old keys say nothing
}
