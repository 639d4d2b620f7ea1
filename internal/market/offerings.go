package market

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

const (
	// maxOffering is the longest offering, and maxOfferings and maxOfferingBytes what one provider may have of them.
	maxOffering      = 256 << 10
	maxOfferings     = 100
	maxOfferingBytes = 4 << 20
)

// offeringBody is an offering as its provider sees it.
type offeringBody struct {
	ID       string `json:"id"`
	Provider string `json:"provider,omitempty"`
	// ETag for If-Match.
	ETag string `json:"etag"`
	// Spec as it was put.
	Spec   json.RawMessage `json:"spec"`
	Status offeringStatus  `json:"status"`
}

// offeringStatus says whether the catalog serves an offering.
type offeringStatus struct {
	// State is served, refused, pending (the catalog has not judged the spec yet) or deleting (instances are left).
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

func bodyOf(o *v1alpha1.ServiceOffering) (*offeringBody, error) {
	spec := o.Spec.DeepCopy()
	spec.Provider = ""
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode offering %s: %w", o.Name, err)
	}
	body := &offeringBody{ID: o.Spec.ID, Provider: o.Spec.Provider, ETag: tagOf(o), Spec: raw, Status: offeringStatus{State: "pending"}}
	ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case o.DeletionTimestamp != nil:
		body.Status.State = "deleting"
	case ready == nil || ready.ObservedGeneration != o.Generation:
		return body, nil
	case ready.Status == metav1.ConditionTrue:
		body.Status.State = "served"
		return body, nil
	default:
		body.Status.State = "refused"
	}
	if ready != nil {
		body.Status.Message = ready.Message
	}
	return body, nil
}

// tagOf identifies the spec of an object. Its status may change without it.
func tagOf(o client.Object) string {
	return fmt.Sprintf("%q", fmt.Sprintf("%s-%d", o.GetUID(), o.GetGeneration()))
}

// owned returns the offerings that a caller may see here: a provider's own, or all.
func (s *server) owned(ctx context.Context, from client.Reader, caller access.Caller) (list v1alpha1.ServiceOfferingList, err error) {
	if err = from.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return list, fmt.Errorf("list service offerings: %w", err)
	}
	if caller.Role == access.Provider {
		list.Items = slices.DeleteFunc(list.Items, func(o v1alpha1.ServiceOffering) bool { return o.Spec.Provider != caller.Name })
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.ServiceOffering) int { return strings.Compare(a.Spec.ID, b.Spec.ID) })
	return list, nil
}

// offerings answers with the offerings of a provider, or all of them.
func (s *server) offerings(c *call) error {
	list, err := s.owned(c.Context(), s.Live, c.caller)
	if err != nil {
		return err
	}
	bodies := make([]*offeringBody, len(list.Items))
	for i := range list.Items {
		if bodies[i], err = bodyOf(&list.Items[i]); err != nil {
			return err
		}
	}
	writeJSON(c.ResponseWriter, http.StatusOK, map[string]any{"offerings": bodies})
	return nil
}

// found is an offering by its id; nil if there is none, with all others of the hub.
type found struct {
	*v1alpha1.ServiceOffering
	all []v1alpha1.ServiceOffering
}

// offering finds the offering in the URL. The error is an *Error if it is another's.
func (s *server) find(c *call) (id string, f found, err error) {
	if id, err = c.variable("id"); err != nil {
		return id, f, err
	}
	list, err := s.owned(c.Context(), s.Live, access.Caller{Role: access.Operator})
	if err != nil {
		return id, f, err
	}
	f.all = list.Items
	for i := range f.all {
		if f.all[i].Spec.ID != id {
			continue
		}
		// One that is refused because another has its id does not hide that one.
		if f.ServiceOffering == nil || f.all[i].Spec.Provider == c.caller.Name {
			f.ServiceOffering = &f.all[i]
		}
	}
	if f.ServiceOffering != nil && c.caller.Role == access.Provider && f.Spec.Provider != c.caller.Name {
		return id, f, &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: "The offering " + id + " is not " + c.caller.Name + "'s."}
	}
	return id, f, nil
}

