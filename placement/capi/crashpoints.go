package capi

// Crash points: one right before and one right after every write.
const (
	crashBeforeCluster       = "deliver.before-cluster"
	crashAfterCluster        = "deliver.after-cluster"
	crashBeforeAddOn         = "deliver.before-add-on"
	crashAfterAddOn          = "deliver.after-add-on"
	crashBeforeRemoveCluster = "remove.before-cluster"
	crashAfterRemoveCluster  = "remove.after-cluster"
)

// CrashPoints are the instants in this package at which a kill must lose nothing.
var CrashPoints = []string{crashBeforeCluster, crashAfterCluster, crashBeforeAddOn, crashAfterAddOn, crashBeforeRemoveCluster, crashAfterRemoveCluster}
