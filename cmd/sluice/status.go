package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/pages"
)

func newStatusCommand(flags *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Count what there is, and list what is not ready, and why",
		Long: `Count the clusters, brokers, credentials of providers, policies, offerings, peerings, instances, bindings and event
sinks, and list each that is not ready, with the reason: the one that has been so for longest comes first. What is
being changed at the moment is listed as well with -o wide.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(cmd)
			if err != nil {
				return err
			}
			o, err := look(cmd.Context(), c, flags.namespace)
			if err != nil {
				return err
			}
			config, err := flags.config(cmd)
			if err != nil {
				return err
			}
			if o.Restored, err = hub.Restored(cmd.Context(), config); err != nil && !apierrors.IsForbidden(err) {
				return err
			}
			if !output.forPeople() {
				return output.print(cmd.OutOrStdout(), o, table{})
			}
			return o.write(cmd.OutOrStdout(), output == outputWide)
		},
	}
	flags.bind(cmd)
	output.bind(cmd)
	return cmd
}

// overview is the state of a marketplace.
type overview struct {
	// Restored is the mark of a hub that was restored from a backup and has not been released; nil if there is none.
	Restored  *hub.RestoredMark `json:"restored,omitempty"`
	Resources []counted         `json:"resources"`
	// NotReady holds the resources that are not ready, the oldest first.
	NotReady []trouble `json:"notReady,omitempty"`
	// Changing holds those that something is being done with.
	Changing []trouble `json:"changing,omitempty"`
}

// counted counts the resources of a kind, by their condition Ready.
type counted struct {
	What     string `json:"what"`
	All      int    `json:"all"`
	Ready    int    `json:"ready"`
	Changing int    `json:"changing"`
	NotReady int    `json:"notReady"`
}

// trouble is a resource that is not ready.
type trouble struct {
	What    string      `json:"what"`
	Name    string      `json:"name"`
	Since   metav1.Time `json:"since"`
	Reason  string      `json:"reason"`
	Message string      `json:"message,omitempty"`
}

// kinds with the condition Ready, as their resources are called.
var kinds = []struct {
	kind string
	what []string
}{
	{"MemberCluster", []string{"cluster", "broker"}}, {"SelfDescription", []string{"credential"}}, {"PlacementPolicy", []string{"policy"}},
	{"ServiceOffering", []string{"offering"}}, {"Peering", []string{"peering"}}, {"ServiceInstance", []string{"instance"}}, {"ServiceBinding", []string{"binding"}},
	{"EventSink", []string{"event sink"}},
}

// look reads everything that has the condition Ready, each kind once.
func look(ctx context.Context, hub client.Client, namespace string) (*overview, error) {
	o := &overview{}
	for _, k := range kinds {
		var rows []counted
		for _, what := range k.what {
			rows = append(rows, counted{What: what})
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(k.kind + "List"))
		err := pages.Each(ctx, hub, list, func(object client.Object) error {
			u, row := object.(*unstructured.Unstructured), &rows[0]
			if isBroker(u) {
				row = &rows[1]
			}
			o.judge(row, u)
			return nil
		}, client.InNamespace(namespace))
		if err != nil {
			return nil, fmt.Errorf("list what is of kind %s: %w", k.kind, err)
		}
		o.Resources = append(o.Resources, rows...)
	}
	for _, troubles := range [][]trouble{o.NotReady, o.Changing} {
		slices.SortStableFunc(troubles, func(a, b trouble) int { return a.Since.Compare(b.Since.Time) })
	}
	return o, nil
}

// isBroker reports whether a resource is a member cluster that is another broker.
func isBroker(u *unstructured.Unstructured) bool {
	driver, _, _ := unstructured.NestedString(u.Object, "spec", "driver")
	return u.GetKind() == "MemberCluster" && driver == v1alpha1.DriverOSB
}

// judge counts a resource, and notes it if it is not ready.
func (o *overview) judge(row *counted, u *unstructured.Unstructured) {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if said, isObject := u.Object["status"].(map[string]any); isObject {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(said, &status) // the definition has this schema
	}
	row.All++
	found := trouble{What: row.What, Name: nameOf(u), Since: u.GetCreationTimestamp(), Reason: "New"}
	isChanging := true
	if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready != nil {
		if ready.Status == metav1.ConditionTrue {
			row.Ready++
			return
		}
		found.Since, found.Reason, found.Message = ready.LastTransitionTime, ready.Reason, ready.Message
		isChanging = ready.Reason == v1alpha1.ReasonInProgress || ready.Reason == v1alpha1.ReasonDeleting
	}
	if placed := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPlaced); isChanging && placed != nil && placed.Reason == v1alpha1.ReasonUnplaceable {
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

// nameOf names a resource as its commands do: by the ids that a platform chose, or else by its name.
func nameOf(u *unstructured.Unstructured) string {
	var ids []string
	for _, field := range []string{"platform", "instanceID", "bindingID"} {
		if id, _, _ := unstructured.NestedString(u.Object, "spec", field); id != "" {
			ids = append(ids, id)
		}
	}
	return cmp.Or(strings.Join(ids, "/"), u.GetName())
}

// write prints the overview for people.
func (o *overview) write(w io.Writer, wide bool) error {
	t := table{header: []string{"WHAT", "ALL", "READY", "CHANGING", "NOT READY"}}
	for _, r := range o.Resources {
		t.rows = append(t.rows, []string{r.What, fmt.Sprint(r.All), fmt.Sprint(r.Ready), fmt.Sprint(r.Changing), fmt.Sprint(r.NotReady)})
	}
	if err := t.write(w, wide); err != nil {
		return err
	}
	troubles := o.NotReady
	if wide {
		troubles = append(troubles, o.Changing...)
	}
	if o.Restored != nil {
		fmt.Fprintf(w, "\nThe hub was %s. `sluice collect` lists what was made since; nothing of it is removed before `sluice hub release`.\n", o.Restored)
	} else if len(troubles) == 0 {
		_, err := fmt.Fprintln(w, "\nNothing needs attention.")
		return err
	}
	if len(troubles) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t = table{header: []string{"WHAT", "NAME", "FOR", "REASON", "MESSAGE"}}
	for _, one := range troubles {
		t.rows = append(t.rows, []string{one.What, one.Name, age(one.Since), one.Reason, orDash(one.Message)})
	}
	return t.write(w, wide)
}
