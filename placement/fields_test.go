package placement

import (
	"strings"
	"testing"
)

// TestFieldsThatThereAreNot: an expression with a misspelt field does not compile, instead of refusing each order.
func TestFieldsThatThereAreNot(t *testing.T) {
	for source, says := range map[string]string{
		"cluster.foo == 1": `column 8: cluster has no field "foo", only name, provider, region, tier, labels`,
		"cluster.region == 'eu' || cluster.nme == 'a'":             `column 34: cluster has no field "nme"`,
		"cluster['zone'] == 'a'":                                   `cluster has no field "zone"`,
		"has(cluster.zone)":                                        `cluster has no field "zone"`,
		"'zone' in cluster":                                        `cluster has no field "zone"`,
		"request.cpu > 1":                                          `request has no field "cpu", only id, plan, clusters, resources, images`,
		"consumer.org == 'a'":                                      `consumer has no field "org", only platform, organization, space, claims`,
		"claims.exists(c, c.nam == 'x')":                           `a claim has no field "nam", only name, value, assurance, issuer`,
		"consumer.claims.exists(c, c.name == 'x' && c.of > 1)":     `a claim has no field "of"`,
		"claims[0].of == 'x'":                                      `a claim has no field "of"`,
		"size(consumer.claims) > 0 && consumer.claims[0].x == 'y'": `a claim has no field "x"`,

		"cluster.labels.zone == 'a' && cluster.labels['a.example/b'] == 'b'":         "",
		"has(cluster.labels.zone) && 'x' in cluster.labels":                          "",
		"request.resources.cpu > 1 && request.resources['nvidia.com/gpu'] == 0":      "",
		"cluster.labels.exists(cluster, cluster.startsWith('a'))":                    "",
		"['a'].exists(claims, claims == 'a') && claims.exists(c, c.issuer == 'did')": "",
		"claims.filter(c, c.name == 'x').exists(d, d.value == 'y')":                  "",
		"claims[0].value == 'y' && claims[0]['name'] == 'x' && size(claims) > 0":     "",
		"request.images.all(i, i.startsWith('registry.example/'))":                   "",
		"consumer.space == cluster.name && cluster.tier == 'edge'":                   "",
	} {
		_, err := compileExpression(source)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", source, err, says)
		}
	}
}
