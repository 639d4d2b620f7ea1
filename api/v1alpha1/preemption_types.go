package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Preemption is capacity that other instances give up: those of lower priority, which leave in any case, or those that a
// policy lets move (MakeRoom), which leave for the clusters that they then fit on.
type Preemption struct {
	Room `json:",inline"`
	// PriorityClass of the instance that needs the room, and its value; empty and 0 if it has none.
	PriorityClass string `json:"priorityClass"`
	Priority      int32  `json:"priority"`
	// Elsewhere is the room on other clusters, if the instance needs it on several.
	// +listType=map
	// +listMapKey=cluster
	Elsewhere []Room `json:"elsewhere,omitempty"`
}

// Room is capacity on a cluster that other instances give up.
type Room struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Message with the numbers, for instance "needs 4 cpu, 1 free of 16 after 15 reserved and 0
	// used by others".
	Message string `json:"message"`
	// Victims are the instances that leave, the lowest priority first, or in the order in which they can move.
	// +listType=map
	// +listMapKey=instance
	Victims []Victim `json:"victims"`
}

// Victim is an instance that is displaced or moved.
type Victim struct {
	// Instance is the name of the ServiceInstance.
	Instance string `json:"instance"`
	// PriorityClass of the instance, and its value; empty and 0 if it has none.
	PriorityClass string `json:"priorityClass"`
	Priority      int32  `json:"priority"`
	// Reserved is the capacity that the victim gives up on the cluster.
	Reserved corev1.ResourceList `json:"reserved"`
	// To are the clusters that it comes to instead. While they do not take it, it stays. Empty if
	// it is displaced, and leaves in any case.
	To []string `json:"to,omitempty"`
}

// Victim returns the victim of that name; nil if it is none.
func (r *Room) Victim(instance string) *Victim {
	for i := range r.Victims {
		if r.Victims[i].Instance == instance {
			return &r.Victims[i]
		}
	}
	return nil
}

// Rooms returns the room on each of the clusters.
func (p *Preemption) Rooms() []Room { return append([]Room{p.Room}, p.Elsewhere...) }

// On returns the room on a cluster; nil if none is made there.
func (p *Preemption) On(cluster string) *Room {
	if p.Cluster == cluster {
		return &p.Room
	}
	if i := slices.IndexFunc(p.Elsewhere, func(r Room) bool { return r.Cluster == cluster }); i >= 0 {
		return &p.Elsewhere[i]
	}
	return nil
}

// Clusters returns the names of the clusters.
func (p *Preemption) Clusters() (names []string) {
	for _, room := range p.Rooms() {
		names = append(names, room.Cluster)
	}
	return names
}

// AllVictims returns the victims on all clusters.
func (p *Preemption) AllVictims() (all []Victim) {
	for _, room := range p.Rooms() {
		all = append(all, room.Victims...)
	}
	return all
}

// Moves reports whether the victims only move (MakeRoom), instead of being displaced.
func (p *Preemption) Moves() bool {
	return slices.ContainsFunc(p.Victims, func(v Victim) bool { return len(v.To) > 0 })
}
