package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

// admission keeps the claims and the condition Admitted of member clusters up to date.
type admission struct {
	Options
	hub      client.Client
	journals *journal.Journals
}

func (r *admission) setup(mgr ctrl.Manager) error {
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(context.Background(), &v1alpha1.SelfDescription{}, fieldConcerns, concerns); err != nil {
		return fmt.Errorf("index credentials: %w", err)
	}
	if err := indexer.IndexField(context.Background(), &v1alpha1.MemberCluster{}, fieldTrust, trusts); err != nil {
		return fmt.Errorf("index member clusters: %w", err)
	}
	byCredential := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		return r.clusters(ctx, touches(o.(*v1alpha1.SelfDescription))...)
	})
	byProvider := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		return r.clusters(ctx, ofProvider(o.GetName()))
	})
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []ctrl.Request {
		return r.clusters(ctx, everyone)
	})
	return ctrl.NewControllerManagedBy(mgr).Named("admission").
		For(&v1alpha1.MemberCluster{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, reached))).
		Watches(&v1alpha1.SelfDescription{}, byCredential, builder.WithPredicates(later, judgedAnew)).
		Watches(&v1alpha1.Provider{}, byProvider, specChanged).
		Watches(&v1alpha1.TrustedIssuer{}, all, specChanged).
		Complete(requeue.OnConflict(r))
}

// clusters returns requests for the member clusters that have to prove an offering, by index
// keys.
func (r *admission) clusters(ctx context.Context, keys ...string) (requests []ctrl.Request) {
	for _, key := range keys {
		var list v1alpha1.MemberClusterList
		if err := r.hub.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{fieldTrust: key}, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache was stopped
		}
		for i := range list.Items {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile checks what the provider of one member cluster has proven.
func (r *admission) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster := &v1alpha1.MemberCluster{}
	if err := r.hub.Get(ctx, request.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := cluster.Status.DeepCopy()
	again, err := r.admit(ctx, cluster)
	if err != nil || equality.Semantic.DeepEqual(before, &cluster.Status) {
		return ctrl.Result{RequeueAfter: again}, err
	}
	if err := r.journals.Transitions(ctx, cluster, before.Conditions, cluster.Status.Conditions, r.Clock.Now(), cluster.Name); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.hub.Status().Update(ctx, cluster); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return ctrl.Result{RequeueAfter: afterConflict}, nil
		}
		return ctrl.Result{}, fmt.Errorf("write the cluster's status: %w", err)
	}
	r.Recorder.Wrote(ctx, cluster, v1alpha1.LastSequence(before.Events))
	r.tell(ctx, before, cluster)
	return ctrl.Result{RequeueAfter: again}, nil
}

// admit sets claims, report and condition, and returns when the first claim ends.
func (r *admission) admit(ctx context.Context, cluster *v1alpha1.MemberCluster) (time.Duration, error) {
	s, wanted := &cluster.Status, cluster.Spec.Trust
	if wanted == nil {
		s.Claims, s.Admission = nil, nil
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionAdmitted })
		return 0, nil
	}
	if err := r.Book.Refresh(ctx, r.hub, r.Namespace); err != nil {
		return 0, err
	}
	book := r.Book.Picture()
	provider, known := book.DID(v1alpha1.Presenter{Provider: cluster.Spec.Provider})
	if !known {
		r.conclude(cluster, nil, nil, "UnknownProvider",
			fmt.Sprintf("member cluster %s: spec.provider %q names no Provider: add it with `sluice provider add`", cluster.Name, cluster.Spec.Provider))
		return 0, nil
	}
	grace := time.Duration(wanted.GraceSeconds) * time.Second
	now := r.Clock.Now()
	set, err := r.credentials(ctx, r.hub, v1alpha1.Presenter{Provider: cluster.Spec.Provider}, cluster, now.Add(-grace))
	if err != nil {
		return 0, err
	}
	claims, report := selfdescription.Admit(set, wanted.Offering,
		selfdescription.ClusterFacts{UID: s.UID, KeyHash: s.KeyHash},
		selfdescription.Requirements{Provider: provider, Types: wanted.Types}, book.Issuers, now.Add(-grace))
	if failed := report.Failed(); failed != nil {
		r.conclude(cluster, nil, report.Steps, "NotProven", fmt.Sprintf("%s: %s", failed.Name, failed.Message))
		return 0, nil
	}
	held := apiClaims(claims, grace)
	r.conclude(cluster, held, report.Steps, v1alpha1.ReasonReady, fmt.Sprintf("%d claims are proven", len(held)))
	return untilNext(held, now), nil
}

