package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// secretType precedes the type of a Secret (Service Binding specification for Kubernetes 1.1, "Well-known Secret Entries").
const secretType = "servicebinding.io/"

// secret reads the claim's Secret; nil if there is none. A Secret that does not belong to the claim is a problem.
func (b *bindingPass) secret(ctx context.Context) (*corev1.Secret, *problem, error) {
	var secret corev1.Secret
	err := b.Client.Get(ctx, client.ObjectKey{Namespace: b.claim.Namespace, Name: b.claim.SecretName()}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read Secret %s: %w", b.claim.SecretName(), err)
	case !metav1.IsControlledBy(&secret, b.claim):
		return nil, &problem{
			reason: claimsv1.ReasonSecretConflict, after: firstRetry,
			message: fmt.Sprintf("there is a Secret %s that this claim does not own, and it is not touched: delete it, or claim with another secretName", secret.Name),
		}, nil
	}
	return &secret, nil, nil
}

// write puts credentials into the Secret, a new one if it is nil. A Secret that has changed since it was read is not
// written.
func (b *bindingPass) write(ctx context.Context, secret *corev1.Secret, want *wantedBinding, bound *osbclient.Binding, id string) error {
	data, err := dataOf(bound, b.service.Spec.Service, b.Name)
	if err != nil {
		return err
	}
	owner := metav1.NewControllerRef(b.claim, claimsv1.GroupVersion.WithKind("BindingClaim"))
	annotations := map[string]string{claimsv1.AnnotationBinding: id}
	if secret == nil {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: b.claim.Namespace, Name: b.claim.SecretName(), Annotations: annotations, OwnerReferences: []metav1.OwnerReference{*owner},
			},
			Type: corev1.SecretType(secretType + string(data["type"])), Data: data,
		}
		if err := b.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("create Secret %s: %w", secret.Name, err)
		}
		return nil
	}
	secret.Data = data
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, claimsv1.AnnotationBinding, id)
	if err := b.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("write Secret %s: %w", secret.Name, err)
	}
	return nil
}

// dataOf returns the entries of a Secret: the members of the credentials, texts as they are and the rest as JSON; the
// endpoints as JSON; and type and provider, unless the credentials have members of these names.
func dataOf(bound *osbclient.Binding, service, broker string) (map[string][]byte, error) {
	data := map[string][]byte{"type": []byte(service), "provider": []byte(broker)}
	if len(bound.Endpoints) > 0 {
		endpoints, err := json.Marshal(bound.Endpoints)
		if err != nil {
			return nil, fmt.Errorf("encode the endpoints: %w", err)
		}
		data["endpoints"] = endpoints
	}
	var members map[string]json.RawMessage
	if raw := bound.Credentials.Reveal(); len(raw) > 0 {
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, fmt.Errorf("the broker's credentials are no object") // without the cause, which may quote them
		}
	}
	for name, value := range members {
		var text string
		if json.Unmarshal(value, &text) == nil && string(value) != "null" {
			value = []byte(text)
		}
		data[entry(name)] = value
	}
	return data, nil
}

// entry returns the name of a Secret's entry for a member of the credentials: characters that an entry cannot have become
// underscores.
func entry(name string) string {
	const longest = 253
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	if clean = clean[:min(len(clean), longest)]; strings.Trim(clean, ".") == "" {
		return "_" + clean
	}
	return clean
}
