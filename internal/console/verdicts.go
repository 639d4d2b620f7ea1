package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

// Explain returns a verdict on every cluster for an instance, as of now, if it stays where it is, or if it left some
// clusters. It changes nothing. The error is a *catalog.UnknownPlanError or *catalog.UnknownServiceError if the plan is
// not known any more.
type Explain func(ctx context.Context, i *v1alpha1.ServiceInstance, leaving []string) ([]placement.Verdict, error)

// verdictsData is the data of the page with a verdict on every cluster.
type verdictsData struct {
	Row    *instanceRow
	Filter filter
	// Leaving is the cluster that the instance is supposed to leave; empty if it stays. It is on the clusters Current.
	Leaving  string
	Current  []string
	Reasons  []facetValue
	Verdicts []verdict
	Pages    pager
	All      int
}

// verdict is one on a cluster.
type verdict struct {
	placement.Verdict
	// Kind selects the sign, Word names the verdict.
	Kind, Word string
	Cost       string
	// Scored reports whether the cluster has a score: it fits.
	Scored bool
}

func newVerdict(v placement.Verdict) verdict {
	shown := verdict{Verdict: v, Kind: "off", Word: spaced(string(v.Reason))}
	switch {
	case v.Chosen:
		shown.Kind, shown.Word, shown.Scored = "good", "Chosen", true
	case v.Reason == placement.ReasonOutranked, v.Reason == placement.ReasonFits:
		shown.Kind, shown.Scored = "", true
	}
	if v.Price != nil {
		shown.Cost = v.Price.String()
	}
	return shown
}

// verdictsPage explains an instance's placement cluster by cluster.
func (s *server) verdictsPage(c *call) (*page, error) {
	name := c.PathValue("name")
	i := &v1alpha1.ServiceInstance{}
	if err := s.get(c.Context(), name, i); err != nil {
		return nil, orNoSuch(err, "instance", name)
	}
	data := verdictsData{Row: s.rows([]*v1alpha1.ServiceInstance{i})[0], Current: i.Status.Decision.Clusters()}
	var leaving []string
	if asked := c.URL.Query().Get("leaving"); slices.Contains(data.Current, asked) {
		data.Leaving, leaving = asked, []string{asked}
	}
	select { // each reads the whole hub
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-c.Context().Done():
		return nil, c.Context().Err()
	}
	found, err := s.Explain(c.Context(), i, leaving)
	if isUnknown(err) {
		return nil, errNoPlan
	}
	if err != nil {
		return nil, err
	}
	data.All = len(found)
	data.Filter = filterOf(c, "verdict", "leaving", "text")
	counts := map[string]int{}
	var all []verdict
	for _, one := range found {
		v := newVerdict(one)
		counts[v.Word]++
		if data.Filter.is("verdict", v.Word) && data.Filter.has(v.Cluster, v.Message, v.Component) {
			all = append(all, v)
		}
	}
	for word, count := range counts {
		data.Reasons = append(data.Reasons, facetValue{word, count})
	}
	slices.SortFunc(data.Reasons, func(a, b facetValue) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Value, b.Value)) })
	data.Verdicts, data.Pages = paged(c, all)
	return &page{Title: "Every cluster for " + i.Spec.InstanceID, template: "verdicts", Data: data}, nil
}

var errNoPlan = &Error{Status: http.StatusNotFound, Title: "Its plan is not known any more", Description: "Without the plan, nobody can say where else the instance would fit."}

func isUnknown(err error) bool {
	plan, service := (*catalog.UnknownPlanError)(nil), (*catalog.UnknownServiceError)(nil)
	return errors.As(err, &plan) || errors.As(err, &service)
}
