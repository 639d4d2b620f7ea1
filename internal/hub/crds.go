package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/charts"
)

// fieldManager owns the definitions that this package applies.
const fieldManager = "sluice"

// pollInterval is how often a condition of the API server is checked if there is no watch for
// it.
const pollInterval = 20 * time.Millisecond

// installRemedy ends every error about absent definitions.
const installRemedy = "install them with: kubectl apply --server-side -f charts/sluice/crds (the Helm chart does it too)"

// readCRDs reads every definition below root, in the order of the file names.
func readCRDs(root fs.FS) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return fmt.Errorf("decode %s: %w", name, err)
		}
		crds = append(crds, crd)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the definitions: %w", err)
	}
	if len(crds) == 0 {
		return nil, errors.New("read the definitions: there are none")
	}
	return crds, nil
}

// definitionsOf returns a client for the definitions of a hub.
func definitionsOf(config *rest.Config) (apiextensionsclient.CustomResourceDefinitionInterface, error) {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for definitions: %w", err)
	}
	return client.ApiextensionsV1().CustomResourceDefinitions(), nil
}

// applyCRDs creates or updates the definitions by server-side apply. It does not write a
// definition that is already as wanted. It retries until ctx ends if the server does not answer
// yet.
func applyCRDs(ctx context.Context, config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	client, err := definitionsOf(config)
	if err != nil {
		return err
	}
	force := true
	for _, crd := range crds {
		patch, err := applyPatch(crd)
		if err != nil {
			return err
		}
		err = pollUntilDone(ctx, func(ctx context.Context) error {
			_, err := client.Patch(ctx, crd.Name, types.ApplyPatchType, patch,
				metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
			return err
		}, isRefusal)
		if err != nil {
			return fmt.Errorf("apply definition %s: %w", crd.Name, err)
		}
	}
	return nil
}

// outdatedCRDs returns the definitions that the server lacks, has in another form, or has not
// established yet. To apply all of them at every start would take a quarter of the start's CPU
// time. It retries until ctx ends if the server does not answer yet.
func outdatedCRDs(ctx context.Context, config *rest.Config, wanted []*apiextensionsv1.CustomResourceDefinition) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	client, err := definitionsOf(config)
	if err != nil {
		return nil, err
	}
	installed := map[string]*apiextensionsv1.CustomResourceDefinition{}
	err = pollUntilDone(ctx, func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			installed[list.Items[i].Name] = &list.Items[i]
		}
		return nil
	}, isRefusal)
	if err != nil {
		return nil, fmt.Errorf("list the definitions: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(want *apiextensionsv1.CustomResourceDefinition) bool {
		have := installed[want.Name]
		return have != nil && establishedCondition(have) != nil && isAsWanted(have, want)
	}), nil
}

// isAsWanted reports whether an installed definition has the wanted specification, with the
// server's defaults, and the wanted labels and annotations.
func isAsWanted(have, want *apiextensionsv1.CustomResourceDefinition) bool {
	want = want.DeepCopy()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(want)
	return equality.Semantic.DeepEqual(have.Spec, want.Spec) &&
		equality.Semantic.DeepDerivative(want.Labels, have.Labels) && equality.Semantic.DeepDerivative(want.Annotations, have.Annotations)
}

// applyPatch is the definition as an apply configuration: without the status
// and creation time that the Go type always writes.
func applyPatch(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	encoded, err := json.Marshal(crd)
	if err != nil {
		return nil, fmt.Errorf("encode definition %s: %w", crd.Name, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return nil, fmt.Errorf("encode definition %s: %w", crd.Name, err)
	}
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	fields["apiVersion"] = apiextensionsv1.SchemeGroupVersion.String()
	fields["kind"] = "CustomResourceDefinition"
	return json.Marshal(fields)
}

// isRefusal reports whether the server rejected a request, as opposed to not being ready for
// it.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// establishedDelay is how long after a definition was established the API server delays the
// first creations of its objects, so that its replicas learn of the definition.
const establishedDelay = 2 * time.Second

// backdateEstablished waits until the definitions are established. It then moves the time of a
// recent condition into the past, so that the first objects are not delayed by
// establishedDelay. Only for a server without replicas.
func backdateEstablished(ctx context.Context, config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	client, err := definitionsOf(config)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		err := pollUntilDone(ctx, func(ctx context.Context) error {
			have, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			established := establishedCondition(have)
			if established == nil {
				return errors.New("not established")
			}
			if time.Since(established.LastTransitionTime.Time) > establishedDelay {
				return nil
			}
			established.LastTransitionTime = metav1.NewTime(established.LastTransitionTime.Add(-2 * establishedDelay))
			_, err = client.UpdateStatus(ctx, have, metav1.UpdateOptions{})
			return err
		}, isRefusal)
		if err != nil {
			return fmt.Errorf("wait until definition %s is established: %w", crd.Name, err)
		}
	}
	return nil
}

