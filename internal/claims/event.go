package claims

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
)

// longestNote is the length of an Event's note, in bytes, that the API takes.
const longestNote = 1024

// tell makes an Event of a claim's new reason. Like all Events, it is lost if the process is killed before it is sent;
// the condition is not.
func (c *Controller) tell(claim client.Object, reason, message string) {
	if c.Events == nil {
		return
	}
	kind := corev1.EventTypeWarning
	switch reason {
	case claimsv1.ReasonReady, claimsv1.ReasonInProgress, claimsv1.ReasonDeleting, claimsv1.ReasonServiceNotReady:
		kind = corev1.EventTypeNormal
	}
	if len(message) > longestNote {
		message = strings.ToValidUTF8(message[:longestNote-len("…")], "") + "…"
	}
	c.Events.Eventf(claim, nil, kind, reason, "CarryOut", "%s", message)
}
