package placement

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// A supposition gives the decision that the real change would give.
func TestASuppositionDecidesAsTheChangeItselfWould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := drawFleet(t)
		if len(fleet) == 0 {
			return
		}
		inventory := stock(fleet)
		if held := drawRequest(t, nil); held.ID != "" {
			_, _ = inventory.Place(held) // so that something is reserved, where it fits
		}
		r := drawRequest(t, fleet)
		which := fleet[rapid.IntRange(0, len(fleet)-1).Draw(t, "which")]
		state := rapid.SampledFrom([]string{"lost", "cordoned", "back"}).Draw(t, "state")

		before := inventory.Snapshot()
		untouched := Explain(r, before)
		supposed, err := before.Suppose(Supposition{which.Name, state})
		if err != nil {
			t.Fatal(err)
		}
		got := Explain(r, supposed)
		if !reflect.DeepEqual(Explain(r, before), untouched) {
			t.Fatal("the snapshot itself has changed")
		}

		changed := *which
		switch state {
		case "lost":
			changed.Ready, changed.Unready = false, "supposed to be lost"
		case "cordoned":
			changed.Cordoned = true
		case "back":
			changed.Ready, changed.Cordoned = true, false
		}
		inventory.UpsertCluster(&changed)
		if want := Explain(r, inventory.Snapshot()); !reflect.DeepEqual(got, want) {
			t.Fatalf("supposed %+v\nand so  %+v", got, want)
		}
	})
}

func TestWhatCannotBeSupposedIsSaid(t *testing.T) {
	for _, text := range []string{"", "cluster eu", "cluster eu is gone", "eu is lost", "cluster eu is lost today"} {
		if _, err := ParseSupposition(text); err == nil {
			t.Errorf("%q is understood", text)
		}
	}
	got, err := ParseSupposition("cluster eu is lost")
	if err != nil || got != (Supposition{"eu", "lost"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := stock([]*Cluster{{Name: "eu"}}).Snapshot().Suppose(Supposition{"us", "lost"}); err == nil {
		t.Error("a cluster that is not there is lost")
	}
}
