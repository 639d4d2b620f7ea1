package capi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/requeue"
)

const (
	// classesEvery is the time between two reads of the classes of a management cluster.
	classesEvery = time.Minute
	// classesTimeout limits one read.
	classesTimeout = 10 * time.Second

	// Limits of the status of a management cluster.
	maxClasses        = 64
	maxClassVariables = 64
	maxSchemaBytes    = 16 << 10
	maxAllSchemaBytes = 256 << 10
	// shownLeftOut is the number of omitted variables that are named.
	shownLeftOut = 3
)

// Classes writes the schemas of settable class variables to the status of each management
// cluster. The catalog shows these schemas and checks parameters by them.
type Classes struct {
	// Client of the hub; its reads may come from a cache.
	Client client.Client
	// Connections to the management clusters.
	Connections *member.Connections
}

// SetupWithManager adds the controller to a manager; it runs on the leader only.
func (r *Classes) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("classes").
		For(&v1alpha1.MemberCluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ServiceOffering{}, handler.EnqueueRequestsFromMapFunc(r.management)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}). // a cluster that hangs must not block the others
		Complete(requeue.OnConflict(r))
}

// management lists the management clusters.
func (r *Classes) management(ctx context.Context, offering client.Object) (requests []ctrl.Request) {
	var clusters v1alpha1.MemberClusterList
	if err := r.Client.List(ctx, &clusters, client.InNamespace(offering.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is stopping
	}
	for i := range clusters.Items {
		if c := &clusters.Items[i]; c.Spec.Driver == v1alpha1.DriverCAPI {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
	}
	return requests
}

// Reconcile reads the classes of one management cluster.
func (r *Classes) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster := &v1alpha1.MemberCluster{}
	if err := r.Client.Get(ctx, request.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if cluster.Spec.Driver != v1alpha1.DriverCAPI || !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	var offerings v1alpha1.ServiceOfferingList
	if err := r.Client.List(ctx, &offerings, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list service offerings: %w", err)
	}
	again := ctrl.Result{RequeueAfter: classesEvery}
	reading, cancel := context.WithTimeout(ctx, classesTimeout)
	defer cancel()
	classes, err := r.read(reading, cluster, settable(offerings.Items))
	if err != nil {
		return again, nil // the cluster's conditions have the reason; the status stays
	}
	if isSame(classes, cluster.Status.Classes) {
		return again, nil
	}
	cluster.Status.Classes = classes
	if err := r.Client.Status().Update(ctx, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("write the classes of cluster %s: %w", cluster.Name, err))
	}
	return again, nil
}

// settable returns the sorted names of the variables that plans let consumers set, by class.
func settable(offerings []v1alpha1.ServiceOffering) map[client.ObjectKey][]string {
	all := map[client.ObjectKey][]string{}
	for i := range offerings {
		if offerings[i].Status.Accepted == nil {
			continue
		}
		for _, plan := range offerings[i].Status.Accepted.Plans {
			if c := plan.Cluster; c != nil && len(c.Settable) > 0 {
				key := client.ObjectKey{Namespace: cmp.Or(c.ClassNamespace, metav1.NamespaceDefault), Name: c.Class}
				all[key] = append(all[key], c.Settable...)
			}
		}
	}
	for key, names := range all {
		slices.Sort(names)
		all[key] = slices.Compact(names)
	}
	return all
}

// read returns the wanted classes that are on the cluster. A class that Cluster API has not
// processed yet is returned as it is in the status.
func (r *Classes) read(ctx context.Context, cluster *v1alpha1.MemberCluster, wanted map[client.ObjectKey][]string) (classes []v1alpha1.ClusterClass, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	connection, err := r.Connections.Open(ctx, cluster)
	if err != nil {
		return nil, err
	}
	room := maxAllSchemaBytes
	for _, key := range slices.SortedFunc(maps.Keys(wanted), func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) }) {
		class := &clusterv1.ClusterClass{}
		err := get(ctx, connection.Client, "ClusterClass", key, class)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read ClusterClass %s: %w", key, err)
		}
		if len(classes) == maxClasses {
			break
		}
		known := classOf(class, wanted[key], room)
		// Cluster API writes the conditions first, and then the variables with the generation.
		if class.Status.ObservedGeneration != class.Generation || !meta.IsStatusConditionTrue(class.Status.Conditions, clusterv1.ClusterClassVariablesReadyCondition) {
			i := slices.IndexFunc(cluster.Status.Classes, func(c v1alpha1.ClusterClass) bool { return c.Namespace == key.Namespace && c.Name == key.Name })
			if i < 0 {
				continue
			}
			known = cluster.Status.Classes[i]
		}
		for _, v := range known.Variables {
			room -= len(v.Schema.Raw)
		}
		classes = append(classes, known)
	}
	return classes, nil
}

