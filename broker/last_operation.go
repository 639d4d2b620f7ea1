package broker

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// lastOperation answers GET /v2/service_instances/:id/last_operation (OSB 2.17,
// "Polling Last Operation for Service Instances"). It reads live and writes nothing.
//
// The query parameters service_id and plan_id are hints and not needed: after a
// change of plan, plan_id names the old one, which nobody remembers.
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

// token is the operation that a platform is given to poll with. That of a deletion proves
// that it was given: when the resource is gone, nothing else tells that there was one.
func (s *server) token(name string, o v1alpha1.Operation) string {
	text := v1alpha1.OperationToken{Type: o.Type, Generation: o.Generation}.String()
	if o.Type != v1alpha1.OperationDeprovision && o.Type != v1alpha1.OperationUnbind {
		return text
	}
	return text + proofSeparator + base64.RawURLEncoding.EncodeToString(s.Keys.Mark(operationOf(name, text)))
}

// proofSeparator parts a token of a deletion from its proof.
const proofSeparator = "."

// operationOf is what a proof is about: one operation of one resource.
func operationOf(name, token string) []byte { return []byte("operation/" + name + "/" + token) }

// asked is the query parameter operation.
type asked struct {
	// OperationToken is zero for one that was not given for this resource; platforms do
	// send such.
	v1alpha1.OperationToken
	// none says that the parameter is absent or empty.
	none bool
}

// operation reads the query parameter of that name, about the resource of that name.
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

// isOver reports whether a poll for a deletion finds a resource that is not being
// deleted: one of the same id that was made since.
func isOver(asked asked, deletion v1alpha1.OperationType, deleting bool) bool {
	return asked.Type == deletion && !deleting
}

// deletedOperation answers a poll about a resource that is not there: only a poll
// that names a deletion gets to hear that it is gone, and one that names no operation
// where the platform is known to wait for success so.
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

// instanceOperationAsked is the operation that a token names, or the one in hand.
func instanceOperationAsked(i *v1alpha1.ServiceInstance, asked v1alpha1.OperationToken) v1alpha1.Operation {
	current := instanceOperation(i)
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
