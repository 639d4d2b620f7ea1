package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/legacy"
	"github.com/sluice-dev/sluice/selfdescription/shape"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

const (
	// lookAgain is how long a good result is valid before keys and status lists are fetched
	// again. The answers of did:web hosts and status lists are cached for less.
	lookAgain = time.Hour
	// mostStale is how long a good result is valid while they cannot be fetched.
	mostStale = 24 * time.Hour
	// retryUnreachable is the shortest delay of a retry in that case.
	retryUnreachable = time.Minute
	// verifyWorkers is more than one because a worker may wait for a host that does not answer.
	// After a restart the queue puts new credentials before those that existed.
	verifyWorkers = 4
)

// verification keeps the status of SelfDescriptions up to date.
type verification struct {
	Options
	hub client.Client
}

func (r *verification) setup(mgr ctrl.Manager) error {
	provider := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		return r.of(ctx, o.(*v1alpha1.Provider).Spec.DID)
	})
	consumer := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		return r.of(ctx, o.(*v1alpha1.Consumer).Spec.DID)
	})
	issuer := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		return r.of(ctx, o.(*v1alpha1.TrustedIssuer).Spec.DID)
	})
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.SelfDescription{}, trust.FieldSigned, trust.Signed); err != nil {
		return fmt.Errorf("index credentials by what was signed: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("selfdescription").
		For(&v1alpha1.SelfDescription{}).
		Watches(&v1alpha1.SelfDescription{}, handler.EnqueueRequestsFromMapFunc(r.otherForms), specChanged).
		Watches(&v1alpha1.Provider{}, provider, specChanged).
		Watches(&v1alpha1.Consumer{}, consumer, specChanged).
		Watches(&v1alpha1.TrustedIssuer{}, issuer, specChanged).
		WithOptions(controller.Options{MaxConcurrentReconciles: verifyWorkers}).
		Complete(requeue.OnConflict(r))
}

// of returns requests for the credentials to verify when the operator's settings for a DID have
// changed: those that it issued, and those that were not valid.
func (r *verification) of(ctx context.Context, did string) (requests []ctrl.Request) {
	var list v1alpha1.SelfDescriptionList
	if err := r.hub.List(ctx, &list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache was stopped
	}
	for i := range list.Items {
		if s := &list.Items[i].Status; s.Issuer == did || s.State != v1alpha1.CredentialVerified {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// otherForms returns requests for all forms of a credential that was withdrawn here.
func (r *verification) otherForms(ctx context.Context, o client.Object) (requests []ctrl.Request) {
	sd := o.(*v1alpha1.SelfDescription)
	if !sd.Spec.Revoked {
		return nil
	}
	c, err := trust.Parse(sd)
	if err != nil {
		return nil // it has no other forms
	}
	forms, err := trust.Forms(ctx, r.hub, r.Namespace, c.Signed)
	if err != nil {
		return nil // the cache was stopped
	}
	for i := range forms {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&forms[i])})
	}
	return requests
}

// Reconcile verifies one credential and writes the result.
func (r *verification) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	sd := &v1alpha1.SelfDescription{}
	if err := r.hub.Get(ctx, request.NamespacedName, sd); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Book.Refresh(ctx, r.hub, r.Namespace); err != nil {
		return ctrl.Result{}, err
	}
	before := sd.Status.DeepCopy()
	again, err := r.verify(ctx, sd)
	if err != nil {
		return ctrl.Result{}, err
	}
	if equality.Semantic.DeepEqual(before, &sd.Status) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	if err := r.hub.Status().Update(ctx, sd); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return ctrl.Result{RequeueAfter: afterConflict}, nil
		}
		return ctrl.Result{}, fmt.Errorf("write the status: %w", err)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// verify sets the status to the current result, and returns when to verify again; 0 means when
// something changes.
func (r *verification) verify(ctx context.Context, sd *v1alpha1.SelfDescription) (time.Duration, error) {
	var withdrawn *v1alpha1.SelfDescription // this form of it, or else another one
	if parsed, err := trust.Parse(sd); err == nil {
		describe(&sd.Status, parsed)
		if withdrawn, err = trust.Withdrawn(ctx, r.hub, r.Namespace, parsed.Signed); err != nil {
			return 0, err
		}
	}
	if sd.Spec.Revoked {
		withdrawn = sd
	}
	if withdrawn != nil {
		sd.Status.VerifiedAt = nil
		r.conclude(sd, v1alpha1.CredentialRevoked, "withdrawn here: "+withdrawn.Spec.RevokedBecause)
		return 0, nil
	}
	return r.judge(ctx, sd), nil
}