func noOffering(id string) *Error {
	return &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "There is no offering " + id + "."}
}

// answer writes an offering.
func (c *call) answer(status int, o *v1alpha1.ServiceOffering) error {
	body, err := bodyOf(o)
	if err != nil {
		return err
	}
	c.ResponseWriter.Header().Set("ETag", body.ETag)
	writeJSON(c.ResponseWriter, status, body)
	return nil
}

func (s *server) getOffering(c *call) error {
	id, f, err := s.find(c)
	if err != nil {
		return err
	}
	if f.ServiceOffering == nil {
		return noOffering(id)
	}
	return c.answer(http.StatusOK, f.ServiceOffering)
}

// ifMatch checks the precondition for a change of what exists (RFC 9110, section 13.1.1). The error is an *Error.
func (c *call) ifMatch(o client.Object) error {
	switch given := c.Request.Header.Get("If-Match"); given {
	case "":
		return &Error{Status: http.StatusPreconditionRequired, Code: "PreconditionRequired", Description: "If-Match: want the ETag of what is to be changed, so that nobody else's change is lost."}
	case tagOf(o), "*": // whatever it is (RFC 9110, section 13.1.1)
		return nil
	default:
		return &Error{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed", Description: "If-Match: it has changed; its ETag is " + tagOf(o) + "."}
	}
}

// ifAbsent checks the precondition for making what does not exist (RFC 9110, section 13.1.1). The error is an *Error.
func (c *call) ifAbsent(what string) error {
	if c.Request.Header.Get("If-Match") == "" {
		return nil
	}
	return &Error{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed", Description: "If-Match: there is no " + what + "."}
}

// change carries out a change of the object in the URL, which is of a kind. try reads the object, checks the
// precondition and writes; it is repeated while others write what is not in the ETag, as a status or a finalizer. Its error
// is an *Error or the hub's.
func (c *call) change(kind string, try func() error) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, try)
	if refused := (*Error)(nil); err == nil || errors.As(err, &refused) {
		return err
	}
	id, _ := c.variable("id") // try has read it
	return writeError(err, kind+" "+id)
}

// putOffering makes an offering, or replaces its spec.
func (s *server) putOffering(c *call) error {
	end, err := s.writes.begin(c.caller, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	spec, err := decodeOffering(c)
	if err != nil {
		return err
	}
	spec.Provider = c.caller.Name
	var o *v1alpha1.ServiceOffering
	status := http.StatusOK
	err = c.change("offering", func() error {
		id, f, err := s.find(c)
		if err != nil {
			return err
		}
		if spec.ID != id {
			return badRequest("id: want %q, which is in the URL, got %q.", id, spec.ID)
		}
		if err := f.admits(c.caller.Name, spec); err != nil {
			return err
		}
		if o = f.ServiceOffering; o != nil {
			if err := c.ifMatch(o); err != nil {
				return err
			}
			o.Spec = *spec
			return s.Hub.Update(c.Context(), o)
		}
		if err := c.ifAbsent("offering " + id); err != nil {
			return err
		}
		status = http.StatusCreated
		o = &v1alpha1.ServiceOffering{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: v1alpha1.OfferingName(id)}, Spec: *spec}
		return s.Hub.Create(c.Context(), o)
	})
	if err != nil {
		return err
	}
	if status == http.StatusCreated {
		s.Logger.InfoContext(c.Context(), "an offering was made", "provider", c.caller.Name, "offering", o.Name)
	}
	return c.answer(status, o)
}

// decodeOffering reads the spec of an offering, strictly.
func decodeOffering(c *call) (*v1alpha1.ServiceOfferingSpec, error) {
	// What the hub's defaults would set if it were absent.
	spec := &v1alpha1.ServiceOfferingSpec{Bindable: true, PlanUpdateable: true, AllowContextUpdates: true, BindingRotatable: true}
	if err := c.decode(maxOffering, spec); err != nil {
		return nil, err
	}
	if spec.Provider != "" && spec.Provider != c.caller.Name {
		return nil, &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: "provider: want " + c.caller.Name + " or nothing."}
	}
	return spec, nil
}

