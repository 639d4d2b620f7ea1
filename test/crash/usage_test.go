//go:build faults

package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// used is a sum of usage: seconds, and amounts multiplied by seconds.
type used struct {
	Instance, Cluster string
	Seconds           int64
	ReservedSeconds   map[corev1.ResourceName]string
}

func (u used) key() string { return strings.TrimSpace(u.Instance + " " + u.Cluster) }

// sums are amounts in one form, by instance and cluster, or by instance.
type sums map[string]map[string]*big.Rat

// plus adds an amount of an instance; one of nothing is left out.
func (s sums) plus(key, what string, amount *big.Rat) {
	if amount.Sign() == 0 {
		return
	}
	if s[key] == nil {
		s[key] = map[string]*big.Rat{}
	}
	sum := s[key][what]
	if sum == nil {
		sum = new(big.Rat)
		s[key][what] = sum
	}
	sum.Add(sum, amount)
}

// integral adds up what instances had, multiplied by the seconds, on each cluster or on all together.
func integral(had []period, byCluster bool) sums {
	all := sums{}
	for _, p := range had {
		seconds := big.NewRat(p.to.Unix()-p.from.Unix(), 1)
		for _, on := range p.has.Decision.Placements {
			u := used{Instance: p.id}
			if byCluster {
				u.Cluster = on.Cluster
			}
			all.plus(u.key(), "seconds", seconds)
			for name, amount := range on.Reserved {
				all.plus(u.key(), string(name), new(big.Rat).Mul(rational(amount), seconds))
			}
		}
	}
	return all
}

// rational returns the value of a quantity.
func rational(q resource.Quantity) *big.Rat {
	value, _ := new(big.Rat).SetString(q.AsDec().String())
	return value
}

// usageIsWhatTheyHad checks that operators and the platform read as the usage of each instance what it had, to the second.
func (b *bed) usageIsWhatTheyHad(ctx context.Context, had []period) error {
	byCluster, byInstance := sums{}, sums{}
	for _, month := range monthsOf(had) {
		out, err := b.output(ctx, "usage", "--by", "instance,cluster", "--month", month, "-o", "json")
		if err != nil {
			return err
		}
		if err := byCluster.read(out); err != nil {
			return err
		}
		a, err := b.send(ctx, http.MethodGet, "/usage", url.Values{"by": {"instance"}, "month": {month}}, nil, http.StatusOK)
		if err != nil {
			return err
		}
		if out, err = json.Marshal(a.body["usage"]); err != nil {
			return err
		}
		if err := byInstance.read(out); err != nil {
			return err
		}
	}
	if err := byCluster.compare(integral(had, true)); err != nil {
		return fmt.Errorf("sluice usage: %w", err)
	}
	if err := byInstance.compare(integral(had, false)); err != nil {
		return fmt.Errorf("GET /usage: %w", err)
	}
	return nil
}

// monthsOf returns the months in which instances had something.
func monthsOf(had []period) []string {
	months := map[string]bool{}
	for _, p := range had {
		for _, at := range []time.Time{p.from, p.to} {
			months[at.UTC().Format("2006-01")] = true
		}
	}
	return slices.Sorted(maps.Keys(months))
}

// read adds what Sluice says.
func (s sums) read(text []byte) error {
	var all []used
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("decode usage %s: %w", text, err)
	}
	for _, u := range all {
		if err := s.add(u); err != nil {
			return err
		}
	}
	return nil
}

// add adds one sum that Sluice says.
func (s sums) add(u used) error {
	s.plus(u.key(), "seconds", big.NewRat(u.Seconds, 1))
	for name, amount := range u.ReservedSeconds {
		value, ok := new(big.Rat).SetString(amount)
		if !ok {
			return fmt.Errorf("%s %s of %s is no number", amount, name, u.key())
		}
		s.plus(u.key(), string(name), value)
	}
	return nil
}

// compare compares sums with those that are wanted.
func (s sums) compare(want sums) error {
	if len(want) == 0 {
		return fmt.Errorf("nothing was used")
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got, want := s.text(key), want.text(key); got != want {
			return fmt.Errorf("%s used %s, and had %s", key, got, want)
		}
	}
	for key := range s {
		if want[key] == nil {
			return fmt.Errorf("%s used %s, and had nothing", key, s.text(key))
		}
	}
	return nil
}

// text lists the amounts of one instance.
func (s sums) text(key string) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(s[key])) {
		parts = append(parts, what+" "+s[key][what].RatString())
	}
	return strings.Join(parts, ", ")
}
