package kube

// Crash points: one right before and one right after every write.
const (
	crashBeforeObjects = "deliver.before-objects"
	crashBeforeQuota   = "deliver.before-quota"
	crashAfterQuota    = "deliver.after-quota"
	crashAfterObjects  = "deliver.after-objects"
)

// CrashPoints are the instants in this package at which a kill must lose nothing. The objects
// of a namespace are applied in parallel, so the points are around all of them, not around
// each.
var CrashPoints = []string{crashBeforeObjects, crashBeforeQuota, crashAfterQuota, crashAfterObjects}
