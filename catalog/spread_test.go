package catalog

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// What a spread asks for is one thing: a number of groups, a least number, each of them, or none in particular.
func TestTheGroupsOfASpread(t *testing.T) {
	r := run(t)
	for name, row := range map[string]struct {
		spread v1alpha1.Spread
		want   string // empty if it is accepted
	}{
		"at least so many groups within bounds":  {v1alpha1.Spread{MinGroups: 2, MinPerGroup: 1, MaxPerGroup: 2}, ""},
		"so many groups, more uneven":            {v1alpha1.Spread{Groups: 2, MaxPerGroup: 2, MaxSkew: 3}, ""},
		"each group":                             {v1alpha1.Spread{Each: true}, ""},
		"a preference":                           {v1alpha1.Spread{Weight: 3}, ""},
		"so many and at least so many":           {v1alpha1.Spread{Groups: 2, MinGroups: 2}, "a spread has groups, minGroups or each"},
		"each of at least so many":               {v1alpha1.Spread{Each: true, MinGroups: 2}, "a spread has groups, minGroups or each"},
		"bounds where each group has one":        {v1alpha1.Spread{MaxPerGroup: 2}, "need groups or minGroups"},
		"the least above the greatest":           {v1alpha1.Spread{Groups: 1, MinPerGroup: 3, MaxPerGroup: 2}, "minPerGroup must not be greater"},
		"a preference for so many groups":        {v1alpha1.Spread{Weight: 3, Groups: 2}, "a spread with a weight is a preference"},
		"a preference for each group":            {v1alpha1.Spread{Weight: 3, Each: true}, "a spread with a weight is a preference"},
		"a preference with a skew":               {v1alpha1.Spread{Weight: 3, MaxSkew: 2}, "a spread with a weight is a preference"},
		"a preference above all others":          {v1alpha1.Spread{Weight: 101}, "less than or equal to 100"},
		"more in a group than there can be":      {v1alpha1.Spread{Groups: 1, MaxPerGroup: 65}, "less than or equal to 64"},
		"fewer groups than one, and more of one": {v1alpha1.Spread{MinGroups: -1}, "greater than or equal to 1"},
	} {
		o := offering("spread")
		o.Namespace = r.namespace
		row.spread.By = []string{v1alpha1.LabelRegion}
		o.Spec.Plans[0].Resources.Clusters, o.Spec.Plans[0].Resources.Spread = 2, &row.spread
		err := r.hub.Create(t.Context(), &o, client.DryRunAll)
		if row.want == "" && err != nil || row.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
