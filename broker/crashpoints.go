package broker

// Crash points of this package: before and after each of its writes to the hub.
const (
	crashBeforeProvision     = "provision.before-create"
	crashAfterProvision      = "provision.after-create"
	crashBeforeAttempt       = "provision.before-attempt"
	crashAfterAttempt        = "provision.after-attempt"
	crashBeforeUpdate        = "update.before-write"
	crashAfterUpdate         = "update.after-write"
	crashBeforeDeprovision   = "deprovision.before-delete"
	crashAfterDeprovision    = "deprovision.after-delete"
	crashBeforeBind          = "bind.before-create"
	crashAfterBind           = "bind.after-create"
	crashBeforeBindingDelete = "unbind.before-delete"
	crashAfterBindingDelete  = "unbind.after-delete"
)

// CrashPoints lists them for tests.
var CrashPoints = []string{
	crashBeforeProvision, crashAfterProvision, crashBeforeAttempt, crashAfterAttempt,
	crashBeforeUpdate, crashAfterUpdate, crashBeforeDeprovision, crashAfterDeprovision,
	crashBeforeBind, crashAfterBind, crashBeforeBindingDelete, crashAfterBindingDelete,
}
