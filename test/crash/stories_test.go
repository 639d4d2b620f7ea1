//go:build faults

package crash

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// stepTime bounds a step of a story, all restarts included: some fifty, each a few seconds where stories are
// played side by side on two processors.
const stepTime = 15 * time.Minute

// step is a part of a story that ends well or with an error.
type step struct {
	name   string
	do     func(context.Context) error
	during kills
}

// kills are the writes of a step after which Sluice is killed.
type kills int

const (
	spared    kills = iota // none, for steps that another story is killed during
	killed                 // each
	killedNew              // each that no step of the bed was killed after yet
)

// instance is a service instance as its platform knows it.
type instance struct {
	*bed
	id, name      string
	service       string // of the plan; empty means stories
	plan          string // the one in force
	first, second bound
	from          string // the cluster that it moves away from
}

func (i *instance) path() string                 { return "/v2/service_instances/" + i.id }
func (i *instance) bindingPath(id string) string { return i.path() + "/service_bindings/" + id }
func (i *instance) query() url.Values {
	return url.Values{"service_id": {cmp.Or(i.service, "stories")}, "plan_id": {i.plan}, "accepts_incomplete": {"true"}}
}

var async = url.Values{"accepts_incomplete": {"true"}}

// body is a request for the instance on so many clusters.
func (i *instance) body(plan string, clusters int) map[string]any {
	body := map[string]any{"service_id": "stories", "plan_id": plan, "organization_guid": "organization", "space_guid": "space"}
	if clusters > 0 {
		body["parameters"] = map[string]any{"clusters": clusters}
	}
	return body
}

// change is a request to change the instance.
func (i *instance) change(plan string, clusters int) map[string]any {
	body := i.body(plan, clusters)
	delete(body, "organization_guid")
	delete(body, "space_guid")
	return body
}

func (i *instance) provision(ctx context.Context) error {
	i.plan = "small"
	if err := i.succeed(ctx, http.MethodPut, i.path(), async, i.body(i.plan, 0)); err != nil {
		return err
	}
	return i.delivered(ctx, 1)
}

func (i *instance) provisionOnTwo(ctx context.Context) error {
	i.plan = "small"
	if err := i.succeed(ctx, http.MethodPut, i.path(), async, i.body(i.plan, 2)); err != nil {
		return err
	}
	return i.delivered(ctx, 2)
}

func (i *instance) bind(ctx context.Context) error {
	return i.bindAs(ctx, "first", &i.first, 1, nil)
}

func (i *instance) rotate(ctx context.Context) error {
	predecessor := map[string]any{"predecessor_binding_id": "first"}
	if err := i.bindAs(ctx, "second", &i.second, 2, predecessor); err != nil {
		return err
	}
	if err := i.first.works(ctx); err != nil {
		return fmt.Errorf("the predecessor: %w", err)
	}
	return nil
}

// bindAs makes a binding and uses what it returns.
func (i *instance) bindAs(ctx context.Context, id string, into *bound, clusters int, more map[string]any) error {
	body := map[string]any{"service_id": "stories", "plan_id": i.plan}
	for field, value := range more {
		body[field] = value
	}
	a, err := i.send(ctx, http.MethodPut, i.bindingPath(id), nil, body, http.StatusOK, http.StatusCreated)
	if err != nil {
		return err
	}
	if err := into.read(a); err != nil {
		return err
	}
	into.name = v1alpha1.BindingName(platformName, i.id, id)
	if len(into.clusters) != clusters {
		return fmt.Errorf("binding %s has credentials for %d clusters, want %d", id, len(into.clusters), clusters)
	}
	if err := into.works(ctx); err != nil {
		return err
	}
	return i.accounts(ctx, into.name, clusters)
}

func (i *instance) update(ctx context.Context) error {
	if err := i.succeed(ctx, http.MethodPatch, i.path(), async, i.change("large", 2)); err != nil {
		return err
	}
	i.plan = "large"
	return i.delivered(ctx, 2)
}

func (i *instance) touch(ctx context.Context) error {
	body := map[string]any{"service_id": "stories", "context": map[string]any{"platform": "test", "space_name": "renamed"}}
	if err := i.succeed(ctx, http.MethodPatch, i.path(), async, body); err != nil {
		return err
	}
	return i.delivered(ctx, 2)
}

func (i *instance) overreach(ctx context.Context) error {
	a, err := i.fail(ctx, http.MethodPatch, i.path(), async, i.change("nowhere", 2))
	if err != nil {
		return err
	}
	if a.body["instance_usable"] == false {
		return fmt.Errorf("the instance is said to be unusable: %v", a)
	}
	return i.delivered(ctx, 2)
}

func (i *instance) shrink(ctx context.Context) error {
	if err := i.succeed(ctx, http.MethodPatch, i.path(), async, i.change("large", 1)); err != nil {
		return err
	}
	i.plan = "large"
	return i.delivered(ctx, 1)
}

