package controller

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/draft"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

// Options of the controllers.
type Options struct {
	// Namespace of the hub that holds the resources.
	Namespace string
	// Book holds the providers, consumers and issuers that the operator knows.
	Book *trust.Book
	// Keys finds the issuers' keys, and Statuses their status lists.
	Keys     selfdescription.KeySource
	Statuses selfdescription.StatusSource
	// DID of the broker; if empty, the broker issues no credentials, and its keys sign tokens only.
	DID string
	// Seal seals the broker's private keys.
	Seal *seal.Keyset
	// RotateEvery is how long the broker signs with one key; 0 means 90 days.
	RotateEvery time.Duration
	// Organisation that runs the broker, as it describes itself; nil publishes no description.
	Organisation *draft.Draft
	// Measure configures the measurements of member clusters.
	Measure Measure
	// Recorder of the events of member clusters; may be nil.
	Recorder *journal.Recorder
	// Clock is for tests; nil means the real clock.
	Clock clock.PassiveClock
}

// SetupWithManager registers the controllers; they run on the leader only.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.RotateEvery == 0 {
		o.RotateEvery = 90 * 24 * time.Hour
	}
	if err := (&verification{Options: o, hub: mgr.GetClient()}).setup(mgr); err != nil {
		return fmt.Errorf("set up verification: %w", err)
	}
	if err := (&admission{Options: o, hub: mgr.GetClient(), journals: &journal.Journals{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}}).setup(mgr); err != nil {
		return fmt.Errorf("set up admission: %w", err)
	}
	if err := (&proof{Options: o, hub: mgr.GetClient()}).setup(mgr); err != nil {
		return fmt.Errorf("set up the proof of consumers: %w", err)
	}
	if err := (&keyring{Options: o, hub: mgr.GetClient(), live: mgr.GetAPIReader()}).setup(mgr); err != nil {
		return fmt.Errorf("set up the broker's identity: %w", err)
	}
	if err := mgr.Add(&removal{Options: o, hub: mgr.GetClient()}); err != nil {
		return err
	}
	if o.DID == "" {
		return nil
	}
	if o.Organisation != nil {
		if err := mgr.Add(&declaration{Options: o, hub: mgr.GetClient()}); err != nil {
			return err
		}
	}
	if o.Measure.Probes == nil {
		return nil
	}
	return mgr.Add(&measurement{Options: o, hub: mgr.GetClient(), clusters: mgr.GetCache()})
}

// afterConflict is a delay that lets the cache catch up.
const afterConflict = 100 * time.Millisecond

// later ignores objects that exist when the controllers start: they are all reconciled then
// anyway.
var later = predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}

// specChanged passes only changes of the spec.
var specChanged = builder.WithPredicates(predicate.GenerationChangedPredicate{}, later)

// reached passes member clusters whose UID or key became known or changed.
var reached = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := &e.ObjectOld.(*v1alpha1.MemberCluster).Status, &e.ObjectNew.(*v1alpha1.MemberCluster).Status
		return before.UID != now.UID || before.KeyHash != now.KeyHash
	},
}

func admitted(s *v1alpha1.MemberClusterStatus) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAdmitted)
}