// classOf returns the class with the schemas of the named variables, of at most room bytes.
func classOf(class *clusterv1.ClusterClass, names []string, room int) v1alpha1.ClusterClass {
	known := v1alpha1.ClusterClass{Namespace: class.Namespace, Name: class.Name}
	var out []string
	for _, name := range names {
		schema, why := schemaOf(class, name)
		switch {
		case why != "":
		case len(known.Variables) == maxClassVariables:
			why = fmt.Sprintf("only %d variables are kept", maxClassVariables)
		case len(schema) > maxSchemaBytes:
			why = fmt.Sprintf("its schema has %d bytes, more than %d", len(schema), maxSchemaBytes)
		case len(schema) > room:
			why = fmt.Sprintf("all schemas of the cluster together have more than %d bytes", maxAllSchemaBytes)
		}
		if why != "" {
			out = append(out, name+": "+why)
			continue
		}
		room -= len(schema)
		known.Variables = append(known.Variables, v1alpha1.ClassVariable{Name: name, Schema: runtime.RawExtension{Raw: schema}})
	}
	if more := len(out) - shownLeftOut; more > 0 {
		out = append(out[:shownLeftOut], fmt.Sprintf("and %d more", more))
	}
	known.LeftOut = strings.Join(out, "; ")
	return known
}

// schemaOf returns the JSON Schema of a variable, or the reason why there is none. The status of
// the class has all variables, including those of runtime extensions.
func schemaOf(class *clusterv1.ClusterClass, name string) (schema []byte, why string) {
	i := slices.IndexFunc(class.Status.Variables, func(v clusterv1.ClusterClassStatusVariable) bool { return v.Name == name })
	if i < 0 || len(class.Status.Variables[i].Definitions) == 0 {
		return nil, "the class has no such variable"
	}
	variable := &class.Status.Variables[i]
	if variable.DefinitionsConflict != nil && *variable.DefinitionsConflict {
		return nil, "its definitions conflict"
	}
	document := map[string]any{}
	raw, err := json.Marshal(variable.Definitions[0].Schema.OpenAPIV3Schema)
	if err == nil {
		err = json.Unmarshal(raw, &document)
	}
	if err == nil {
		toDraft04(document)
		schema, err = json.Marshal(document)
	}
	if err != nil {
		return nil, err.Error()
	}
	return schema, ""
}

// toDraft04 turns a structural schema of Kubernetes into a JSON Schema of draft-04 that accepts
// every value that Cluster API accepts. Cluster API sets defaults before it validates, refuses
// unknown fields, and has its own formats. Constraints that would be stricter here are removed.
func toDraft04(s map[string]any) {
	properties, _ := s["properties"].(map[string]any)
	if s["type"] == "object" && s["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] != true {
		s["additionalProperties"] = false
	}
	if s["x-kubernetes-int-or-string"] == true {
		s["type"] = []any{"integer", "string"}
	}
	hasDefault := func(name any) bool {
		property, _ := properties[name.(string)].(map[string]any)
		_, ok := property["default"]
		return ok
	}
	if required, ok := s["required"].([]any); ok {
		if s["required"] = slices.DeleteFunc(required, hasDefault); len(s["required"].([]any)) == 0 {
			delete(s, "required")
		}
	}
	for name := range properties {
		if hasDefault(name) {
			delete(s, "minProperties")
		}
	}
	for key := range s {
		if strings.HasPrefix(key, "x-") || slices.Contains([]string{"example", "format", "allOf", "anyOf", "oneOf", "not"}, key) {
			delete(s, key)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if property, ok := properties[name].(map[string]any); ok {
			toDraft04(property)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := s[key].(map[string]any); ok {
			toDraft04(inner)
		}
	}
}

// isSame reports whether two lists of classes are equal, whatever the spelling of their JSON.
func isSame(a, b []v1alpha1.ClusterClass) bool {
	var decoded [2]any
	for i, classes := range [][]v1alpha1.ClusterClass{a, b} {
		raw, err := json.Marshal(classes)
		if err != nil || json.Unmarshal(raw, &decoded[i]) != nil {
			return false
		}
	}
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(decoded[0], decoded[1]))
}
