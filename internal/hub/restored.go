package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// Annotations on the identity's definition of a hub that was restored.
const (
	annotationRestored = "sluice.dev/restored-at"
	annotationFrom     = "sluice.dev/restored-from"
)

// RestoredMark says that a hub was restored from a backup, and does not know what was made after that: nobody but the
// operator may judge what it does not know.
type RestoredMark struct {
	// At is when it was restored, From when the backup was made.
	At   time.Time `json:"at"`
	From time.Time `json:"from"`
}

func (m *RestoredMark) String() string {
	return fmt.Sprintf("restored at %s from a backup of %s", m.At.Format(time.RFC3339), m.From.Format(time.RFC3339))
}

// markRestored returns a definition with the mark.
func markRestored(definition *unstructured.Unstructured, at, from time.Time) ([]byte, error) {
	annotations := definition.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationRestored], annotations[annotationFrom] = at.Format(time.RFC3339), from.Format(time.RFC3339)
	definition.SetAnnotations(annotations)
	return definition.MarshalJSON()
}

// markOf reads the mark of the identity's definition; nil if there is none.
func markOf(definition metav1.Object) (*RestoredMark, error) {
	annotations := definition.GetAnnotations()
	if annotations[annotationRestored] == "" {
		return nil, nil
	}
	at, errAt := time.Parse(time.RFC3339, annotations[annotationRestored])
	from, errFrom := time.Parse(time.RFC3339, annotations[annotationFrom])
	if err := errors.Join(errAt, errFrom); err != nil {
		return nil, fmt.Errorf("read the mark of a restored hub in the annotations of %s: %w", identityCRD, err)
	}
	return &RestoredMark{At: at, From: from}, nil
}

// Restored returns the mark of a hub that was restored; nil if it was not, or if that was released.
func Restored(ctx context.Context, config *rest.Config) (*RestoredMark, error) {
	definition, err := readIdentity(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("read whether the hub was restored: %w", err)
	}
	return markOf(definition)
}

// Release removes the mark of a restored hub. It is idempotent.
func Release(ctx context.Context, config *rest.Config) error {
	if err := annotate(ctx, config, map[string]any{annotationRestored: nil, annotationFrom: nil}); err != nil {
		return fmt.Errorf("remove the mark of a restored hub: %w", err)
	}
	return nil
}
