package placement

// Proposal is a move that would improve the placement of an instance.
type Proposal struct {
	// Instance is the name of the ServiceInstance.
	Instance string
	// From are the clusters that it would leave, To those that would replace them.
	From, To []string
	// Score is the mean score of its current clusters, a preferred spread included, and Gain what the move adds.
	Score, Gain int32
	// Price of an hour before and after; nil if one of the clusters has no price.
	Price, NewPrice *Price
}

// Propose computes where an instance would be placed today, and what it would hold there. It returns nil if the instance
// would stay or gain less than the given number of points, or if its clusters no longer fit, which is not a question of
// gain.
func Propose(r Request, s *Snapshot, leastGain int32) (*Proposal, Holding) {
	e := newEvaluation(r, s)
	defer e.release()
	p := &Proposal{Instance: r.ID, Score: e.meanScore(e.current)}
	if len(e.lost) > 0 || p.Score > 100-leastGain {
		return nil, Holding{} // no score is above 100
	}
	e.judgeOthers()
	chosen, short := e.choose()
	if short != nil {
		return nil, Holding{}
	}
	now := map[string]bool{}
	holds := newHolding(r.ID)
	var after []candidate
	for _, c := range chosen {
		name := c.cluster().Name
		now[name] = true
		holds.on(name, r.on(c.replicas), e.price(c), r.LargestPods)
		after = append(after, c)
		if !e.isOn(c.position) {
			p.To = append(p.To, name)
		}
	}
	for _, name := range r.Current {
		if !now[name] {
			p.From = append(p.From, name)
		}
	}
	p.Gain = e.meanScore(after) - p.Score
	if len(p.From) == 0 || len(p.To) == 0 || p.Gain < leastGain {
		return nil, Holding{}
	}
	p.Price, p.NewPrice = e.sum(e.current), e.sum(after)
	return p, holds
}

// meanScore returns the mean score of clusters. A preferred spread is one more score of each: the percentage of the
// others that are in other groups.
func (e *evaluation) meanScore(candidates []candidate) int32 {
	var sum, elsewhere int64
	groups := map[string]int64{}
	for _, c := range candidates {
		name, _ := e.groupOf(c.position)
		groups[name]++
		sum += int64(c.score)
	}
	n := int64(len(candidates))
	if s := e.request.Spread; s != nil && s.Weight > 0 && n > 1 {
		for _, in := range groups {
			elsewhere += in * (n - in)
		}
		weight := int64(s.Weight)
		sum = (sum*e.scorer.total + 100*weight*elsewhere/(n-1)) / (e.scorer.total + weight)
	}
	return int32(sum / max(n, 1)) // at most 100
}

// sum returns the price of all candidates together; nil if one has none, or another currency.
func (e *evaluation) sum(candidates []candidate) *Price {
	prices := make([]*Price, len(candidates))
	for i, c := range candidates {
		prices[i] = e.price(c)
	}
	return sumOf(prices...)
}
