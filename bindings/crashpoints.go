package bindings

// Crash points: right before and right after each write on which credentials or addresses
// depend.
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
	crashBeforeAddress     = "bind.before-address"
	crashAfterAddress      = "bind.after-address"
	crashBeforeRevoke      = "unbind.before-revoke"
	crashAfterRevoke       = "unbind.after-revoke"
	crashBeforeFinalizer   = "unbind.before-finalizer"
	crashAfterFinalizer    = "unbind.after-finalizer"

	// In an unbind, and in a refresh after a Service was deleted.
	crashBeforeAddressDelete = "unbind.before-address-delete"
	crashAfterAddressDelete  = "unbind.after-address-delete"
)

// CrashPoints are the points of this package at which a kill must lose nothing and leave no
// credential behind.
var CrashPoints = []string{
	crashBeforeClusters, crashAfterClusters,
	crashBeforeAccount, crashAfterAccount,
	crashBeforeRoleBinding, crashAfterRoleBinding,
	crashBeforeToken, crashAfterToken,
	crashBeforeStatus, crashAfterStatus,
	crashBeforeAddress, crashAfterAddress,
	crashBeforeAddressDelete, crashAfterAddressDelete,
	crashBeforeRevoke, crashAfterRevoke,
	crashBeforeFinalizer, crashAfterFinalizer,
}
