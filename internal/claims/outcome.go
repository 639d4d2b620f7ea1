package claims

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// Times between two attempts at what a broker could not do.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 30 * time.Minute
)

// problem is a reason for which a claim waits, for its condition. It is looked at again after a while, or with backoff if
// that is zero.
type problem struct {
	reason, message string
	works           bool // nevertheless
	after           time.Duration
	err             error // to log; nil if it is the consumer's
}

// next returns when a claim is looked at again, for a problem that may be nil.
func (p *problem) next() (reconcile.Result, error) {
	switch {
	case p == nil:
		return reconcile.Result{RequeueAfter: Recheck}, nil
	case p.err != nil && p.after == 0:
		return reconcile.Result{}, p.err
	}
	return reconcile.Result{RequeueAfter: cmp.Or(p.after, Recheck)}, nil
}

// kind of duty that a platform has after a request that did not succeed.
type kind int

const (
	repeat  kind = iota // the broker is away: the same request, later
	refuse              // the broker did nothing, and does nothing
	undo                // what the broker may have created is deleted (osbclient.Error.Orphan)
	unclear             // the answer is not OSB, and nothing is to be undone: the same request, later
)

// judge returns what follows from an error of the broker's client.
func judge(err error) kind {
	answer := (*osbclient.Error)(nil)
	switch {
	case !errors.As(err, &answer), osbclient.IsTransient(err):
		return repeat
	case answer.Orphan():
		return undo
	case answer.Status >= http.StatusBadRequest:
		return refuse
	}
	return unclear
}

// unavailable returns the problem of a request that is repeated.
func unavailable(err error, hide redaction) *problem {
	message := hide.text(err.Error())
	p := &problem{reason: claimsv1.ReasonBrokerUnavailable, message: message, err: errors.New(message)}
	if answer := (*osbclient.Error)(nil); errors.As(err, &answer) {
		if p.after = answer.RetryAfter; answer.Unauthorized() {
			p.reason = claimsv1.ReasonUnauthorized
		}
		if p.after == 0 && answer.Code == osbclient.CodeConcurrency {
			p.after = usualPause
		}
	}
	return p
}

// refused returns a failure that is final for an order.
func refused(digest, message string) *claimsv1.Failure {
	return &claimsv1.Failure{Digest: digest, Reason: claimsv1.ReasonRefused, Message: message, Attempts: 1}
}

// failed returns a failure after which the same order is tried again, later each time.
func failed(before *claimsv1.Failure, digest, message string, now time.Time) *claimsv1.Failure {
	f := &claimsv1.Failure{Digest: digest, Reason: claimsv1.ReasonFailed, Message: message, Attempts: 1}
	if before != nil && before.Digest == digest {
		f.Attempts = before.Attempts + 1
	}
	f.RetryAt = &metav1.Time{Time: now.Add(pauseAfter(f.Attempts)).Truncate(time.Second)}
	return f
}

// pauseAfter returns the time until the next attempt after a number of failed ones, at least one.
func pauseAfter(attempts int32) time.Duration {
	return min(firstRetry<<min(attempts-1, 10), lastRetry)
}

// redaction lists texts of Secrets that no message repeats.
type redaction []string

// shortestHidden is the length from which on a text is hidden; shorter ones are in any message by chance.
const shortestHidden = 4

func (hidden redaction) text(message string) string {
	for _, secret := range hidden {
		message = strings.ReplaceAll(message, secret, "…")
	}
	return message
}
