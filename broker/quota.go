package broker

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// quotas counts bindings by platform, organization and space, for the quotas of policies. Placement keeps the other
// bounds of these.
type quotas struct {
	policies map[string]*v1alpha1.PlacementPolicy
	// holders and bindings of an instance, by the key of the instance.
	holders  map[string][]string
	bindings map[string]int64
	held     map[string]int64 // bindings of a holder
}

func newQuotas() quotas {
	return quotas{map[string]*v1alpha1.PlacementPolicy{}, map[string][]string{}, map[string]int64{}, map[string]int64{}}
}

// holdersOf returns the names of the scopes that an instance is in.
func holdersOf(i *v1alpha1.ServiceInstance) (holders []string) {
	for _, scope := range []v1alpha1.Scope{v1alpha1.ScopePlatform, v1alpha1.ScopeOrganization, v1alpha1.ScopeSpace} {
		if holder := holderOf(scope, i); holder != "" {
			holders = append(holders, holder)
		}
	}
	return holders
}

func holderOf(scope v1alpha1.Scope, i *v1alpha1.ServiceInstance) string {
	return v1alpha1.HolderName(scope, i.Spec.Platform, i.Spec.OrganizationGUID, i.Spec.SpaceGUID, "")
}

// add adds an instance or a binding, or takes it away, by its sign. Bindings count where their instance is now.
func (q *quotas) add(key string, w weight, sign int64) {
	if w.instance == "" {
		q.count(w.holders, sign*q.bindings[key])
		if q.holders[key] = w.holders; sign < 0 {
			delete(q.holders, key)
		}
		return
	}
	of := keyOfInstance(w.instance)
	q.count(q.holders[of], sign)
	if q.bindings[of] += sign; q.bindings[of] == 0 {
		delete(q.bindings, of)
	}
}

func (q *quotas) count(holders []string, bindings int64) {
	for _, holder := range holders {
		if q.held[holder] += bindings; q.held[holder] == 0 {
			delete(q.held, holder)
		}
	}
}

// admitBinding returns an error if a platform may not keep a new binding, or if it would exceed a quota; otherwise it
// counts it, so that requests at the same time exceed none, unless they reach several replicas. It notes quotas that
// warn because of it at the binding.
func (u *Usage) admitBinding(ctx context.Context, platform *Platform, b *v1alpha1.ServiceBinding, of *v1alpha1.ServiceInstance) error {
	if err := u.admit(ctx, platform, b); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count(of) // the cache may not have shown it yet
	warnings, err := u.withinQuotas(b, of)
	if err != nil && u.forget() {
		u.count(of)
		warnings, err = u.withinQuotas(b, of)
	}
	if err != nil {
		return err
	}
	if len(warnings) > 0 {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, v1alpha1.AnnotationNearQuota, strings.Join(warnings, "; "))
	}
	u.count(b)
	return nil
}

// withinQuotas returns the quotas that warn because of a new binding of an instance, or an error that names the one that
// does not allow it.
func (u *Usage) withinQuotas(b *v1alpha1.ServiceBinding, of *v1alpha1.ServiceInstance) (warnings []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(u.quotas.policies)) {
		policy := &u.quotas.policies[name].Spec
		concerned := policy.Concerned()
		if policy.Quota == nil || policy.Quota.Bindings == nil ||
			!concerned.Selects(of.Spec.Platform, of.Spec.OrganizationGUID, of.Spec.SpaceGUID, b.Spec.PlanID) {
			continue
		}
		holder := holderOf(policy.Quota.Per, of)
		if holder == "" {
			continue
		}
		held, most := u.quotas.held[holder], int64(*policy.Quota.Bindings)
		if _, again := u.objects[keyOf(b)]; again {
			held-- // a failed one, which this one replaces
		}
		allows := fmt.Sprintf("policy %s allows each %s %d bindings", name, policy.Quota.Per, most)
		if held >= most {
			return nil, &Error{Status: http.StatusBadRequest, Code: codeLimitReached, Description: fmt.Sprintf(
				"The %s; %d exist, and 1 is asked for. Delete some that are not needed any more, or ask the broker's operator to raise the limit.", allows, held)}
		}
		if least := (most*int64(policy.Quota.WarnAt) + 99) / 100; held < least && held+1 >= least {
			warnings = append(warnings, fmt.Sprintf("%s: %d exist", allows, held+1))
		}
	}
	return warnings, nil
}
