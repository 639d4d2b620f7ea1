package kube

// Crash points: one right before and one right after every write.
const (
	crashBeforeObjects = "deliver.before-objects"
	crashBeforeQuota   = "deliver.before-quota"
	crashAfterQuota    = "deliver.after-quota"
	crashAfterObjects  = "deliver.after-objects"
)

// CrashPoints are the instants in this package at which a kill must lose nothing.
// Those around single objects of a namespace, which are applied in parallel, are
// the ones around all of them.
var CrashPoints = []string{crashBeforeObjects, crashBeforeQuota, crashAfterQuota, crashAfterObjects}
