package workload

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
)

// Charts has the charts of components.
type Charts interface {
	// Chart returns a component's chart. It may block for a round trip.
	Chart(of *v1alpha1.WorkloadChart) (*charts.Chart, error)
}

// Render returns the objects of the workload for a namespace of a cluster, in the order of the
// components. Each carries the label of its component, and so do the pods that it makes. The error
// is a *RefusedError if the plan, with the consumer's parameters, gives objects that Sluice does not
// run. It blocks only for charts; without any, charts may be nil.
//
// Pods have the default priority of their cluster, also by plans that were accepted when they could name another one.
func (o *Order) Render(charts Charts, cluster Cluster, namespace string) ([]*unstructured.Unstructured, error) {
	objects, err := o.asPlanned(charts, cluster, namespace)
	dropPriorities(objects)
	return objects, err
}

// asPlanned is Render with the priorities that the plan names.
func (o *Order) asPlanned(charts Charts, cluster Cluster, namespace string) ([]*unstructured.Unstructured, error) {
	if err := o.notOwnNames(); err != nil {
		return nil, err
	}
	if err := o.unreachable(cluster.Exposure); err != nil {
		return nil, err
	}
	addresses, err := o.Addresses(inside, o.Share.exposure(cluster.Exposure))
	if err != nil {
		return nil, err
	}
	e := o.expressions(addresses)
	e.variables[varCluster] = o.variable(cluster)
	var objects []*unstructured.Unstructured
	for i := range o.Plan.Components {
		c := &o.Plan.Components[i]
		r := &rendering{order: o, expressions: e, component: c.Name, ports: c.Ports, namespace: namespace,
			path: field.NewPath("components").Key(c.Name), sleeps: cluster.sleeps()}
		r.letOut(c, o.Share.elsewhere(c.Name))
		if !o.Share.Runs(c.Name) {
			r.link(c, o.Share.elsewhere(c.Name))
			if r.err != nil {
				return nil, &RefusedError{r.err.Error()}
			}
			objects = append(objects, r.objects...)
			continue
		}
		switch {
		case c.IsConsumers():
			r.service(c.ServiceName())
		case c.Container != nil:
			r.container(c.Container)
		case c.Chart != nil:
			chart, err := chartOf(charts, c.Chart)
			if err != nil {
				return nil, fmt.Errorf("component %s: %w", c.Name, err)
			}
			r.chart(c.Chart, chart)
		default:
			r.manifests(c.Manifests)
		}
		r.serves(c)
		r.add(r.networkPolicy(c.Container == nil && len(c.Ports) == 0, cluster.Exposure))
		r.expose(c, cluster.Exposure, addresses[c.Name].Public)
		if r.err != nil {
			return nil, &RefusedError{r.err.Error()}
		}
		objects = append(objects, r.objects...)
	}
	if !o.Runs() {
		return objects, nil
	}
	if err := check(objects); err != nil {
		return nil, err
	}
	logins, err := o.logins(e)
	if err != nil || len(logins) == 0 {
		return objects, err
	}
	secret, err := registries(logins, namespace)
	if err != nil {
		return nil, err
	}
	return append([]*unstructured.Unstructured{secret}, objects...), pullAs(objects)
}

// RefusedError is the reason why a workload does not run: the object, the field, and what is wrong
// with it. It contains no secret.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refused(format string, values ...any) error {
	return &RefusedError{fmt.Sprintf(format, values...)}
}

// rendering is the state while one component is rendered. The first error ends it.
type rendering struct {
	order       *Order
	expressions *expressions
	component   string
	// volumesOf is the component whose volumes the pods have, if it is another: the pods are those of a hook.
	volumesOf string
	ports     []v1alpha1.WorkloadPort
	namespace string
	path      *field.Path
	// sleeps has the meaning of Cluster.sleeps.
	sleeps  bool
	objects []*unstructured.Unstructured
	err     error
}

func (r *rendering) fail(path *field.Path, err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("%s: %w", path, err)
	}
}

// text expands a string.
func (r *rendering) text(path *field.Path, s string) string {
	text, err := r.expressions.text(s)
	r.fail(path, err)
	return text
}

func (r *rendering) texts(path *field.Path, all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = r.text(path.Index(i), s)
	}
	return out
}

func (r *rendering) labels() map[string]string {
	return map[string]string{v1alpha1.LabelComponent: r.component}
}

// add adds an apply configuration.
func (r *rendering) add(configuration any) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configuration)
	r.fail(r.path, err)
	if err == nil {
		r.objects = append(r.objects, &unstructured.Unstructured{Object: content})
	}
}

// manifests expands objects, puts them into the namespace and labels them and the pods that they
// make.
func (r *rendering) manifests(manifests []v1alpha1.Manifest) {
	for i := range manifests {
		path := r.path.Child("manifests").Index(i)
		content := map[string]any{}
		if err := decode(manifests[i].Raw, &content); err != nil {
			r.fail(path, err)
			return
		}
		expanded, err := r.expressions.all(content, path.String())
		if err != nil {
			if r.err == nil {
				r.err = err // it has the path
			}
			return
		}
		r.object(path, &unstructured.Unstructured{Object: expanded.(map[string]any)})
	}
}

