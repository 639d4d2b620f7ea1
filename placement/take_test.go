package placement

import (
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// What is there already is reserved as it is, without asking for room. It is refused if a cluster is not known, or if
// another instance has its host or one of its ports.
func TestTake(t *testing.T) {
	for name, row := range map[string]struct {
		taken Holding
		says  string
	}{
		"its own":                    {taken: Holding{Held: map[string]Resources{"eu": cores(99)}, Hosts: []string{"shop"}, Ports: map[string]Ports{"eu": {"mqtt": 1}}}},
		"another port":               {taken: Holding{Held: map[string]Resources{"eu": cores(1)}, Ports: map[string]Ports{"eu": {"mqtt": 3}}}},
		"the same port elsewhere":    {taken: Holding{Held: map[string]Resources{"us": cores(1)}, Ports: map[string]Ports{"us": {"mqtt": 2}}}},
		"a port of another instance": {taken: Holding{Held: map[string]Resources{"eu": cores(1)}, Ports: map[string]Ports{"eu": {"amqp": 2}}}, says: "port 2 of eu is of si-other now"},
		"a host of another instance": {taken: Holding{Held: map[string]Resources{"us": cores(1)}, Hosts: []string{"blog"}}, says: "host blog is of si-other now"},
		"a cluster that is not there": {
			taken: Holding{Held: map[string]Resources{"eu": cores(1), "gone": cores(1)}}, says: "cluster gone is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := stock([]*Cluster{{Name: "eu", Ready: true, Allocatable: cores(2)}, {Name: "us", Ready: true, Allocatable: cores(2)}})
			inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"eu": cores(1)}, Hosts: []string{"shop"}, Ports: map[string]Ports{"eu": {"mqtt": 1}}})
			inventory.Reserve(Holding{Instance: "si-other", Held: map[string]Resources{"eu": cores(1)}, Hosts: []string{"blog"}, Ports: map[string]Ports{"eu": {"mqtt": 2}}})
			row.taken.Instance = "si"
			err, said := inventory.Take(row.taken), ""
			if err != nil {
				said = err.Error()
			}
			if said != row.says {
				t.Fatalf("got %v, want %q", err, row.says)
			}
			if want := row.taken.Held; err == nil && !inventory.Holds("si", want) || err != nil && !inventory.Holds("si", map[string]Resources{"eu": cores(1)}) {
				t.Errorf("it holds %v", inventory.holding("si").Held)
			}
		})
	}
}

// What is taken waits for no cluster any more.
func TestTakeEndsTheWaiting(t *testing.T) {
	inventory := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(2)}})
	if _, err := inventory.Place(Request{ID: "si", Resources: cores(3)}); err == nil || inventory.Waiting() != 1 {
		t.Fatalf("%d wait: %v", inventory.Waiting(), err)
	}
	if err := inventory.Take(Holding{Instance: "si", Held: map[string]Resources{"eu": cores(3)}}); err != nil || inventory.Waiting() != 0 || len(inventory.Parked()) != 0 {
		t.Errorf("%d wait: %v", inventory.Waiting(), err)
	}
}

// Who waits for another instance to be somewhere is woken when that one is taken.
func TestTakeWakesWhoFollows(t *testing.T) {
	us := inRegion("us", "us", 4)
	us.Cordoned = true
	inventory, woken := watched(inRegion("eu", "eu", 4), us)
	consumer := Consumer{Platform: "cf", Space: "s"}
	r := Request{ID: "si-2", Consumer: consumer, Affinity: []v1alpha1.Affinity{{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion}}}
	inventory.Reserve(Holding{Instance: "si-0", Consumer: consumer, Held: map[string]Resources{"us": cores(1)}})
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed where nobody is")
	}
	woken()
	if err := inventory.Take(Holding{Instance: "si-1", Consumer: consumer, Held: map[string]Resources{"eu": cores(1)}}); err != nil || woken()["si-2"] != 1 {
		t.Errorf("it slept on: %v", err)
	}
}
