package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Annotations on the identity's definition of a hub that moves. While there is one of them, no Sluice starts there.
const (
	// annotationMovedTo names the hub's new home, in the former one.
	annotationMovedTo = "sluice.dev/moved-to"
	annotationMovedAt = "sluice.dev/moved-at"
	// annotationArriving has the ID of the hub, in its new home until all of it is there.
	annotationArriving = "sluice.dev/arriving"
)

// home describes an API server that is, was or becomes a hub, by its identity's definition.
type home struct {
	// uid of the definition, id of the hub.
	uid, id string
	// movedTo is the new home; empty if the hub is here.
	movedTo, movedAt string
	// arriving is the ID of the hub that moves here; empty if none does.
	arriving string
	// restored has the annotations of a RestoredMark, if there are any.
	restored map[string]any
}

// readIdentity reads the identity's definition.
func readIdentity(ctx context.Context, config *rest.Config) (*apiextensionsv1.CustomResourceDefinition, error) {
	client, err := definitionsOf(config)
	if err != nil {
		return nil, err
	}
	definition, err := client.Get(ctx, identityCRD, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the hub's identity from definition %s: %w", identityCRD, err)
	}
	return definition, nil
}

func readHome(ctx context.Context, config *rest.Config) (*home, error) {
	definition, err := readIdentity(ctx, config)
	if err != nil {
		return nil, err
	}
	says := definition.Annotations
	h := &home{
		uid: string(definition.UID), id: string(v1alpha1.UIDOf(definition)),
		movedTo: says[annotationMovedTo], movedAt: says[annotationMovedAt], arriving: says[annotationArriving], restored: map[string]any{},
	}
	for _, name := range []string{annotationRestored, annotationFrom} {
		if says[name] != "" {
			h.restored[name] = says[name]
		}
	}
	return h, nil
}

// check returns an error with the remedy if the hub is not here, or not all of it.
func (h *home) check() error {
	switch {
	case h.movedTo != "":
		return fmt.Errorf("the hub moved from here to the %s, at %s: run Sluice there; if that move did not end, repeat `sluice hub move`", h.movedTo, h.movedAt)
	case h.arriving != "":
		return fmt.Errorf("hub %s is moving here, and not all of it has arrived: repeat `sluice hub move` where it comes from", h.arriving)
	}
	return nil
}

// identify reads which hub this is, and refuses one that is elsewhere unless it is to be moved.
func (h *Hub) identify(ctx context.Context, moving bool) error {
	is, err := readHome(ctx, h.Config)
	if err != nil {
		return err
	}
	h.ID, h.definition = is.id, is.uid
	if moving {
		return nil
	}
	return is.check()
}

// leave marks a hub as moved to another home: it does not start here again. It is idempotent.
func leave(ctx context.Context, config *rest.Config, to string) error {
	return annotate(ctx, config, map[string]any{annotationMovedTo: to, annotationMovedAt: time.Now().UTC().Format(time.RFC3339)})
}

// annotate changes annotations of the identity's definition; nil removes one.
func annotate(ctx context.Context, config *rest.Config, annotations map[string]any) error {
	client, err := definitionsOf(config)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	if _, err = client.Patch(ctx, identityCRD, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change annotations of definition %s: %w", identityCRD, err)
	}
	return nil
}

// unmarkMoved returns the identity's definition without the mark of the former home.
func unmarkMoved(definition *unstructured.Unstructured) ([]byte, error) {
	annotations := definition.GetAnnotations()
	delete(annotations, annotationMovedTo)
	delete(annotations, annotationMovedAt)
	definition.SetAnnotations(annotations)
	return definition.MarshalJSON()
}
