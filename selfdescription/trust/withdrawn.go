package trust

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/legacy"
)

// FieldSigned is the index of stored credentials by Credential.Signed; Signed makes its keys. Two with the same key are one
// credential in two forms.
const FieldSigned = "sluice.dev/signed"

// Parse reads a stored credential, of either form, without verifying it: its content may be forged.
func Parse(sd *v1alpha1.SelfDescription) (*selfdescription.Credential, error) {
	if sd.Spec.Legacy {
		return legacy.Parse(sd.Spec.Credential, sd.Spec.KeyID)
	}
	return selfdescription.Parse(sd.Spec.Credential)
}

// Signed returns the key of a credential for FieldSigned. A JSON-LD document that cannot be read has none.
func Signed(o client.Object) []string {
	sd := o.(*v1alpha1.SelfDescription)
	if !sd.Spec.Legacy {
		return []string{selfdescription.SignedOf(sd.Spec.Credential).String()}
	}
	signed, err := legacy.SignedOf(sd.Spec.Credential)
	if err != nil {
		return nil
	}
	return []string{signed.String()}
}

// Forms returns the stored forms of a credential. The hub must have the index FieldSigned. Do not change them.
func Forms(ctx context.Context, hub client.Reader, namespace string, signed selfdescription.Digest) ([]v1alpha1.SelfDescription, error) {
	var list v1alpha1.SelfDescriptionList
	err := hub.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{FieldSigned: signed.String()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the forms of a credential: %w", err)
	}
	return list.Items, nil
}

// Withdrawn returns a form of a credential that was withdrawn here; nil if none was. The hub must have the index
// FieldSigned. Do not change the result.
func Withdrawn(ctx context.Context, hub client.Reader, namespace string, signed selfdescription.Digest) (*v1alpha1.SelfDescription, error) {
	forms, err := Forms(ctx, hub, namespace, signed)
	for i := range forms {
		if forms[i].Spec.Revoked {
			return &forms[i], nil
		}
	}
	return nil, err
}
