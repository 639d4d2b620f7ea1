package liqo

// Crash points: one right before and one right after every write.
const (
	crashBeforePeering         = "peering.before-peering"
	crashAfterPeering          = "peering.after-peering"
	crashBeforeTenantNamespace = "peering.before-tenant-namespace"
	crashAfterTenantNamespace  = "peering.after-tenant-namespace"
	crashBeforeConfiguration   = "peering.before-configuration"
	crashAfterConfiguration    = "peering.after-configuration"
	crashBeforeGateway         = "peering.before-gateway"
	crashAfterGateway          = "peering.after-gateway"
	crashBeforeKey             = "peering.before-key"
	crashAfterKey              = "peering.after-key"
	crashBeforeTenant          = "peering.before-tenant"
	crashAfterTenant           = "peering.after-tenant"
	crashBeforeIdentity        = "peering.before-identity"
	crashAfterIdentity         = "peering.after-identity"
	crashBeforeSlice           = "peering.before-slice"
	crashAfterSlice            = "peering.after-slice"
	crashBeforeVerdict         = "peering.before-verdict"
	crashAfterVerdict          = "peering.after-verdict"
	crashBeforeOffloading      = "peering.before-offloading"
	crashAfterOffloading       = "peering.after-offloading"
	crashBeforeRemoveNode      = "peering.before-remove-node"
	crashAfterRemoveNode       = "peering.after-remove-node"
	crashBeforeRelease         = "peering.before-release"
	crashAfterRelease          = "peering.after-release"
	crashBeforeDismiss         = "peering.before-dismiss"
	crashAfterDismiss          = "peering.after-dismiss"
	crashBeforeDisconnect      = "peering.before-disconnect"
	crashAfterDisconnect       = "peering.after-disconnect"
	crashBeforePeeringGone     = "peering.before-gone"
	crashAfterPeeringGone      = "peering.after-gone"
)

// CrashPoints are the instants in this package at which a kill must lose nothing.
var CrashPoints = []string{
	crashBeforePeering, crashAfterPeering,
	crashBeforeTenantNamespace, crashAfterTenantNamespace,
	crashBeforeConfiguration, crashAfterConfiguration,
	crashBeforeGateway, crashAfterGateway, crashBeforeKey, crashAfterKey,
	crashBeforeTenant, crashAfterTenant, crashBeforeIdentity, crashAfterIdentity,
	crashBeforeSlice, crashAfterSlice, crashBeforeVerdict, crashAfterVerdict,
	crashBeforeOffloading, crashAfterOffloading,
	crashBeforeRemoveNode, crashAfterRemoveNode, crashBeforeRelease, crashAfterRelease,
	crashBeforeDismiss, crashAfterDismiss, crashBeforeDisconnect, crashAfterDisconnect,
	crashBeforePeeringGone, crashAfterPeeringGone,
}
