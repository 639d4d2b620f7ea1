package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/market"
)

// marketPolicies are the policies about a caller of a market.
type marketPolicies struct{ *marketClient }

// marketPolicy is a policy as a market answers it.
type marketPolicy struct {
	ID       string                       `json:"id"`
	Provider string                       `json:"provider"`
	Platform string                       `json:"platform"`
	By       string                       `json:"by"`
	ETag     string                       `json:"etag"`
	Spec     v1alpha1.PlacementPolicySpec `json:"spec"`
	Status   struct {
		State   string `json:"state"`
		Message string `json:"message"`
	} `json:"status"`
}

// resource returns the policy as a resource that apply takes, with the condition Ready if the market knows it.
func (p *marketPolicy) resource() *v1alpha1.PlacementPolicy {
	r := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.ID, Generation: 1}, Spec: p.Spec}
	r.Spec.Provider, r.Spec.Platform = p.Provider, p.Platform
	switch p.Status.State {
	case "in_force":
		message := cmp.Or(p.Status.Message, v1alpha1.PolicyInForceMessage)
		v1alpha1.SetCondition(&r.Status.Conditions, 1, v1alpha1.ConditionReady, metav1.ConditionTrue, "InForce", message)
	case "refusing":
		v1alpha1.SetCondition(&r.Status.Conditions, 1, v1alpha1.ConditionReady, metav1.ConditionFalse, "DoesNotCompile", p.Status.Message)
	}
	return r
}

func policyPath(name string) string { return "policies/" + url.PathEscape(name) }

func (m marketPolicies) list(ctx context.Context) ([]v1alpha1.PlacementPolicy, error) {
	var answer struct{ Policies []marketPolicy }
	if err := m.call(ctx, http.MethodGet, "policies", nil, nil, &answer); err != nil {
		return nil, err
	}
	all := make([]v1alpha1.PlacementPolicy, len(answer.Policies))
	for i := range answer.Policies {
		all[i] = *answer.Policies[i].resource()
	}
	return all, nil
}

func (m marketPolicies) get(ctx context.Context, name string) (*v1alpha1.PlacementPolicy, error) {
	var p marketPolicy
	if err := m.call(ctx, http.MethodGet, policyPath(name), nil, nil, &p); err != nil {
		return nil, err
	}
	return p.resource(), nil
}

// apply puts a policy in place of what is there now, if nobody changes that meanwhile, and waits until it is in force.
func (m marketPolicies) apply(ctx context.Context, document *unstructured.Unstructured) (*v1alpha1.PlacementPolicy, error) {
	var p marketPolicy
	path, header := policyPath(document.GetName()), map[string]string{}
	err := m.call(ctx, http.MethodGet, path, nil, nil, &p)
	refused := (*marketRefusal)(nil)
	switch {
	case err == nil:
		header["If-Match"] = p.ETag
	case !errors.As(err, &refused) || refused.Status != http.StatusNotFound:
		return nil, err
	}
	p = marketPolicy{}
	if err := m.call(ctx, http.MethodPut, path, header, document.Object["spec"], &p); err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, false, func(ctx context.Context) (bool, error) {
		p = marketPolicy{}
		err := m.call(ctx, http.MethodGet, path, nil, nil, &p)
		return p.Status.State != "pending", err
	})
	switch {
	case wait.Interrupted(err):
		return nil, errors.New("it is stored, but not in force within 30 s")
	case err != nil:
		return nil, fmt.Errorf("wait until it is in force: %w", err)
	case p.Status.State == "refusing":
		return nil, errors.New(printable(p.Status.Message))
	}
	return p.resource(), nil
}

func (m marketPolicies) remove(ctx context.Context, name string) error {
	return m.call(ctx, http.MethodDelete, policyPath(name), map[string]string{"If-Match": "*"}, nil, nil)
}

// check asks what a policy would refuse; a spec that is nil is the stored one. It returns the answer as it is, and decoded.
func (m marketPolicies) check(ctx context.Context, name string, spec any, by market.Supposed) (answer json.RawMessage, found *market.PolicyCheck, err error) {
	asked := map[string]any{"consumer": by}
	if spec != nil {
		asked["spec"] = spec
	}
	if err := m.call(ctx, http.MethodPost, policyPath(name)+"/check", nil, asked, &answer); err != nil {
		return nil, nil, err
	}
	found = &market.PolicyCheck{}
	return answer, found, json.Unmarshal(answer, found)
}
