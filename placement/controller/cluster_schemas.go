package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/jsonschema"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// The catalogs of brokers may be long. Only the schemas of plans that offerings order go into the status of the
// broker, where every replica's catalog finds them.

// Limits of the schemas in the status of a broker.
const (
	maxSchemas        = 256
	maxAllSchemaBytes = 256 << 10
)

// orderedFrom returns the brokers that an offering orders from, as requests.
func (r *clusterReconciler) orderedFrom(_ context.Context, o client.Object) (requests []ctrl.Request) {
	accepted := o.(*v1alpha1.ServiceOffering).Status.Accepted
	if accepted == nil {
		return nil
	}
	for i := range accepted.Plans {
		if u := accepted.Plans[i].Upstream; u != nil {
			for k := range u.Candidates {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: r.Namespace, Name: u.Candidates[k].Broker}})
			}
		}
	}
	return requests
}

// readOrdered notes which plans offerings order from a broker.
func (w *clusterWatch) readOrdered(ctx context.Context, hub client.Reader, broker *v1alpha1.MemberCluster) error {
	var offerings v1alpha1.ServiceOfferingList
	if err := hub.List(ctx, &offerings, client.InNamespace(broker.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list service offerings: %w", err)
	}
	w.ordered = map[string]bool{}
	for i := range offerings.Items {
		accepted := offerings.Items[i].Status.Accepted
		if accepted == nil {
			continue
		}
		for k := range accepted.Plans {
			u := accepted.Plans[k].Upstream
			if u == nil {
				continue
			}
			for c := range u.Candidates {
				if u.Candidates[c].Broker == broker.Name {
					w.ordered[u.Candidates[c].Name()] = true
				}
			}
		}
	}
	return nil
}

// schemasOf returns the schemas of the ordered plans of a broker's catalog, within the limits of the status. Of a schema
// that is left out, it returns which parameters are writeOnly: the catalog hides them. A plan without schemas is there, too:
// of one that is not, the catalog hides all parameters. So a plan is left out if there is no room to say which of its
// parameters are writeOnly. It returns those before if they say the same: the hub writes JSON in its own way.
func schemasOf(from *osbclient.Catalog, ordered map[string]bool, before []v1alpha1.OfferedSchemas) (all []v1alpha1.OfferedSchemas) {
	type found struct {
		plan         string
		whole, least v1alpha1.PlanSchemas
	}
	var plans []found
	left, room := maxSchemas, maxAllSchemaBytes
	for i := range from.Services {
		s := &from.Services[i]
		for k := range s.Plans {
			p := &s.Plans[k]
			if !ordered[s.Name+"/"+p.Name] {
				continue
			}
			create, update, bind := p.Schemas.Instance.Create, p.Schemas.Instance.Update, p.Schemas.Binding.Create
			one := found{plan: s.Name + "/" + p.Name, least: v1alpha1.PlanSchemas{
				InstanceCreate: writeOnlyPart(create), InstanceUpdate: writeOnlyPart(update), BindingCreate: writeOnlyPart(bind),
			}}
			one.whole = v1alpha1.PlanSchemas{
				InstanceCreate: cmp.Or(validSchema(create), one.least.InstanceCreate), InstanceUpdate: cmp.Or(validSchema(update), one.least.InstanceUpdate),
				BindingCreate: cmp.Or(validSchema(bind), one.least.BindingCreate),
			}
			if size := bytesOf(&one.least); size > 0 {
				if size > room || left == 0 {
					continue
				}
				left, room = left-1, room-size
			}
			plans = append(plans, one)
		}
	}
	var empty []v1alpha1.OfferedSchemas
	for _, one := range plans {
		has, wants := bytesOf(&one.least), bytesOf(&one.whole)
		switch {
		case has > 0 && wants-has <= room:
			room -= wants - has
		case has > 0:
			one.whole = one.least
		case wants == 0 || wants > room || left == 0:
			empty = append(empty, v1alpha1.OfferedSchemas{Plan: one.plan})
			continue
		default:
			left, room = left-1, room-wants
		}
		all = append(all, v1alpha1.OfferedSchemas{Plan: one.plan, PlanSchemas: one.whole})
	}
	all = append(all, empty[:min(left, len(empty))]...)
	slices.SortFunc(all, func(a, b v1alpha1.OfferedSchemas) int { return strings.Compare(a.Plan, b.Plan) })
	if isSameJSON(all, before) {
		return before
	}
	return all
}

// bytesOf returns the length of all schemas of a plan.
func bytesOf(of *v1alpha1.PlanSchemas) (size int) {
	for _, schema := range []*runtime.RawExtension{of.InstanceCreate, of.InstanceUpdate, of.BindingCreate} {
		if schema != nil {
			size += len(schema.Raw)
		}
	}
	return size
}

func isSameJSON(a, b []v1alpha1.OfferedSchemas) bool {
	decoded := func(of []v1alpha1.OfferedSchemas) (value []any) {
		raw, err := json.Marshal(of)
		if err != nil || json.Unmarshal(raw, &value) != nil {
			return []any{err} // differs from everything
		}
		return value
	}
	return len(a) == len(b) && reflect.DeepEqual(decoded(a), decoded(b))
}

// validSchema returns a schema if it is one that Sluice can check by itself and OSB allows; otherwise nil.
func validSchema(of osbclient.Parameters) *runtime.RawExtension {
	var object map[string]json.RawMessage
	if len(of.Schema) > catalog.MaxSchemaBytes || json.Unmarshal(of.Schema, &object) != nil || object == nil {
		return nil
	}
	if _, err := jsonschema.Compile(of.Schema); err != nil {
		return nil
	}
	return &runtime.RawExtension{Raw: of.Schema}
}

// writeOnlyPart returns a schema that says which parameters are writeOnly, and no more; nil if none are. Unlike
// validSchema it takes one that cannot be checked.
func writeOnlyPart(of osbclient.Parameters) *runtime.RawExtension {
	var object map[string]any
	if json.Unmarshal(of.Schema, &object) != nil {
		return nil
	}
	part := jsonschema.NewWriteOnly(object).Part(object)
	if part == nil {
		return nil
	}
	raw, err := json.Marshal(part)
	if err != nil {
		return nil // it was JSON before
	}
	return &runtime.RawExtension{Raw: raw}
}