// decode reads a JSON object, without members that are not known. The error is an *Error.
func (c *call) decode(most int64, into any) error {
	err := strictjson.Decode(c.Body, strictjson.Limits{Object: true, KnownMembers: true, Float64: true, Bytes: most}, into)
	malformed := (*strictjson.Error)(nil)
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &malformed):
		return badRequest("Body: cannot be read to its end.")
	case malformed.Kind == strictjson.TooLarge:
		_, _ = io.CopyN(io.Discard, c.Body, 4*most) // so that the client reads the answer
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "RequestTooLarge", Description: fmt.Sprintf("Body: longer than %d bytes.", most)}
	}
	return badRequest("Body: %s.", malformed)
}

// admits checks that a provider may have an offering beside those that there are: ids and names are not another's,
// and it has not too many.
func (f found) admits(provider string, spec *v1alpha1.ServiceOfferingSpec) error {
	count, size := 1, sizeOf(spec)
	var before *v1alpha1.ServiceOfferingSpec
	if f.ServiceOffering != nil {
		before = f.Status.Accepted
	}
	if spec.HasPlan(spec.ID) && !before.HasPlan(spec.ID) {
		return badRequest("plans.id: %q is the offering's.", spec.ID)
	}
	for i := range f.all {
		other := &f.all[i]
		if other == f.ServiceOffering {
			continue
		}
		if other.Spec.Provider == provider {
			count, size = count+1, size+sizeOf(&other.Spec)
		}
		if c := catalog.CollisionOf(spec, &other.Spec, before); c != nil {
			return &Error{Status: http.StatusConflict, Code: "Conflict", Description: fmt.Sprintf("%s: %q is another offering's.", c.Field, c.Value)}
		}
	}
	if count > maxOfferings || size > maxOfferingBytes {
		return &Error{Status: http.StatusForbidden, Code: "LimitReached",
			Description: fmt.Sprintf("%s would have %d offerings of %d bytes together; at most %d and %d are allowed.", provider, count, size, maxOfferings, maxOfferingBytes)}
	}
	return nil
}

func sizeOf(spec *v1alpha1.ServiceOfferingSpec) int {
	raw, _ := json.Marshal(spec) // it was decoded from JSON
	return len(raw)
}

// writeError makes refusals of the hub those of the market.
func writeError(err error, what string) error {
	status := (apierrors.APIStatus)(nil)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &Error{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed", Description: "The " + what + " was changed at this moment; read it again."}
	case apierrors.IsNotFound(err):
		return &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "The " + what + " is gone."}
	case (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) && errors.As(err, &status):
		return &Error{Status: http.StatusUnprocessableEntity, Code: "Invalid", Description: "The " + what + " is not valid: " + causes(status.Status()) + "."}
	}
	return fmt.Errorf("write %s: %w", what, err)
}

// causes names the fields that the hub refuses.
func causes(status metav1.Status) string {
	if status.Details == nil || len(status.Details.Causes) == 0 {
		return status.Message
	}
	var texts []string
	for _, cause := range status.Details.Causes {
		texts = append(texts, strings.TrimPrefix(cause.Field, "spec.")+": "+cause.Message)
	}
	return strings.Join(texts, "; ")
}

// deleteOffering ends an offering. It sells no more; it is gone once it has no instances.
func (s *server) deleteOffering(c *call) error {
	end, err := s.writes.begin(c.caller, s.Clock.Now())
	if err != nil {
		return err
	}
	defer end()
	id, f, err := s.find(c)
	if err != nil {
		return err
	}
	if f.ServiceOffering == nil {
		return noOffering(id)
	}
	if err := c.ifMatch(f.ServiceOffering); err != nil {
		return err
	}
	uid := f.UID
	err = s.Hub.Delete(c.Context(), f.ServiceOffering, client.Preconditions{UID: &uid})
	if err != nil {
		return writeError(err, "offering "+id)
	}
	c.ResponseWriter.WriteHeader(http.StatusNoContent)
	return nil
}
