package placement

import (
	"fmt"
	"math"
)

// passedOver returns why a cluster that fits was not chosen: because others were preferred or,
// if nothing was chosen, because too few clusters fit.
func (e *evaluation) passedOver(at position, chosen []candidate) (Reason, string) {
	reason, why := e.preferredTo(at, chosen)
	return reason, e.request.Upstream.failures(at.cluster()).addTo(why)
}

// preferredTo returns why others were preferred.
func (e *evaluation) preferredTo(at position, chosen []candidate) (Reason, string) {
	reason := passedOverReason(chosen)
	if reason == ReasonFits {
		return reason, "fits"
	}
	score, last := e.scorer.score(at), chosen[len(chosen)-1]
	if e.thrift != nil && score > last.score {
		return reason, fmt.Sprintf("scores %d, and cheaper clusters are chosen, because the best choice costs more than the budget leaves", score)
	}
	if e.request.Spread != nil && !e.isOn(at) {
		return reason, e.notInSpread(at, score, chosen)
	}
	switch {
	case e.joint != "":
		return reason, fmt.Sprintf("scores %d, and is not part of %s", score, e.joint)
	case score < last.score:
		return reason, fmt.Sprintf("scores %d, the last one chosen %d", score, last.score)
	case score == last.score:
		return reason, e.tied(at, last)
	case e.request.Replicas > 0 && len(e.request.Current) == 0:
		why := fmt.Sprintf("scores %d, and has too little room for its share of the replicas", score)
		if e.cut {
			why += fmt.Sprintf(" in the best of the first %d choices", mostPartial)
		}
		return reason, why
	default:
		return reason, fmt.Sprintf("scores %d, and the instance stays where it is", score)
	}
}

// notInSpread returns why a cluster that fits is not part of a spread.
func (e *evaluation) notInSpread(at position, score int32, chosen []candidate) string {
	name, _ := e.groupOf(at)
	last, share := chosen[len(chosen)-1], 0
	for _, c := range chosen {
		if c.group == name {
			last, share = c, share+1
		}
	}
	has, besides := fmt.Sprintf("%s has its share of %d", name, share), ""
	switch s := e.request.Spread; {
	case s.Weight > 0 && share == 0 && score == last.score:
		return e.tied(at, last)
	case s.Weight > 0 && share == 0:
		return fmt.Sprintf("scores %d, the last one chosen %d", score, last.score)
	case share == 0 && e.fittingIn(name) < s.MinPerGroup:
		return fmt.Sprintf("scores %d; %d fits in %s, and a group takes at least %d", score, e.fittingIn(name), name, s.MinPerGroup)
	case share == 0:
		return fmt.Sprintf("scores %d, and %s is not one of the groups chosen", score, name)
	case s.Weight > 0:
		has, besides = fmt.Sprintf("%s has %d of the %d clusters", name, share, len(chosen)), ", and other groups are preferred"
	case share == s.MaxPerGroup:
		has = fmt.Sprintf("%s is full with %d", name, share)
	}
	if score == last.score {
		return e.tied(at, last) + "; " + has + besides
	}
	return fmt.Sprintf("scores %d; %s, the last of which scores %d%s", score, has, last.score, besides)
}

// fittingIn returns how many clusters of a group fit, at most as many as are asked for.
func (e *evaluation) fittingIn(group string) int {
	for _, ranked := range e.ranked {
		if len(ranked) > 0 && ranked[0].group == group {
			return len(ranked)
		}
	}
	return 0
}

// shareOf returns how many of the chosen clusters are in the group of one of them, if groups are preferred.
func (e *evaluation) shareOf(one candidate, chosen []candidate) string {
	if e.request.Spread == nil || e.request.Spread.Weight == 0 {
		return ""
	}
	share := 0
	for _, c := range chosen {
		if c.group == one.group {
			share++
		}
	}
	return fmt.Sprintf(", %s has %d of the %d clusters", one.group, share, len(chosen))
}

// tied returns why, of two clusters with equal scores, the other one was chosen (see better).
func (e *evaluation) tied(at position, with candidate) string {
	this, name := candidate{position: at}, with.cluster().Name
	e.breakTies(&this)
	ties := fmt.Sprintf("ties with %s at %d; ", name, with.score)
	switch {
	case e.isOn(with.position) && !e.request.Free:
		return ties + "the instance is there"
	case with.price < this.price && this.price == math.MaxInt64:
		return ties + name + " has a price in " + e.scorer.currency()
	case with.price < this.price:
		return ties + name + " is cheaper"
	case with.latency < this.latency && this.latency == math.MaxInt64:
		return ties + "the latency of " + name + " is known"
	case with.latency < this.latency:
		return ties + name + " is nearer"
	default:
		return ties + name + " was picked by lot"
	}
}

func passedOverReason(chosen []candidate) Reason {
	if len(chosen) == 0 {
		return ReasonFits
	}
	return ReasonOutranked
}
