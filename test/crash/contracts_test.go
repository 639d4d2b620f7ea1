//go:build faults

package crash

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// contract is one as `sluice instance contract` shows it.
type contract struct {
	Digest   string
	EndedAt  time.Time `json:"ended_at"`
	Contract struct {
		Number    int
		From      time.Time
		DecidedAt time.Time `json:"decided_at"`
		Former    string
		Instance  struct{ UID types.UID }
		Plan      struct {
			ID                 string
			MaintenanceVersion string `json:"maintenance_version"`
		}
		Clusters []struct {
			Cluster  string
			Reserved map[corev1.ResourceName]string
		}
		Policies []v1alpha1.PolicyInForce
	}
}

// contractsOutlive checks the contracts of instances, which are gone: there is one for each decision that was delivered,
// from that second on to the next one's or the deletion's, and no other. Each names the former by its digest, has the terms of the
// decision and the policy in force, and is signed by the broker, whose keys verify it.
func (b *bed) contractsOutlive(ctx context.Context, t *testing.T, had []period) error {
	policy := &v1alpha1.PlacementPolicy{}
	err := b.withHub(ctx, func(c client.Client) error {
		return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "stories"}, policy)
	})
	if err != nil {
		return err
	}
	folder := t.TempDir()
	of := agreed(had)
	for _, id := range ids(of) {
		out, err := b.output(ctx, "instance", "contract", id, "-o", "json")
		if err != nil {
			return err
		}
		var all []contract
		if err := json.Unmarshal(out, &all); err != nil {
			return fmt.Errorf("decode the contracts of %s: %w", id, err)
		}
		want := slices.DeleteFunc(slices.Clone(of), func(p period) bool { return p.id != id })
		if len(all) != len(want) {
			return fmt.Errorf("%s has %d contracts, and %d decisions were delivered: %s", id, len(all), len(want), out)
		}
		former := contract{}
		for n, c := range all {
			if c.Contract.Instance.UID != former.Contract.Instance.UID {
				former = contract{}
			}
			if err := c.is(want[n], former, policy); err != nil {
				return fmt.Errorf("contract %d of %s: %w: %s", n+1, id, err, out)
			}
			former = c
			if err := b.sign(ctx, folder, id, c); err != nil {
				return err
			}
		}
	}
	return b.verify(ctx, folder)
}

// agreed joins periods with the same terms and amounts: an update of the context only, or a restored backup, is delivered by the
// same decision.
func agreed(had []period) (joined []period) {
	for _, p := range had {
		if n := len(joined); n > 0 && joined[n-1].uid == p.uid && hasSameTerms(joined[n-1], p) {
			joined[n-1].to = p.to
			continue
		}
		joined = append(joined, p)
	}
	return joined
}

func hasSameTerms(a, b period) bool {
	return a.has.State.PlanID == b.has.State.PlanID && a.has.State.MaintenanceVersion == b.has.State.MaintenanceVersion &&
		equality.Semantic.DeepEqual(a.has.Decision.Terms, b.has.Decision.Terms) && a.amounts().compare(b.amounts()) == nil
}

// ids returns the ids of the instances that had something.
func ids(had []period) (all []string) {
	for _, p := range had {
		all = append(all, p.id)
	}
	return slices.Compact(all) // periods are in the order of ids
}

// is checks that a contract is of what an instance had in a period, and follows the former one of the same instance.
func (c contract) is(of period, former contract, policy *v1alpha1.PlacementPolicy) error {
	d, terms := c.Contract, of.has.Decision.Terms
	switch {
	case d.Instance.UID != of.uid || d.Number != former.Contract.Number+1 || d.Former != former.Digest:
		return fmt.Errorf("it does not follow number %d of %s", former.Contract.Number, of.uid)
	case !d.From.Equal(of.from) || !c.EndedAt.Equal(of.to):
		return fmt.Errorf("it lasts from %s to %s, and the delivery from %s to %s", d.From, c.EndedAt, of.from, of.to)
	case terms == nil || !d.DecidedAt.Equal(terms.At.Time) || d.Plan.ID != of.has.State.PlanID || d.Plan.MaintenanceVersion != of.has.State.MaintenanceVersion:
		return fmt.Errorf("delivered is %+v by the terms %+v", of.has.State, terms)
	case !slices.Equal(d.Policies, []v1alpha1.PolicyInForce{policy.InForce()}):
		return fmt.Errorf("in force is policy %+v", policy.InForce())
	case len(d.Clusters) != len(of.has.Decision.Placements):
		return fmt.Errorf("it was on the clusters %v", of.has.Decision.Clusters())
	}
	amounts := sums{}
	for _, on := range d.Clusters {
		if err := amounts.add(used{Instance: of.id, Cluster: on.Cluster, Seconds: 1, ReservedSeconds: on.Reserved}); err != nil {
			return err
		}
	}
	return amounts.compare(of.amounts())
}

// amounts returns what the instance had on each cluster, in one second.
func (p period) amounts() sums {
	p.from, p.to = time.Unix(0, 0), time.Unix(1, 0)
	return integral([]period{p}, true)
}

// sign has the broker sign a contract, into a file of a folder.
func (b *bed) sign(ctx context.Context, folder, id string, c contract) error {
	args := []string{"instance", "contract", id, "--number", fmt.Sprint(c.Contract.Number), "-o", "jwt"}
	if b.cluster != embedded {
		args = append(args, "--keyset", b.keyset())
	}
	statement, err := b.output(ctx, args...)
	if err != nil {
		return err
	}
	parts := strings.Split(strings.TrimSpace(string(statement)), ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err != nil {
		return fmt.Errorf("decode the statement of %s: %w", id, err)
	}
	var claims struct{ Sub, Iss string }
	if err := json.Unmarshal(payload, &claims); err != nil {
		return fmt.Errorf("decode the statement of %s: %w", id, err)
	}
	if claims.Sub != c.Digest || claims.Iss != did {
		return fmt.Errorf("the statement of contract %s of %s is %s", c.Digest, id, payload)
	}
	return os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s-%d.jwt", id, c.Contract.Number)), statement, 0o600)
}

// verify verifies all statements in a folder by the keys that the broker publishes.
func (b *bed) verify(ctx context.Context, folder string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/.well-known/did.json", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	keys, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	file := b.server.path("did.json")
	if err := os.WriteFile(file, keys, 0o600); err != nil {
		return err
	}
	_, err = sluice(ctx, "sd", "verify", folder, "--keys", file)
	return err
}
