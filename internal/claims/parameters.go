package claims

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/jsonschema"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// parameters of an order.
type parameters struct {
	// document is an object; nil if there are none.
	document json.RawMessage
	// version of everything that document was made of, without the contents of Secrets.
	version string
	hide    redaction
}

// parametersOf reads the parameters of a claim. The problem is the consumer's, unless the API server does not answer.
func (c *Controller) parametersOf(ctx context.Context, namespace string, given *runtime.RawExtension, from []claimsv1.ParametersSource) (*parameters, *problem) {
	all, p := map[string]any{}, &parameters{}
	add := func(where string, document []byte) *problem {
		var object map[string]any
		if err := strictjson.DecodeYAML(document, &object); err != nil {
			return invalid("%s: want an object of parameters: %v", where, err)
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if _, twice := all[name]; twice {
				return invalid("%s: parameter %q is given twice", where, name)
			}
			all[name] = object[name]
		}
		return nil
	}
	if given != nil && len(bytes.TrimSpace(given.Raw)) > 0 {
		if wrong := add("spec.parameters", given.Raw); wrong != nil {
			return nil, wrong
		}
		p.version = string(given.Raw)
	}
	for i, source := range from {
		where, ref := fmt.Sprintf("spec.parametersFrom[%d]", i), source.SecretKeyRef
		var secret corev1.Secret
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &secret)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, &problem{reason: claimsv1.ReasonInvalidParameters, message: fmt.Sprintf("%s: read Secret %s: %v", where, ref.Name, err), err: err}
		}
		content, found := secret.Data[ref.Key]
		if !found {
			return nil, invalid("%s: there is no Secret %s with the key %s", where, ref.Name, ref.Key)
		}
		before := len(all)
		if wrong := add(where, content); wrong != nil {
			// What is wrong with a Secret is not told by its content.
			return nil, invalid("%s: key %s of Secret %s: want an object, as JSON or YAML, with parameters that are given nowhere else", where, ref.Key, ref.Name)
		}
		if len(all) > before {
			p.hide = append(p.hide, texts(content)...)
		}
		p.version += fmt.Sprintf("\x00%s/%s/%s", secret.UID, secret.ResourceVersion, ref.Key)
	}
	if len(all) > 0 {
		document, err := json.Marshal(all) // with sorted keys
		if err != nil {
			return nil, invalid("spec.parameters: %v", err)
		}
		p.document = document
	}
	return p, nil
}

// invalid returns the problem of parameters that are wrong. A Secret may be put right without a word.
func invalid(format string, args ...any) *problem {
	return &problem{reason: claimsv1.ReasonInvalidParameters, message: fmt.Sprintf(format, args...), after: firstRetry}
}

// texts returns the strings in a document that are to be hidden, the longest first.
func texts(document []byte) (found []string) {
	var value any
	if strictjson.DecodeYAML(document, &value) != nil {
		return nil
	}
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			for _, member := range node {
				walk(member)
			}
		case []any:
			for _, member := range node {
				walk(member)
			}
		case string:
			if len(node) >= shortestHidden {
				found = append(found, node)
			}
		}
	}
	walk(value)
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	return found
}

// checkSchema returns the problem of parameters that a plan's schema does not allow. A schema that cannot be used is left
// to the broker.
func (p *parameters) checkSchema(schema json.RawMessage) *problem {
	if len(schema) == 0 {
		return nil
	}
	compiled, err := jsonschema.Compile(schema)
	if err != nil {
		return nil
	}
	document := p.document
	if document == nil {
		document = json.RawMessage("{}")
	}
	value, err := jsonschema.Decode(document)
	if err != nil {
		return invalid("parameters: %v", err)
	}
	violation := compiled.Validate(value)
	if violation == nil {
		return nil
	}
	message := violation.Message
	if violation.Unknown {
		message = "the plan takes no such parameter"
	}
	return invalid("parameters%s: %s", violation.Path, p.hide.text(strings.TrimSuffix(message, ".")))
}

// hidden returns the texts that no message about a service claim repeats.
func (s *servicePass) hidden(ctx context.Context) redaction {
	if len(s.claim.Spec.ParametersFrom) == 0 {
		return nil
	}
	given, wrong := s.parametersOf(ctx, s.claim.Namespace, nil, s.claim.Spec.ParametersFrom)
	if wrong != nil {
		return nil // there is nothing any more that could be compared
	}
	return given.hide
}
