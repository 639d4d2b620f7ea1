package broker

import (
	"encoding/base64"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// lastOperation answers GET /v2/service_instances/:id/last_operation (OSB 2.17, "Polling
// Last Operation for Service Instances"). It reads the hub without a cache and writes nothing.
//
// The query parameters service_id and plan_id are hints and are ignored: after a change of
// plan, plan_id still names the old one, which is not stored.
//
// Step 7 of a provision (docs/architecture.md).
func (s *server) lastOperation(c *call) (*reply, error) {
	asked, err := s.operation(c, v1alpha1.InstanceName(c.platform.Name, c.instanceID))
	if err != nil {
		return nil, err
	}
	i, err := s.findInstance(c)
	if err != nil {
		return nil, err
	}
	if i == nil || isOver(asked, v1alpha1.OperationDeprovision, i.DeletionTimestamp != nil) {
		return c.deletedOperation(asked, v1alpha1.OperationDeprovision, errNoInstance)
	}
	return s.operationReply(c, instanceOperationAsked(i, asked.OperationToken)), nil
}

// token returns the operation string with which a platform polls. For a deletion it
// contains a proof that the broker issued it: once the resource is gone, nothing else shows
// that it existed.
func (s *server) token(of metav1.Object, o v1alpha1.Operation) string {
	text := v1alpha1.OperationToken{Type: o.Type, Generation: o.Generation + v1alpha1.GenerationsBefore(of)}.String()
	if o.Type != v1alpha1.OperationDeprovision && o.Type != v1alpha1.OperationUnbind {
		return text
	}
	return text + proofSeparator + base64.RawURLEncoding.EncodeToString(s.Keys.Mark(operationOf(of.GetName(), text)))
}

// proofSeparator separates the token of a deletion from its proof.
const proofSeparator = "."

// operationOf returns the bytes that a proof authenticates: one operation of one resource.
func operationOf(name, token string) []byte { return []byte("operation/" + name + "/" + token) }

// asked is the parsed query parameter operation.
type asked struct {
	// OperationToken is zero if the parameter was not issued for this resource; platforms do send
	// such values.
	v1alpha1.OperationToken
	// none reports that the parameter is absent or empty.
	none bool
}

// operation reads the query parameter operation, for the resource with the given name.
func (s *server) operation(c *call, name string) (asked, error) {
	text, _, err := single(c.query, "operation")
	if err != nil {
		return asked{}, err
	}
	text, proof, proven := strings.Cut(text, proofSeparator)
	token, _ := v1alpha1.ParseOperationToken(text)
	if token.Type == v1alpha1.OperationDeprovision || token.Type == v1alpha1.OperationUnbind {
		mark, err := base64.RawURLEncoding.DecodeString(proof)
		if !proven || err != nil || !s.Keys.Marked(operationOf(name, text), mark) {
			token = v1alpha1.OperationToken{}
		}
	}
	return asked{OperationToken: token, none: text == ""}, nil
}

// isOver reports whether a poll for a deletion finds a resource that is not being deleted:
// a newer one with the same id.
func isOver(asked asked, deletion v1alpha1.OperationType, deleting bool) bool {
	return asked.Type == deletion && !deleting
}

// deletedOperation answers a poll for a resource that does not exist. It reports the
// deletion only to polls that name a deletion and, on platforms with DeletedSucceeded, to
// polls that name no operation.
func (c *call) deletedOperation(asked asked, deletion v1alpha1.OperationType, absent *Error) (*reply, error) {
	likesSuccess := c.platform.DeletedLastOperation == DeletedSucceeded
	if asked.Type != deletion && !(asked.none && likesSuccess) {
		return nil, absent
	}
	if likesSuccess {
		done := v1alpha1.Operation{State: v1alpha1.StateSucceeded}
		return &reply{status: http.StatusOK, body: lastOperationResponse(done, c.version)}, nil
	}
	return nil, errGone
}

// instanceOperationAsked returns the operation that a token names, or the current one.
func instanceOperationAsked(i *v1alpha1.ServiceInstance, asked v1alpha1.OperationToken) v1alpha1.Operation {
	current := instanceOperation(i)
	asked.Generation -= v1alpha1.GenerationsBefore(i)
	if asked.Type == current.Type && asked.Generation == current.Generation {
		return current
	}
	earlier := v1alpha1.Operation{Type: asked.Type, Generation: asked.Generation, State: v1alpha1.StateFailed}
	switch {
	case asked.Type == v1alpha1.OperationProvision && asked.Generation < current.Generation:
		if i.Status.Delivered != nil {
			earlier.State = v1alpha1.StateSucceeded
			return earlier
		}
		if i.DeletionTimestamp != nil {
			earlier.Summary = "halted: the instance is being deprovisioned"
			return earlier
		}
	case asked.Type == v1alpha1.OperationUpdate && asked.Generation < current.Generation:
		usable := i.DeletionTimestamp == nil
		if d := i.Status.Delivered; d != nil && d.Decision.Generation >= asked.Generation {
			earlier.State = v1alpha1.StateSucceeded
			return earlier
		}
		earlier.Summary, earlier.InstanceUsable, earlier.UpdateRepeatable = "superseded by a later operation", &usable, &usable
		return earlier
	}
	return current
}

func (s *server) operationReply(c *call, o v1alpha1.Operation) *reply {
	r := &reply{status: http.StatusOK, body: lastOperationResponse(o, c.version)}
	if inProgress(o) {
		r.retryAfter = retryAfter(o.StartedAt.Time, s.Clock.Now())
	}
	return r
}
