package broker

// Crash points: before and after each write of this package to the hub, except the request
// for new credentials.
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
