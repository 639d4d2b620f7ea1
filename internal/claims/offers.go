package claims

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// catalogAge is how long a catalog is used before the broker is asked whether it has changed.
const catalogAge = 30 * time.Second

// offers is the broker's catalog as it was read last.
type offers struct {
	mu      sync.Mutex
	from    *osbclient.Client
	at      time.Time
	catalog *osbclient.Catalog
}

// read returns the catalog, no older than an age.
func (o *offers) read(ctx context.Context, broker *osbclient.Client, age time.Duration) (*osbclient.Catalog, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.from == broker && time.Since(o.at) <= age {
		return o.catalog, nil
	}
	catalog, err := broker.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	o.from, o.at, o.catalog = broker, time.Now(), catalog
	return catalog, nil
}

// forget makes the next reader ask the broker.
func (o *offers) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.from = nil
}

// ages of the catalog in which a plan is looked for, one after the other.
var ages = []time.Duration{catalogAge, time.Second}

// offer returns a plan of a service by their names. A plan that is not known is looked for once more in the catalog as it
// is now.
func (c *Controller) offer(ctx context.Context, service, plan string) (*osbclient.Service, *osbclient.Plan, *problem) {
	var why string
	for _, age := range ages {
		catalog, err := c.offers.read(ctx, c.Broker(), age)
		if err != nil {
			return nil, nil, unavailable(err, nil)
		}
		s := slices.IndexFunc(catalog.Services, func(s osbclient.Service) bool { return s.Name == service })
		if s < 0 {
			why = fmt.Sprintf("service %q is not offered; there is %s", service, names(catalog.Services, func(s osbclient.Service) string { return s.Name }))
			continue
		}
		plans := catalog.Services[s].Plans
		if p := slices.IndexFunc(plans, func(p osbclient.Plan) bool { return p.Name == plan }); p >= 0 {
			return &catalog.Services[s], &plans[p], nil
		}
		why = fmt.Sprintf("service %s: plan %q is not offered; there is %s", service, plan, names(plans, func(p osbclient.Plan) string { return p.Name }))
	}
	return nil, nil, &problem{reason: claimsv1.ReasonNotOffered, message: why, after: catalogAge}
}

// ordered returns the plan of an instance, by its id: the broker may have given the plan's name to another one. Of a plan
// that is not offered any more, only what the claim's status has is known.
func (c *Controller) ordered(ctx context.Context, is *claimsv1.Ordered) (*osbclient.Service, *osbclient.Plan, *problem) {
	for _, age := range ages {
		catalog, err := c.offers.read(ctx, c.Broker(), age)
		if err != nil {
			return nil, nil, unavailable(err, nil)
		}
		s := slices.IndexFunc(catalog.Services, func(s osbclient.Service) bool { return s.ID == is.ServiceID })
		if s < 0 {
			continue
		}
		plans := catalog.Services[s].Plans
		if p := slices.IndexFunc(plans, func(p osbclient.Plan) bool { return p.ID == is.PlanID }); p >= 0 {
			return &catalog.Services[s], &plans[p], nil
		}
	}
	return &osbclient.Service{ID: is.ServiceID, BindingsRetrievable: is.BindingsRetrievable}, &osbclient.Plan{ID: is.PlanID}, nil
}

// mostNames is how many names a message lists.
const mostNames = 12

func names[T any](of []T, name func(T) string) string {
	var all []string
	for _, one := range of[:min(len(of), mostNames)] {
		all = append(all, name(one))
	}
	switch {
	case len(of) == 0:
		return "nothing"
	case len(of) > mostNames:
		all = append(all, "…")
	}
	return strings.Join(all, ", ")
}

// wanted describes an instance as its claim wants it.
type wanted struct {
	*parameters
	service *osbclient.Service
	plan    *osbclient.Plan
	to      claimsv1.Ordered
}

// want returns what a claim asks for now.
func (s *servicePass) want(ctx context.Context) (*wanted, *problem) {
	spec, has := &s.claim.Spec, s.claim.Status.Instance
	service, plan, wrong := s.offer(ctx, spec.Service, spec.Plan)
	if wrong != nil {
		return nil, wrong
	}
	given, wrong := s.parametersOf(ctx, s.claim.Namespace, spec.Parameters, spec.ParametersFrom)
	if wrong != nil {
		return nil, wrong
	}
	version := spec.MaintenanceVersion
	switch {
	case version != "":
	case has != nil && has.PlanID == plan.ID:
		version = has.MaintenanceVersion
	case plan.MaintenanceInfo != nil:
		version = plan.MaintenanceInfo.Version
	}
	return &wanted{given, service, plan, claimsv1.Ordered{
		ServiceID: service.ID, PlanID: plan.ID, Plan: plan.Name, MaintenanceVersion: version, Digest: digest(service.ID, plan.ID, version, given.version),
		NoParameters: given.document == nil, BindingsRetrievable: service.BindingsRetrievable,
	}}, nil
}

// digest returns a digest of its parts.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

func maintenance(version string) *osbclient.MaintenanceInfo {
	if version == "" {
		return nil
	}
	return &osbclient.MaintenanceInfo{Version: version}
}
