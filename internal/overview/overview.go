package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Overview is the state of a marketplace.
type Overview struct {
	Resources []Counted `json:"resources"`
	// NotReady holds the resources that are not ready, the oldest first.
	NotReady []Trouble `json:"notReady,omitempty"`
	// Changing holds those that something is being done with.
	Changing []Trouble `json:"changing,omitempty"`
}

// Counted counts the resources of a kind, by their condition Ready.
type Counted struct {
	What     string `json:"what"`
	All      int    `json:"all"`
	Ready    int    `json:"ready"`
	Changing int    `json:"changing"`
	NotReady int    `json:"notReady"`
}

// Trouble is a resource that is not ready.
type Trouble struct {
	What string `json:"what"`
	// Name by which the commands call it: the ids that a platform chose, or the resource's name.
	Name string `json:"name"`
	// Resource is the name of the resource.
	Resource string      `json:"-"`
	Since    metav1.Time `json:"since"`
	Reason   string      `json:"reason"`
	Message  string      `json:"message,omitempty"`
}

// kinds with the condition Ready, as their resources are called.
var kinds = []struct {
	list client.ObjectList
	what []string
}{
	{&v1alpha1.MemberClusterList{}, []string{KindCluster, KindBroker, KindPool}}, {&v1alpha1.SelfDescriptionList{}, []string{"credential"}},
	{&v1alpha1.PlacementPolicyList{}, []string{"policy"}}, {&v1alpha1.ServiceOfferingList{}, []string{"offering"}}, {&v1alpha1.PeeringList{}, []string{"peering"}},
	{&v1alpha1.ServiceInstanceList{}, []string{"instance"}}, {&v1alpha1.ServiceBindingList{}, []string{"binding"}}, {&v1alpha1.EventSinkList{}, []string{"event sink"}},
}

// Each calls do with every resource of a list, and ends with the first error.
type Each func(ctx context.Context, list client.ObjectList, do func(client.Object) error) error

// Look reads every kind that has the condition Ready once, by each.
func Look(ctx context.Context, each Each) (*Overview, error) {
	o := &Overview{}
	for _, k := range kinds {
		var rows []Counted
		for _, what := range k.what {
			rows = append(rows, Counted{What: what})
		}
		err := each(ctx, k.list, func(object client.Object) error {
			row := 0
			if cluster, isCluster := object.(*v1alpha1.MemberCluster); isCluster {
				row = slices.Index(k.what, KindOf(cluster))
			}
			o.judge(&rows[row], object)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list what there is of %s: %w", k.what[0], err)
		}
		o.Resources = append(o.Resources, rows...)
	}
	for _, troubles := range [][]Trouble{o.NotReady, o.Changing} {
		slices.SortStableFunc(troubles, func(a, b Trouble) int { return a.Since.Compare(b.Since.Time) })
	}
	return o, nil
}

// Kinds of member clusters, as the commands call them.
const (
	KindCluster = "cluster"
	KindBroker  = "broker"
	KindPool    = "pool"
)

// KindOf returns the kind of a member cluster.
func KindOf(cluster *v1alpha1.MemberCluster) string {
	switch cluster.DriverName() {
	case v1alpha1.DriverOSB:
		return KindBroker
	case v1alpha1.DriverPool:
		return KindPool
	}
	return KindCluster
}

// judge counts a resource, and notes it if it is not ready.
func (o *Overview) judge(row *Counted, object client.Object) {
	conditions := conditionsOf(object)
	row.All++
	found := Trouble{What: row.What, Name: nameOf(object), Resource: object.GetName(), Since: v1alpha1.CreatedOf(object), Reason: "New"}
	isChanging := true
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		if ready.Status == metav1.ConditionTrue {
			row.Ready++
			return
		}
		found.Since, found.Reason, found.Message = ready.LastTransitionTime, ready.Reason, ready.Message
		isChanging = ready.Reason == v1alpha1.ReasonInProgress || ready.Reason == v1alpha1.ReasonDeleting
	}
	if placed := meta.FindStatusCondition(conditions, v1alpha1.ConditionPlaced); isChanging && placed != nil && placed.Reason == v1alpha1.ReasonUnplaceable {
		found.Since, found.Reason, found.Message, isChanging = placed.LastTransitionTime, placed.Reason, placed.Message, false
	}
	if isChanging {
		row.Changing++
		o.Changing = append(o.Changing, found)
		return
	}
	row.NotReady++
	o.NotReady = append(o.NotReady, found)
}

// conditionsOf returns the conditions of a resource of one of the kinds.
func conditionsOf(object client.Object) []metav1.Condition {
	switch o := object.(type) {
	case *v1alpha1.MemberCluster:
		return o.Status.Conditions
	case *v1alpha1.SelfDescription:
		return o.Status.Conditions
	case *v1alpha1.PlacementPolicy:
		return o.Status.Conditions
	case *v1alpha1.ServiceOffering:
		return o.Status.Conditions
	case *v1alpha1.Peering:
		return o.Status.Conditions
	case *v1alpha1.ServiceInstance:
		return o.Status.Conditions
	case *v1alpha1.ServiceBinding:
		return o.Status.Conditions
	case *v1alpha1.EventSink:
		return o.Status.Conditions
	}
	return nil
}

// nameOf names a resource as its commands do: by the ids that a platform chose, or the two clusters of a peering, or else
// by its name.
func nameOf(object client.Object) string {
	if p, isPeering := object.(*v1alpha1.Peering); isPeering {
		return p.Spec.Consumer + " " + p.Spec.Provider
	}
	if owned, isOwned := object.(interface{ Subject() v1alpha1.EventSubject }); isOwned {
		s := owned.Subject()
		ids := slices.DeleteFunc([]string{s.Platform, s.InstanceID, s.BindingID}, func(id string) bool { return id == "" })
		return cmp.Or(strings.Join(ids, "/"), object.GetName())
	}
	return object.GetName()
}
