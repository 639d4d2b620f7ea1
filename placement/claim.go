package placement

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// evidence returns the provider of a cluster, and the credentials that prove its claims.
func (c *Cluster) evidence() v1alpha1.ClusterEvidence {
	return v1alpha1.ClusterEvidence{Cluster: c.Name, Provider: c.Provider, Credentials: CredentialsOf(c.Claims)}
}

// CredentialsOf returns the digests of the credentials that prove claims, sorted.
func CredentialsOf(claims []v1alpha1.Claim) (digests []string) {
	for i := range claims {
		if digest := claims[i].Credential; digest != "" {
			digests = append(digests, digest)
		}
	}
	slices.Sort(digests)
	return slices.Compact(digests)
}

// claimsAt returns those of the claims that are valid at a time.
func claimsAt(claims []v1alpha1.Claim, now time.Time) (held []v1alpha1.Claim) {
	for _, claim := range claims {
		if claim.ExpiresAt == nil || now.Before(claim.ExpiresAt.Time) {
			held = append(held, claim)
		}
	}
	return held
}

// compileClaim checks a rule and expands groups of countries.
func compileClaim(from *v1alpha1.ClaimRule) (*claimRule, error) {
	r := &claimRule{ClaimRule: *from, key: fmt.Sprintf("%#v", *from), least: rank(from.Assurance)}
	if from.Assurance != "" && from.Assurance != v1alpha1.AssuranceMeasured && r.least < 0 {
		return nil, fmt.Errorf("claim.assurance: %q is not an assurance", from.Assurance)
	}
	r.low, r.high = math.Inf(-1), math.Inf(1)
	for _, bound := range []struct {
		field, value string
		into         *float64
	}{{"atLeast", from.AtLeast, &r.low}, {"atMost", from.AtMost, &r.high}} {
		if bound.value == "" {
			continue
		}
		if len(from.Values) > 0 {
			return nil, fmt.Errorf("claim.%s: a rule has values or bounds, not both", bound.field)
		}
		r.order = orderOf(from.Name)
		var ok bool
		if *bound.into, ok = r.order(bound.value); !ok {
			return nil, fmt.Errorf("claim.%s: %q has no order among values of %s", bound.field, bound.value, from.Name)
		}
	}
	if r.low > r.high {
		return nil, fmt.Errorf("claim.atMost: %s is less than atLeast, %s", from.AtMost, from.AtLeast)
	}
	for i, value := range from.Values {
		matches, err := valueMatcher(from.Name, value)
		if err != nil {
			return nil, fmt.Errorf("claim.values[%d]: %w", i, err)
		}
		r.matches = append(r.matches, matches)
	}
	return r, nil
}

// valueMatcher returns a function that accepts a rule's value. Countries may be written in any
// form of ISO 3166-1.
func valueMatcher(name, value string) (func(string) bool, error) {
	if !slices.Contains([]string{v1alpha1.ClaimProviderCountry, v1alpha1.ClaimConsumerCountry, v1alpha1.ClaimDatacenterCountry}, name) {
		return func(claimed string) bool { return claimed == value }, nil
	}
	switch value {
	case "EU":
		return shape.InEU, nil
	case "EEA":
		return shape.InEEA, nil
	}
	country, ok := shape.Country(value)
	if !ok {
		return nil, fmt.Errorf("%q is neither a country of ISO 3166-1 nor EU nor EEA", value)
	}
	return func(claimed string) bool { return claimed == country }, nil
}

// orderOf returns the order of a claim's values: label levels as in Gaia-X, all others as
// numbers.
func orderOf(name string) func(string) (float64, bool) {
	if name == v1alpha1.ClaimLabel {
		return func(value string) (float64, bool) {
			i := slices.Index([]string{"SC", "L1", "L2", "L3"}, value)
			return float64(i), i >= 0
		}
	}
	return func(value string) (float64, bool) {
		n, err := strconv.ParseFloat(value, 64)
		return n, err == nil && n == n // NaN is not ordered
	}
}