// chart expands the values for a chart, and adds the objects of its release.
func (r *rendering) chart(of *v1alpha1.WorkloadChart, chart *charts.Chart) {
	path := r.path.Child("chart")
	values := map[string]any{}
	if of.Values != nil && len(of.Values.Raw) > 0 {
		if err := decode(of.Values.Raw, &values); err != nil {
			r.fail(path.Child("values"), err)
			return
		}
	}
	expanded, err := r.expressions.all(values, path.Child("values").String())
	if err != nil {
		if r.err == nil {
			r.err = err // it has the path
		}
		return
	}
	values = expanded.(map[string]any)
	for _, name := range of.Parameters {
		if chosen, ok := r.order.Parameters[name]; ok {
			values[name] = chosen
		}
	}
	objects, err := chart.Render(charts.Release{Name: r.component, Namespace: r.namespace, Values: values})
	if err != nil {
		r.fail(path, errors.New(r.expressions.redacted(err.Error())))
		return
	}
	for _, o := range objects {
		if o.GetNamespace() == r.namespace {
			o.SetNamespace("")
		}
		r.object(path.Key(o.GetKind()+" "+o.GetName()), o)
	}
}

// chartOf returns the chart of a component.
func chartOf(known Charts, of *v1alpha1.WorkloadChart) (*charts.Chart, error) {
	if known == nil {
		return nil, fmt.Errorf("chart %s: is not known to this Sluice", of.From)
	}
	chart, err := known.Chart(of)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", of.From, err)
	}
	return chart, nil
}

// object adds an object that the plan describes as it is.
func (r *rendering) object(path *field.Path, o *unstructured.Unstructured) {
	if namespace := o.GetNamespace(); namespace != "" {
		r.fail(path.Child("metadata", "namespace"), fmt.Errorf("is %q; objects go to the instance's own namespace, so that it must be empty", namespace))
		return
	}
	if because := renderedOnly[o.GetKind()]; because != "" {
		r.fail(path.Child("kind"), fmt.Errorf("%s is refused: %s", o.GetKind(), because))
		return
	}
	if _, ttl, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "ttlSecondsAfterFinished"); ttl && o.GetKind() == "Job" {
		r.fail(path.Child("spec", "ttlSecondsAfterFinished"), errors.New("is refused: a Job that Kubernetes deletes would be created, and run, again"))
		return
	}
	if o.GroupVersionKind() == secrets {
		r.fail(path.Child("stringData"), encodeStrings(o.Object))
	}
	o.SetNamespace(r.namespace)
	r.fail(path, label(o.Object, r.component, "metadata"))
	if metadata := inPodTemplate(o, "metadata"); metadata != nil {
		r.fail(path, label(o.Object, r.component, metadata...))
	}
	r.objects = append(r.objects, o)
}

// renderedOnly are the kinds of objects that a plan does not describe as they are, and the reasons.
var renderedOnly = map[string]string{
	networkPolicies.Kind: "ports and their reach say who may connect",
	endpointSlices.Kind:  "Services have them",
	HTTPRoutes.Kind:      "a port with reach public has one",
	TLSRoutes.Kind:       "a port with reach public has one",
	TCPRoutes.Kind:       "a port with reach public has one",
	DNSEndpoints.Kind:    "a port with reach public has one where the operator wants it",
}

// encodeStrings moves the stringData of a Secret to its data, where the API server has it: so it is
// seen when somebody changes it.
func encodeStrings(secret map[string]any) error {
	texts, ok, err := unstructured.NestedStringMap(secret, "stringData")
	if err != nil || !ok {
		return err
	}
	delete(secret, "stringData")
	for name, text := range texts {
		if err := unstructured.SetNestedField(secret, base64.StdEncoding.EncodeToString([]byte(text)), "data", name); err != nil {
			return err
		}
	}
	return nil
}

// serves refuses a component with ports that no Service serves.
func (r *rendering) serves(c *v1alpha1.WorkloadComponent) {
	var ports []any
	for _, o := range r.objects {
		if o.GetKind() == "Service" && o.GetName() == c.ServiceName() {
			ports, _, _ = unstructured.NestedSlice(o.Object, "spec", "ports")
		}
	}
	for _, p := range c.Ports {
		if !slices.ContainsFunc(ports, func(served any) bool {
			one, _ := served.(map[string]any)
			number, _ := one["port"].(int64)
			return number == int64(p.Port)
		}) {
			r.fail(r.path.Child("ports").Key(p.Name), fmt.Errorf("no Service %s serves port %d", c.ServiceName(), p.Port))
		}
	}
}

// label sets the label of a component in the metadata at a path.
func label(object map[string]any, component string, path ...string) error {
	return unstructured.SetNestedField(object, component, append(append([]string{}, path...), "labels", v1alpha1.LabelComponent)...)
}

// podTemplates are the places of the pod templates in the kinds that have one.
var podTemplates = []struct {
	kind string
	path []string
}{
	{"Deployment", []string{"spec", "template"}},
	{"StatefulSet", []string{"spec", "template"}},
	{"Job", []string{"spec", "template"}},
	{"CronJob", []string{"spec", "jobTemplate", "spec", "template"}},
}

// inPodTemplate returns the path of a field of an object's pod template; nil for kinds without one.
func inPodTemplate(o *unstructured.Unstructured, field ...string) []string {
	for _, t := range podTemplates {
		if t.kind == o.GetKind() {
			return slices.Concat(t.path, field)
		}
	}
	return nil
}