func (i *instance) unbind(ctx context.Context) error {
	if err := i.remove(ctx, i.bindingPath("first"), i.query()); err != nil {
		return err
	}
	if err := i.accounts(ctx, i.first.name, 0); err != nil {
		return err
	}
	if err := i.second.works(ctx); err != nil {
		return fmt.Errorf("the successor: %w", err)
	}
	return nil
}

func (i *instance) deprovision(ctx context.Context) error {
	if err := i.remove(ctx, i.path(), i.query()); err != nil {
		return err
	}
	return i.gone(ctx)
}

// move has the instance leave its cluster, and its binding follow.
func (i *instance) move(ctx context.Context) error {
	seen, err := i.inHub(ctx)
	if err != nil {
		return err
	}
	if i.from == "" {
		i.from = seen.Status.Delivered.Decision.Placements[0].Cluster
	}
	if seen.Status.Delivered.Decision.Placements[0].Cluster == i.from {
		err := i.withHub(ctx, func(c client.Client) error {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationLeave, i.from)
			return c.Patch(ctx, seen, client.RawPatch(types.MergePatchType, patch))
		})
		if err != nil {
			return err
		}
	}
	err = until(ctx, func(ctx context.Context) error {
		seen, err := i.inHub(ctx)
		if err != nil {
			return err
		}
		if _, asked := seen.Annotations[v1alpha1.AnnotationLeave]; asked || seen.Status.Delivered.Decision.Placements[0].Cluster == i.from || len(seen.Status.Left) > 0 {
			return fmt.Errorf("%s is on %s, and has left %d clusters", i.id, seen.Status.Delivered.Decision.Placements[0].Cluster, len(seen.Status.Left))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := i.delivered(ctx, 1); err != nil {
		return err
	}
	a, err := i.send(ctx, http.MethodGet, i.bindingPath("first"), nil, nil, http.StatusOK)
	if err != nil {
		return err
	}
	if err := i.first.read(a); err != nil {
		return err
	}
	if len(i.first.clusters) != 1 {
		return fmt.Errorf("the binding has credentials for %d clusters", len(i.first.clusters))
	}
	if err := i.first.works(ctx); err != nil {
		return fmt.Errorf("the binding after the move: %w", err)
	}
	return i.accounts(ctx, i.first.name, 1)
}

// provisionRefused provisions where somebody else has a namespace of the
// instance's name.
func (i *instance) provisionRefused(ctx context.Context) error {
	i.plan = "small"
	if err := i.occupy(ctx); err != nil {
		return err
	}
	if _, err := i.fail(ctx, http.MethodPut, i.path(), async, i.body(i.plan, 0)); err != nil {
		return err
	}
	if err := i.undelivered(ctx); err != nil {
		return err
	}
	return i.vacate(ctx)
}

// register adds a member cluster that takes nothing.
func (b *bed) register(ctx context.Context) error {
	return b.operate(ctx, "cluster", "add", spare, "--from-kubeconfig", b.spare.kubeconfig, "--taint", "spare=yes:NoSchedule")
}

// unregister removes it again. Through the hub, because the command is not to be
// repeated for a cluster that is gone.
func (b *bed) unregister(ctx context.Context) error {
	return b.withHub(ctx, func(c client.Client) error {
		return deleteUntilGone(ctx, c, &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: spare}})
	})
}

// publish adds an offering to the catalog.
func (b *bed) publish(ctx context.Context) error {
	if err := b.operate(ctx, "catalog", "apply", "-f", "testdata/seasonal.yaml"); err != nil {
		return err
	}
	return until(ctx, func(ctx context.Context) error { return b.sells(ctx, "seasonal", true) })
}

// withdraw removes it again.
func (b *bed) withdraw(ctx context.Context) error {
	err := b.withHub(ctx, func(c client.Client) error {
		return deleteUntilGone(ctx, c, &v1alpha1.ServiceOffering{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "seasonal"}})
	})
	if err != nil {
		return err
	}
	return until(ctx, func(ctx context.Context) error { return b.sells(ctx, "seasonal", false) })
}

// sells checks whether the catalog has a service.
func (b *bed) sells(ctx context.Context, service string, want bool) error {
	a, err := b.send(ctx, http.MethodGet, "/v2/catalog", nil, nil, http.StatusOK)
	if err != nil {
		return err
	}
	services, _ := a.body["services"].([]any)
	sold := false
	for _, s := range services {
		if s, ok := s.(map[string]any); ok && s["id"] == service {
			sold = true
		}
	}
	if sold != want {
		return fmt.Errorf("the catalog has the service %s: %t, want %t", service, sold, want)
	}
	return nil
}

// deleteUntilGone deletes an object; it is an error that it is still there.
func deleteUntilGone(ctx context.Context, c client.Client, object client.Object) error {
	if err := c.Delete(ctx, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	if err == nil {
		return fmt.Errorf("%T %s is still there", object, object.GetName())
	}
	return client.IgnoreNotFound(err)
}

// isParked tells an instance that waits because it fits nowhere.
func isParked(i *v1alpha1.ServiceInstance) bool {
	placed := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionPlaced)
	return placed != nil && placed.Status == metav1.ConditionFalse && placed.Reason == v1alpha1.ReasonUnplaceable
}
