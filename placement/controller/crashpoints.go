package controller

// Crash points of this package: a kill at any of them loses no instance, delivers none twice
// and oversells nothing (see internal/crashpoint).
const (
	crashBeforeDecision    = "place.before-decision"
	crashAfterDecision     = "place.after-decision"
	crashBeforeDelivered   = "deliver.before-delivered"
	crashAfterDelivered    = "deliver.after-delivered"
	crashBeforeFailed      = "deliver.before-failed"
	crashAfterFailed       = "deliver.after-failed"
	crashBeforeContext     = "update.before-context"
	crashAfterContext      = "update.after-context"
	crashBeforeUnbind      = "remove.before-unbind"
	crashAfterUnbind       = "remove.after-unbind"
	crashBeforeFinalizer   = "remove.before-finalizer"
	crashAfterFinalizer    = "remove.after-finalizer"
	crashBeforeCleaned     = "move.before-cleaned"
	crashAfterCleaned      = "move.after-cleaned"
	crashBeforeProgress    = "status.before-progress"
	crashAfterProgress     = "status.after-progress"
	crashBeforeClusterHold = "cluster.before-finalizer"
	crashAfterClusterHold  = "cluster.after-finalizer"
	crashBeforeClusterSeen = "cluster.before-status"
	crashAfterClusterSeen  = "cluster.after-status"
	crashBeforeClusterGone = "cluster.before-release"
	crashAfterClusterGone  = "cluster.after-release"
)

// CrashPoints lists them, for the test that kills at each.
var CrashPoints = []string{
	crashBeforeDecision, crashAfterDecision,
	crashBeforeDelivered, crashAfterDelivered,
	crashBeforeFailed, crashAfterFailed,
	crashBeforeContext, crashAfterContext,
	crashBeforeUnbind, crashAfterUnbind,
	crashBeforeFinalizer, crashAfterFinalizer,
	crashBeforeCleaned, crashAfterCleaned,
	crashBeforeProgress, crashAfterProgress,
	crashBeforeClusterHold, crashAfterClusterHold,
	crashBeforeClusterSeen, crashAfterClusterSeen,
	crashBeforeClusterGone, crashAfterClusterGone,
}
