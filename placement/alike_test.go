package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestWhatAnExpressionReads(t *testing.T) {
	for source, want := range map[string]reads{
		"cluster.region == 'eu'":                                              {cluster: []string{"region"}},
		"cluster['region'] == request.plan":                                   {cluster: []string{"region"}, asked: []string{"request.plan"}},
		"cluster.tier == 'edge' && has(cluster.labels.gpu)":                   {cluster: []string{"labels." + v1alpha1.LabelTier, "labels.gpu"}[0:2]},
		"'gpu' in cluster.labels && cluster.labels['gpu'] == consumer.space":  {cluster: []string{"labels.gpu"}, asked: []string{"consumer.space"}},
		"cluster.labels.exists(k, k == request.plan)":                         {cluster: []string{"labels"}, asked: []string{"request.plan"}},
		"cluster.labels[request.plan] == 'yes'":                               {cluster: []string{"labels"}, asked: []string{"request.plan"}},
		"cluster.size() > 1 && size(request) > 1":                             {cluster: []string{"labels", "name", "provider", "region"}, asked: []string{"request"}},
		"claims.exists(c, c.value == 'DE') && request.images.all(i, i != '')": {claims: true, asked: []string{"request.images"}},
		"request.resources['cpu'] > 4000":                                     {asked: []string{"request.resources"}},
	} {
		e, err := compileExpression(source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		slices.Sort(want.cluster)
		if !slices.Equal(e.cluster, want.cluster) || !slices.Equal(e.asked, want.asked) || e.claims != want.claims {
			t.Errorf("%s reads %v, %v of the request, claims: %t", source, e.cluster, e.asked, e.claims)
		}
	}
}

// An expression that is evaluated once for all clusters of which it reads the same holds for the same clusters
// as if it were evaluated for each.
func TestExpressionsHoldAsForEachCluster(t *testing.T) {
	sources := []string{
		"cluster.region == request.plan", "cluster.provider != consumer.space", "cluster.name.endsWith('7')", "cluster.tier == 'edge'",
		"has(cluster.labels.gpu)", "'gpu' in cluster.labels", "cluster.labels.gpu == 'a'", "cluster.labels['gpu'] != request.plan",
		"cluster.labels.exists(k, cluster.labels[k] == 'a')", "cluster.labels.map(k, k)[0] == 'gpu'", "cluster.size() == 5",
		"claims.exists(c, c.value == 'DE')", "claims.exists(cluster, cluster.name == 'datacenter.country')", "size(claims) == 1",
		"claims.all(c, c.issuer == request.plan || cluster.region == 'eu')", "cluster.labels.missing == 'x'", "request.resources.missing == 'x' || cluster.region == 'eu'", "request.images.exists(i, i == cluster.region)",
		"claims.exists(c, c.value in request.images)", "consumer.space == 'two' || claims.exists(c, c.value == 'DE')", "cluster.labels[request.plan] == 'a'",
		"request.plan == 'eu' ? cluster.region == 'us' : size(claims) == 1", "consumer.organization + cluster.region == 'a \\'quoted\\' nameeu'",
		"request.images.map(i, i + consumer.space).exists(i, cluster.region + 'one' == i)", "!(request.plan in ['eu', 'us']) || !cluster.labels.exists(k, k == request.plan)",
		"request.resources['cpu'] > 1000 || cluster.region == ''",
		"cluster.name <= request.id", "cluster.name > request.id || cluster.region == request.plan", "!(request.id >= cluster.name)", "cluster.name != request.id", "!(cluster.name == 'cluster-001' && request.id == 'si-1' || cluster.name < request.id)", "request.id + '-x' == cluster.name",
		"request.id.startsWith(cluster.labels.gpu) || cluster.region == request.plan", "!request.id.startsWith(cluster.labels.gpu)", "request.id == 'si-1' ? cluster.labels.gpu in request.images : request.images.exists(i, i == cluster.region)",
		"request.plan in cluster.labels || !(consumer.space in cluster.labels)", "size(cluster.name) >= size(request.id) && !(size(request) == 5)", "cluster.labels.gpu > 7 || request.plan < cluster.labels.gpu",
		"request.images.exists(i, i == cluster.labels.gpu) && !(request.images.exists(i, i == cluster.region) && cluster.labels['gpu'] != request.plan)", "cluster.labels == request",
		"request.plan.contains(cluster.region) && (request.resources.missing == 1 || cluster.provider != consumer.space)",
		"cluster.labels.exists(k, cluster.labels[k] == consumer.space)", "!claims.exists(c, c.value == consumer.space + request.plan) && claims.size() > 0",
		"request.resources.missing == cluster.region", "request.resources.missing < cluster.region || cluster.name == 'cluster-001'", "!(cluster.region in request.resources.missing)", "request.plan in cluster.region || cluster.region == 'eu'", "cluster.labels < request.plan || cluster.region == request.plan", "cluster.labels.exists(k, k == request.resources.missing) || cluster.region == 'eu'",
		"cluster.labels.startsWith(request.plan) || cluster.region == request.plan",
	}
	var compiled []*expression
	for _, source := range sources {
		e, err := compileExpression(source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		compiled = append(compiled, e)
	}
	rapid.Check(t, func(t *rapid.T) {
		fleet := make([]*Cluster, rapid.IntRange(1, 30).Draw(t, "clusters"))
		for i := range fleet {
			fleet[i] = drawCluster(t, fmt.Sprintf("cluster-%03d", i))
			if gpu := rapid.SampledFrom([]string{"", "a", "b", "eu"}).Draw(t, "gpu"); gpu != "" {
				fleet[i].Labels["gpu"] = gpu
			}
		}
		pages := stock(fleet).Snapshot().pages
		for range 4 {
			e := compiled[rapid.IntRange(0, len(compiled)-1).Draw(t, "expression")]
			for range 3 { // the pages keep what they know for requests that ask for the same
				holdsForEach(t, e, pages)
			}
		}
	})
}

// holdsForEach compares an expression's rows with those of which it holds one by one, for a request that is drawn.
func holdsForEach(t *rapid.T, e *expression, pages []*page) {
	r := Request{
		ID: rapid.SampledFrom([]string{"si-1", "cluster-001", "a"}).Draw(t, "id"), Images: []string{"DE", "eu"}, Rules: make([]Rule, 1),
		Consumer: Consumer{Plan: rapid.SampledFrom(regions).Draw(t, "plan"), Space: rapid.SampledFrom([]string{"one", "two", "a", "DE"}).Draw(t, "space"), Organization: "a 'quoted' name"},
	}
	facts := r.facts()
	for _, p := range pages {
		var want set
		for row, c := range p.clusters {
			if ok, err := e.holds(c, facts); ok && err == nil {
				want.add(row)
			}
		}
		for range 2 { // the second time from what is kept
			if got := e.rows(p, p.all, facts); got != want {
				t.Fatalf("%s holds for %v, want %v", e.source, got, want)
			}
		}
	}
}

// An expression that every request has another value of is not evaluated for each request and cluster.
func TestWhatIsUniqueIsOnlyCompared(t *testing.T) {
	for _, source := range []string{
		"cluster.name != request.id", "!(request.id.startsWith(cluster.region + '-') && cluster.tier == 'edge')", "request.id in cluster.labels",
		"size(request.id) > size(claims) ? cluster.name < request.id : request.plan == ''", "request.id == 'si-1'",
	} {
		if _, err := compileExpression(source); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
	for source, part := range map[string]string{
		"claims.exists(c, c.value == request.id)":                                              "claims.exists(c, c.value == request.id)",
		"cluster.region == 'eu' || !(request.id.matches(cluster.name))":                        "!request.id.matches(cluster.name)",
		"cluster.labels[request.id] == 'yes'":                                                  "cluster.labels[request.id] == 'yes'",
		"cluster.name in [cluster.region, request.id]":                                         "cluster.name in [cluster.region, request.id]",
		"request.plan == '' ? cluster.region == '' : size(request) + size(cluster.labels) > 9": "size(request) + size(cluster.labels) > 9",
	} {
		if _, err := compileExpression(source); err == nil || !strings.Contains(err.Error(), "expression: "+part+": request.id, and request as a whole") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// What remains of an expression for one consumer does not hold for another.
func TestWhatRemainsOfAnExpressionIsOfItsConsumer(t *testing.T) {
	for source, ofSpace := range map[string]bool{"cluster.labels.exists(k, cluster.labels[k] == consumer.space)": true, "cluster.labels.exists(k, cluster.labels[k] == request.plan)": false} {
		e, err := compileExpression(source)
		if err != nil {
			t.Fatal(err)
		}
		pages := stock([]*Cluster{inRegion("a1", "a", 1), inRegion("a2", "a", 1), inRegion("b1", "b", 1)}).Snapshot().pages
		for value, want := range map[string]int{"a": 2, "b": 1, "c": 0} {
			r := Request{Consumer: Consumer{Plan: value}, Rules: make([]Rule, 1)}
			if ofSpace {
				r.Consumer = Consumer{Space: value}
			}
			if got := e.rows(pages[0], pages[0].all, r.facts()).len(); got != want {
				t.Errorf("%s: for %s it holds of %d clusters, want %d", source, value, got, want)
			}
		}
	}
}

// Clusters whose labels have the same letters, and not the same values, are not alike.
func TestLabelsThatRunTogetherAreNotAlike(t *testing.T) {
	e, err := compileExpression("cluster.labels.x == 'a' && cluster.labels.y == 'bc'")
	if err != nil {
		t.Fatal(err)
	}
	var fleet []*Cluster
	for i, values := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"a", "bctrue"}, {"abc", ""}} {
		fleet = append(fleet, &Cluster{Name: fmt.Sprint("c", i), Labels: map[string]string{"x": values[0], "y": values[1]}})
	}
	fleet = append(fleet, &Cluster{Name: "c4", Labels: map[string]string{"x": "atrue", "y": "bc"}}, &Cluster{Name: "c5", Provider: "pa", Region: "b"}, &Cluster{Name: "c6", Provider: "p", Region: "ab"})
	p := stock(fleet).Snapshot().pages[0]
	if got := p.alike(&reads{key: "two", cluster: []string{"provider", "region"}}); len(got) != 3 {
		t.Errorf("by provider and region there are %d kinds, want three", len(got))
	}
	if rows := e.rows(p, p.all, (&Request{Rules: make([]Rule, 1)}).facts()); rows.len() != 1 || !rows.has(1) {
		t.Errorf("it holds for %v", rows)
	}
}