// credentials returns the credentials presented by the cluster's provider that are relevant for
// its offering and are valid, or were at the given time; and Sluice's measurements of this
// cluster. Without a cluster, those that are relevant for the presenter itself.
func (o *Options) credentials(ctx context.Context, hub client.Reader, who v1alpha1.Presenter, cluster *v1alpha1.MemberCluster, since time.Time) (set []*selfdescription.Credential, err error) {
	taken := map[string]bool{}
	take := func(key string) error {
		var list v1alpha1.SelfDescriptionList
		if err := hub.List(ctx, &list, client.InNamespace(o.Namespace), client.MatchingFields{fieldConcerns: key}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list credentials: %w", err)
		}
		for i := range list.Items {
			sd := &list.Items[i]
			if taken[sd.Name] || !counts(sd, since) {
				continue
			}
			taken[sd.Name] = true
			if sd.Status.Type == selfdescription.TypeClusterMeasurement && (cluster == nil || !sd.IsMeasured(cluster)) {
				continue
			}
			if c, err := trust.Parse(sd); err == nil {
				set = append(set, c)
			}
		}
		return nil
	}
	err = take(of(who))
	if cluster != nil {
		err = errors.Join(err, take(of(who, cluster.Spec.Trust.Offering)))
	}
	for _, c := range slices.Clone(set) {
		err = errors.Join(err, take(of(who, c.Subject)), take(of(who, c.Digest.SRI())))
	}
	return set, err
}

// counts reports whether a credential is valid, or was valid until it ended after the given
// time. A credential that was never valid, or was revoked before it ended, has no grace period.
// The last result of its verification counts until the next one, unless it was withdrawn: its
// content cannot have changed.
func counts(sd *v1alpha1.SelfDescription, since time.Time) bool {
	s := &sd.Status
	switch {
	case sd.Spec.Revoked:
		return false
	case s.State == v1alpha1.CredentialExpired:
		return s.VerifiedAt != nil && s.ValidUntil != nil && s.ValidUntil.After(since)
	}
	return s.State == v1alpha1.CredentialVerified
}

func (r *admission) conclude(cluster *v1alpha1.MemberCluster, claims []v1alpha1.Claim, report []selfdescription.Step, reason, message string) {
	cluster.Status.Claims, cluster.Status.Admission = claims, steps(report)
	state := metav1.ConditionFalse
	if reason == v1alpha1.ReasonReady {
		state = metav1.ConditionTrue
	}
	v1alpha1.SetCondition(&cluster.Status.Conditions, cluster.Generation, v1alpha1.ConditionAdmitted, state, reason, message)
}

func apiClaims(in []selfdescription.Claim, grace time.Duration) (out []v1alpha1.Claim) {
	for _, c := range in {
		claim := v1alpha1.Claim{
			Name: c.Name, Value: c.Value, Assurance: v1alpha1.Assurance(c.Assurance), Issuer: c.Issuer, Credential: c.Credential.SRI(),
		}
		if !c.Expires.IsZero() {
			claim.ExpiresAt = apiTime(c.Expires.Add(grace))
		}
		out = append(out, claim)
	}
	return out
}

// untilNext returns the time until the first claim ends; 0 if none ends.
func untilNext(claims []v1alpha1.Claim, now time.Time) (wait time.Duration) {
	for _, c := range claims {
		if c.ExpiresAt == nil {
			continue
		}
		if left := max(c.ExpiresAt.Sub(now), time.Second); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// tell logs when a cluster becomes admitted, or stops being admitted.
func (r *admission) tell(ctx context.Context, before *v1alpha1.MemberClusterStatus, cluster *v1alpha1.MemberCluster) {
	was, is := admitted(before), admitted(&cluster.Status)
	if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	log.FromContext(ctx).Info("Admission", "cluster", cluster.Name, "admitted", is.Status, "reason", is.Reason, "message", is.Message)
}
