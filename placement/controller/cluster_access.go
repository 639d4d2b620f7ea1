package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/member"
)

// access describes the identity of a member cluster and Sluice's rights there, which rarely change.
type access struct {
	uid      string
	keyHash  string
	version  string
	verified bool
	// problem is the cause if it is not verified, with the step and the remedy.
	problem error
	// unanswered is how many checks in a row got no answer.
	unanswered int
	checked    time.Time
}

// unansweredError is the cause why a check got no answer, which says nothing about Sluice's rights.
type unansweredError struct{ error }

func (e unansweredError) Unwrap() error { return e.error }

// accessEvery is the time between two checks of a verified access. An access that is not
// verified is checked with every probe.
const accessEvery = 10 * time.Minute

// accessTimeout bounds a check of the access, of a hundred questions, whatever bounds a probe, of one.
const accessTimeout = 5 * time.Second

// longestVersion is the length of the longest version of an API server that is kept, in characters.
const longestVersion = 64

func (a *access) due(now time.Time) bool {
	return !a.verified || now.Sub(a.checked) >= accessEvery
}

// inspect reads the cluster's identity and Sluice's rights there.
func (a *access) inspect(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster, c clients, now time.Time) {
	a.checked = now
	a.problem = a.identify(ctx, r, cluster, c)
	if a.problem == nil {
		a.problem = verifyRules(ctx, c, cluster.Name, r.Rules(cluster))
	}
	a.verified = a.problem == nil
	if errors.As(a.problem, &unansweredError{}) {
		a.unanswered++
	} else {
		a.unanswered = 0
	}
}

// isTolerated reports whether the problem leaves a former verification in force: an answer ends it at once, checks
// without an answer as failed probes do.
func (a *access) isTolerated() bool { return 0 < a.unanswered && a.unanswered < toleratedFailures }

func (a *access) identify(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster, c clients) error {
	failed := func(step member.Step, err error, remedy string) error {
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			err = unansweredError{err}
		}
		return &member.Error{Cluster: cluster.Name, Step: step, Err: err, Remedy: remedy}
	}
	version, err := c.kube.Discovery().ServerVersion()
	if err == nil && version.GitVersion == "" {
		err = errors.New("the answer contains none")
	}
	if err != nil {
		return failed("read its version", err, "check that its API server is running and reachable from Sluice")
	}
	uid, err := c.uid(ctx)
	if err != nil {
		return failed("read its UID from the namespace kube-system", err, "give Sluice the right to get namespaces: run `sluice cluster renew`")
	}
	if was := cluster.Status.UID; was != "" && was != uid {
		return member.Stranger(cluster.Name, was, uid)
	}
	if a.keyHash, err = c.keyHash(ctx); err != nil {
		return failed("read its API server's certificate", err, "check that its API server is running and reachable from Sluice")
	}
	a.version, a.uid = v1alpha1.Cut(version.GitVersion, longestVersion), uid
	return r.unique(ctx, cluster, a.uid)
}

// unique refuses a cluster that is already in the inventory under an older name: its capacity
// would be sold twice.
func (r *clusterReconciler) unique(ctx context.Context, cluster *v1alpha1.MemberCluster, uid string) error {
	var all v1alpha1.MemberClusterList
	if err := r.hub.List(ctx, &all, client.InNamespace(r.Namespace)); err != nil {
		return unansweredError{fmt.Errorf("list member clusters: %w", err)}
	}
	for i := range all.Items {
		other := &all.Items[i]
		its, own := v1alpha1.CreatedOf(other), v1alpha1.CreatedOf(cluster)
		older := its.Before(&own) || its.Equal(&own) && other.Name < cluster.Name
		if other.Name != cluster.Name && other.Status.UID == uid && older {
			return &member.Error{
				Cluster: cluster.Name, Step: "compare it with the other clusters",
				Err:    fmt.Errorf("it is the same cluster as %s, by the UID %s of its namespace kube-system", other.Name, uid),
				Remedy: "remove one of the two",
			}
		}
	}
	return nil
}

// verifyRules asks the cluster about every verb of every rule, a few at a time, by
// SelfSubjectAccessReviews over all namespaces.
func verifyRules(ctx context.Context, c clients, cluster string, rules []rbacv1.PolicyRule) error {
	asked := reviews(rules)
	denied := make([]bool, len(asked))
	var asking errgroup.Group
	asking.SetLimit(8)
	for i := range asked {
		asking.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: asked[i]}
			answer, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			denied[i] = !answer.Status.Allowed
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		return &member.Error{Cluster: cluster, Step: "read Sluice's rights there", Err: unansweredError{err}, Remedy: "check that its API server is running and reachable from Sluice"}
	}
	var missing []string
	for i, no := range denied {
		if no {
			missing = append(missing, sentence(asked[i]))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &member.Error{
		Cluster: cluster, Step: "verify Sluice's access",
		Err:    fmt.Errorf("%s may not %s", c.username(), lists.Some(missing, 3)),
		Remedy: "run `sluice cluster renew` for it, or apply there what `sluice cluster manifest` prints for its driver",
	}
}

func (c clients) username() string {
	if c.connection == nil || c.connection.Username == "" {
		return "Sluice"
	}
	return c.connection.Username
}

// reviews expands rules to one question for each verb on each resource.
func reviews(rules []rbacv1.PolicyRule) []authorizationv1.SelfSubjectAccessReviewSpec {
	var asked []authorizationv1.SelfSubjectAccessReviewSpec
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				asked = append(asked, authorizationv1.SelfSubjectAccessReviewSpec{
					NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
				})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						asked = append(asked, review(verb, group, resource, name))
					}
				}
			}
		}
	}
	return asked
}

func review(verb, group, resource, name string) authorizationv1.SelfSubjectAccessReviewSpec {
	resource, subresource, _ := strings.Cut(resource, "/")
	return authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
	}}
}

// sentence describes a review in words: "create namespaces".
func sentence(asked authorizationv1.SelfSubjectAccessReviewSpec) string {
	if url := asked.NonResourceAttributes; url != nil {
		return url.Verb + " " + url.Path
	}
	a := asked.ResourceAttributes
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	if a.Group != "" {
		what += "." + a.Group
	}
	if a.Name != "" {
		what += " " + a.Name
	}
	return a.Verb + " " + what
}
