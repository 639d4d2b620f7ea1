package kube

// Crash points: one right before and one right after every write.
const (
	crashBeforeNamespace   = "deliver.before-namespace"
	crashAfterNamespace    = "deliver.after-namespace"
	crashBeforeSelfBinding = "deliver.before-self-binding"
	crashAfterSelfBinding  = "deliver.after-self-binding"
	crashBeforeObjects     = "deliver.before-objects"
	crashBeforeQuota       = "deliver.before-quota"
	crashAfterQuota        = "deliver.after-quota"
	crashAfterObjects      = "deliver.after-objects"
	crashBeforeRemove      = "remove.before-namespace"
	crashAfterRemove       = "remove.after-namespace"
)

// CrashPoints are the instants in this package at which a kill must lose nothing.
// Those around single objects of a namespace, which are applied in parallel, are
// the ones around all of them.
var CrashPoints = []string{
	crashBeforeNamespace, crashAfterNamespace,
	crashBeforeSelfBinding, crashAfterSelfBinding,
	crashBeforeObjects, crashBeforeQuota, crashAfterQuota, crashAfterObjects,
	crashBeforeRemove, crashAfterRemove,
}
