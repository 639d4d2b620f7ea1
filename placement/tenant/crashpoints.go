package tenant

// Crash points: one right before and one right after every write.
const (
	crashBeforeNamespace   = "deliver.before-namespace"
	crashAfterNamespace    = "deliver.after-namespace"
	crashBeforeSelfBinding = "deliver.before-self-binding"
	crashAfterSelfBinding  = "deliver.after-self-binding"
	crashBeforeRemove      = "remove.before-namespace"
	crashAfterRemove       = "remove.after-namespace"
)

// CrashPoints are the instants in this package at which a kill must lose nothing.
var CrashPoints = []string{
	crashBeforeNamespace, crashAfterNamespace, crashBeforeSelfBinding, crashAfterSelfBinding, crashBeforeRemove, crashAfterRemove,
}
