package bindings

// Crash points: one right before and one right after every write.
const (
	crashBeforeClusters    = "bind.before-clusters"
	crashAfterClusters     = "bind.after-clusters"
	crashBeforeAccount     = "bind.before-account"
	crashAfterAccount      = "bind.after-account"
	crashBeforeRoleBinding = "bind.before-role-binding"
	crashAfterRoleBinding  = "bind.after-role-binding"
	crashBeforeToken       = "bind.before-token"
	crashAfterToken        = "bind.after-token"
	crashBeforeStatus      = "bind.before-status"
	crashAfterStatus       = "bind.after-status"
	crashBeforeRevoke      = "unbind.before-revoke"
	crashAfterRevoke       = "unbind.after-revoke"
	crashBeforeFinalizer   = "unbind.before-finalizer"
	crashAfterFinalizer    = "unbind.after-finalizer"
)

// CrashPoints are the instants in this package at which a kill must lose nothing
// and leave no credential behind.
var CrashPoints = []string{
	crashBeforeClusters, crashAfterClusters,
	crashBeforeAccount, crashAfterAccount,
	crashBeforeRoleBinding, crashAfterRoleBinding,
	crashBeforeToken, crashAfterToken,
	crashBeforeStatus, crashAfterStatus,
	crashBeforeRevoke, crashAfterRevoke,
	crashBeforeFinalizer, crashAfterFinalizer,
}
