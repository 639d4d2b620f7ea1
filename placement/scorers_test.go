package placement

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Every score, and every weight that a plan can have, belongs to the scorer of its name.
func TestScorersHaveAllScoresAndWeights(t *testing.T) {
	named := func(fields any, title string) int64 {
		name := title[:1] + strings.ToLower(title[1:])
		return reflect.ValueOf(fields).FieldByName(name).Int()
	}
	ofWeights := 0
	for _, kind := range scorers {
		scores, weights := Scores{}, v1alpha1.ScoreWeights{}
		if *kind.part(&scores) = 3; named(scores, kind.title) != 3 {
			t.Errorf("%s has the score of another scorer: %+v", kind.title, scores)
		}
		if kind.weight == nil {
			continue
		}
		ofWeights++
		if *kind.weight(&weights) = 5; named(weights, kind.title) != 5 {
			t.Errorf("%s has the weight of another scorer: %+v", kind.title, weights)
		}
		if sum := addWeights(weights, weights); named(sum, kind.title) != 10 {
			t.Errorf("%s: 5 and 5 are together %+v", kind.title, sum)
		}
	}
	if all := reflect.TypeFor[Scores]().NumField(); len(scorers) != all {
		t.Errorf("%d scorers have the %d scores", len(scorers), all)
	}
	if all := reflect.TypeFor[v1alpha1.ScoreWeights]().NumField(); ofWeights != all {
		t.Errorf("%d scorers have the %d weights", ofWeights, all)
	}
}