// establishedCondition returns the definition's condition Established if it is true, and nil
// otherwise.
func establishedCondition(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	for i := range crd.Status.Conditions {
		condition := &crd.Status.Conditions[i]
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return condition
		}
	}
	return nil
}

// awaitServed returns when every served version of the definitions can be listed, and is in the
// server's discovery, by which clients find it. Both are later than the condition Established, which
// the server writes before its own request handlers know the definition. It also makes the server
// build the storage of each resource now, not during the first request.
func awaitServed(ctx context.Context, config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for resources: %w", err)
	}
	known, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for discovery: %w", err)
	}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural}
			err := pollUntilDone(ctx, func(ctx context.Context) error {
				if _, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
					return err
				}
				return discovered(known, resource)
			}, isRefusal)
			if err != nil {
				return fmt.Errorf("wait until %s is served: %w", resource.GroupResource(), err)
			}
		}
	}
	return nil
}

// discovered returns an error unless a resource is in the server's discovery.
func discovered(known discovery.ServerResourcesInterface, resource schema.GroupVersionResource) error {
	list, err := known.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }) {
		return fmt.Errorf("%s is not in the discovery yet", resource.GroupResource())
	}
	return nil
}

// pollUntilDone repeats try until it succeeds, fails with an error that is forGood, or ctx
// ends. In the last case the returned error contains the last error of try.
func pollUntilDone(ctx context.Context, try func(context.Context) error, forGood func(error) bool) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if err == nil {
			return true, nil
		}
		if forGood(err) {
			return false, err
		}
		if ctx.Err() == nil {
			last = err
		}
		return false, nil
	})
	if err != nil && last != nil && wait.Interrupted(err) {
		return fmt.Errorf("%w; last answer: %w", err, last)
	}
	return err
}

// verifyCRDs checks that a remote hub serves every definition in the versions that this binary
// uses. For a definition with another schema than this binary's it only logs a warning: during
// an upgrade either may be newer.
func verifyCRDs(ctx context.Context, config *rest.Config, wanted []*apiextensionsv1.CustomResourceDefinition, logger *slog.Logger) error {
	differ, err := compareCRDs(ctx, config, wanted)
	for _, name := range differ {
		logger.WarnContext(ctx, "the hub's definition differs from this binary's; fields it does not know are dropped", "definition", name)
	}
	return err
}

// CompareDefinitions returns the names of the definitions of which the hub has another schema than this binary. It is
// an error that names the remedy if the hub lacks some.
func CompareDefinitions(ctx context.Context, config *rest.Config) (differ []string, err error) {
	wanted, err := readCRDs(charts.CRDs)
	if err != nil {
		return nil, err
	}
	return compareCRDs(ctx, config, wanted)
}

func compareCRDs(ctx context.Context, config *rest.Config, wanted []*apiextensionsv1.CustomResourceDefinition) (differ []string, err error) {
	client, err := definitionsOf(config)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, want := range wanted {
		have, err := client.Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, want.Name)
			continue
		case apierrors.IsForbidden(err):
			return nil, fmt.Errorf("get definition %s: not allowed; grant \"get\" on customresourcedefinitions.apiextensions.k8s.io as the Helm chart's ClusterRole does: %w", want.Name, err)
		case err != nil:
			return nil, fmt.Errorf("get definition %s: %w", want.Name, err)
		}
		if why := unusable(have, want); why != "" {
			missing = append(missing, want.Name+" ("+why+")")
			continue
		}
		if !sameSchemas(have, want) {
			differ = append(differ, want.Name)
		}
	}
	if len(missing) > 0 {
		return differ, fmt.Errorf("the hub lacks the definitions %s; %s", strings.Join(missing, ", "), installRemedy)
	}
	return differ, nil
}

// unusable returns why an installed definition cannot be used; empty if it can.
func unusable(have, want *apiextensionsv1.CustomResourceDefinition) string {
	for _, version := range want.Spec.Versions {
		served := slices.ContainsFunc(have.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version.Name && v.Served
		})
		if version.Served && !served {
			return "version " + version.Name + " is not served"
		}
	}
	if establishedCondition(have) == nil {
		return "not established"
	}
	return ""
}

func sameSchemas(have, want *apiextensionsv1.CustomResourceDefinition) bool {
	for _, version := range want.Spec.Versions {
		same := slices.ContainsFunc(have.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version.Name && equality.Semantic.DeepEqual(v.Schema, version.Schema)
		})
		if !same {
			return false
		}
	}
	return true
}

// Identity reads a hub's ID (see Hub.ID) through its API server.
func Identity(ctx context.Context, config *rest.Config) (string, error) {
	is, err := readHome(ctx, config)
	if err != nil {
		return "", err
	}
	return is.id, nil
}