// judge is verify for a credential that was not withdrawn here.
func (r *verification) judge(ctx context.Context, sd *v1alpha1.SelfDescription) time.Duration {
	now := r.Clock.Now()
	credential, report := r.read(ctx, sd)
	if report.Temporary && held(sd) {
		// The report and its time stay: they are the last known result and its age.
		switch at := sd.Status.VerifiedAt.Time; {
		case ended(&sd.Status, now):
			r.conclude(sd, v1alpha1.CredentialExpired, "ended at "+sd.Status.ValidUntil.UTC().Format(time.RFC3339))
			return 0
		case now.Sub(at) < mostStale && sd.Status.State == v1alpha1.CredentialVerified:
			return retry(at, now)
		}
	}
	sd.Status.Report = steps(report.Steps)
	switch {
	case report.Temporary:
		r.conclude(sd, v1alpha1.CredentialPending, report.Failed().Message)
		return retry(meta.FindStatusCondition(sd.Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime.Time, now)
	case credential == nil:
		if report.State != selfdescription.Expired {
			sd.Status.VerifiedAt = nil
		}
		r.conclude(sd, v1alpha1.CredentialState(report.State), string(report.Failed().Name)+": "+report.Failed().Message)
		if report.State == selfdescription.Suspended {
			return lookAgain
		}
		return untilValid(&sd.Status, now)
	}
	r.conclude(sd, v1alpha1.CredentialVerified, "verified")
	if at := sd.Status.VerifiedAt; at == nil || now.Sub(at.Time) > lookAgain/2 { // one write an hour, none at a restart
		sd.Status.VerifiedAt = apiTime(now)
	}
	if until := sd.Status.ValidUntil; until != nil {
		return min(lookAgain, until.Sub(now)+selfdescription.DefaultSkew+time.Second)
	}
	return lookAgain
}

// read verifies a credential in its own form. For a legacy form, the report has a step of its
// own for the parts that are not signed.
func (r *verification) read(ctx context.Context, sd *v1alpha1.SelfDescription) (*selfdescription.Credential, selfdescription.Report) {
	issuers := r.Book.Picture().Issuers
	if !sd.Spec.Legacy {
		verifier := selfdescription.Verifier{Keys: r.Keys, Statuses: r.Statuses, Issuers: issuers, Now: r.Clock.Now}
		return verifier.Credential(ctx, sd.Spec.Credential)
	}
	importer := legacy.Importer{Keys: r.Keys, Issuers: issuers, KeyID: sd.Spec.KeyID, Now: r.Clock.Now}
	credential, report := importer.Import(ctx, sd.Spec.Credential)
	if report.Form != "" {
		message := fmt.Sprintf("%s, which signs everything", report.Form)
		if len(report.Unsigned) > 0 {
			message = fmt.Sprintf("%s, which leaves unsigned %s", report.Form, strings.Join(report.Unsigned, ", "))
		}
		report.Steps = append(report.Steps, selfdescription.Step{Name: "form", Result: selfdescription.Passed, Message: message})
	}
	return credential, report.Report
}

// held reports whether a credential was valid at its last verification, apart from having ended
// since.
func held(sd *v1alpha1.SelfDescription) bool {
	return sd.Status.VerifiedAt != nil && sd.Status.ObservedGeneration == sd.Generation
}

func ended(s *v1alpha1.SelfDescriptionStatus, now time.Time) bool {
	return s.ValidUntil != nil && !now.Before(s.ValidUntil.Add(selfdescription.DefaultSkew))
}

// retry returns a delay that grows with the time since the first failure.
func retry(since, now time.Time) time.Duration {
	return min(max(now.Sub(since)/4, retryUnreachable), lookAgain)
}

// untilValid returns the time until a credential becomes valid.
func untilValid(s *v1alpha1.SelfDescriptionStatus, now time.Time) time.Duration {
	if s.ValidFrom != nil && s.ValidFrom.After(now) {
		return s.ValidFrom.Sub(now)
	}
	return 0
}

func (r *verification) conclude(sd *v1alpha1.SelfDescription, state v1alpha1.CredentialState, message string) {
	s := &sd.Status
	s.ObservedGeneration, s.State = sd.Generation, state
	ready, reason := metav1.ConditionFalse, map[v1alpha1.CredentialState]string{
		v1alpha1.CredentialPending: "Unreachable", v1alpha1.CredentialRejected: "Rejected", v1alpha1.CredentialExpired: "Expired",
		v1alpha1.CredentialRevoked: "Revoked", v1alpha1.CredentialSuspended: "Suspended",
	}[state]
	if state == v1alpha1.CredentialVerified {
		ready, reason = metav1.ConditionTrue, v1alpha1.ReasonReady
	}
	v1alpha1.SetCondition(&s.Conditions, sd.Generation, v1alpha1.ConditionReady, ready, reason, message)
}

// describe copies the content of a credential into a status, whether or not it is verified.
func describe(s *v1alpha1.SelfDescriptionStatus, c *selfdescription.Credential) {
	s.Type, s.ID, s.Subject, s.Issuer = c.Type, c.ID, c.Subject, c.Issuer
	s.ValidFrom, s.ValidUntil = apiTime(c.ValidFrom), apiTime(c.ValidUntil)
	s.Countries = countries(c)
	s.LabelLevel, _ = c.Claims["labelLevel"].(string)
	s.Certification, _ = c.Claims["standard"].(string)
}

func steps(in []selfdescription.Step) (out []v1alpha1.VerificationStep) {
	for _, step := range in {
		out = append(out, v1alpha1.VerificationStep{Step: string(step.Name), Result: v1alpha1.StepResult(step.Result), Message: step.Message})
	}
	return out
}

func apiTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t)
	return &at
}

// countries returns all values of countryCode in a credential.
func countries(c *selfdescription.Credential) []string {
	found := map[string]bool{}
	var visit func(any)
	visit = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			for name, member := range v {
				if code, ok := member.(string); ok && name == "countryCode" {
					if alpha2, ok := shape.Country(code); ok {
						found[alpha2] = true
					}
				}
				visit(member)
			}
		case []any:
			for _, element := range v {
				visit(element)
			}
		}
	}
	visit(map[string]any(c.Claims))
	return slices.Sorted(maps.Keys(found))
}
