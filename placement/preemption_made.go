package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Room that is being made: while it stands, its victims leave, and others are kept out of it.

// wouldPlace reports whether a request is placed on the preemption's clusters once the victims
// hold nothing there.
func (s *Snapshot) wouldPlace(r Request, p *v1alpha1.Preemption) bool {
	decision, err := s.placeIn(r, p)
	return err == nil && !slices.ContainsFunc(p.Clusters(), func(cluster string) bool { return !decision.Uses(cluster) })
}

// placeIn places a request as if a preemption's victims had left. Which nodes they free is not known.
func (s *Snapshot) placeIn(r Request, p *v1alpha1.Preemption) (Decision, error) {
	given := map[string]Resources{}
	for _, room := range p.Rooms() {
		given[room.Cluster] = Resources{}
		for _, v := range room.Victims {
			given[room.Cluster].Add(s.Reserved(v.Instance, room.Cluster), 1)
		}
	}
	return Place(r.withoutPods(), s.with(given))
}

// Stands reports whether a preemption is still valid: its victims are of a lower class, and the
// request is placed when they have left.
func (s *Snapshot) Stands(r Request, p *v1alpha1.Preemption) bool {
	class := s.policies.class(r.Class)
	if class == nil || class.Name != p.PriorityClass || class.Value != p.Priority || class.Preempts == v1alpha1.PreemptsNever {
		return false
	}
	for _, v := range p.AllVictims() {
		if class := s.policies.class(v.PriorityClass); class == nil || class.Value >= p.Priority {
			return false
		}
	}
	return s.wouldPlace(r, p)
}

// Preemption returns the room that is being made for an instance; nil if there is none.
func (s *Snapshot) Preemption(instance string) *v1alpha1.Preemption { return s.preemptions[instance] }

// Preempting returns the instance for which another one has to leave a cluster, and the room
// that is being made for it; nil if there is none. Of several it is the first by name.
func (s *Snapshot) Preempting(victim, cluster string) (instance string, found *v1alpha1.Preemption) {
	for id, p := range s.preemptions {
		if found != nil && instance < id {
			continue
		}
		if room := p.On(cluster); room != nil && room.Victim(victim) != nil {
			instance, found = id, p
		}
	}
	return instance, found
}

// spokenFor rejects clusters on which room is being made for instances of the same or a higher
// priority. A request stays on such a cluster if it asks for no more there than is held: what others
// leave is not for it either.
func spokenFor(r Request, s *Snapshot, held Resources) filter {
	by := s.spokenFor(r)
	return filter{reason: ReasonSpokenFor, entry: held.covers(r.on(1)), passing: true,
		rejects: func(p *page, among set) set {
			var there set
			for cluster := range by {
				if row, found := p.find(cluster); found {
					there.add(row)
				}
			}
			return among.and(there)
		},
		message: func(p *page, row int) string {
			id := by[p.clusters[row].Name]
			return "room is being made there for " + of(id, s.preemptions[id])
		},
	}
}

// spokenFor returns the clusters on which room is being made for instances of the same or a higher priority than a request,
// and for each of them the instance, the first by name.
func (s *Snapshot) spokenFor(r Request) map[string]string {
	if len(s.preemptions) == 0 || r.atBest {
		return nil
	}
	class, by := s.policies.class(r.Class), map[string]string{}
	for id, p := range s.preemptions {
		if id == r.ID || class != nil && p.Priority < class.Value {
			continue
		}
		for _, cluster := range p.Clusters() {
			if by[cluster] == "" || id < by[cluster] {
				by[cluster] = id
			}
		}
	}
	return by
}

// of names an instance for which room is made, with its priority class if it has one.
func of(instance string, p *v1alpha1.Preemption) string {
	if p.PriorityClass == "" {
		return instance
	}
	return instance + " of priority class " + p.PriorityClass
}

// describeRoom describes the victims on one of the preemption's clusters in words.
func describeRoom(p *v1alpha1.Preemption, room *v1alpha1.Room) string {
	var b strings.Builder
	fmt.Fprintf(&b, "room for class %s (%d) without", p.PriorityClass, p.Priority)
	for i, v := range room.Victims {
		held := ResourcesOf(v.Reserved)
		var parts []string
		for _, name := range held.names() {
			parts = append(parts, show(name, held[name])+" "+string(name))
		}
		separator := ","
		if i == 0 {
			separator = ""
		}
		fmt.Fprintf(&b, "%s %s of class %s (%d, %s)", separator, v.Instance, v.PriorityClass, v.Priority, strings.Join(parts, ", "))
	}
	return b.String()
}

// displacing returns the verdicts on a request that fits nowhere, with the room that would be made for it.
func displacing(verdicts []Verdict, r Request, s *Snapshot) []Verdict {
	p := Preempt(r, s)
	if p == nil {
		return verdicts
	}
	decision, _ := s.placeIn(r, p)
	for i := range verdicts {
		v := &verdicts[i]
		room := p.On(v.Cluster)
		if room == nil || v.Component != "" && !decision.uses(v.Cluster, v.Component) {
			continue
		}
		v.Reason, v.Message = ReasonDisplaces, room.Message+"; "+describeRoom(p, room)
	}
	return verdicts
}
