package elastic

// Crash points of this package: a kill at any of them makes no cluster twice and leaves none
// behind (see internal/crashpoint).
const (
	crashBeforeOrder    = "elastic.before-order"
	crashAfterOrder     = "elastic.after-order"
	crashBeforeGrow     = "elastic.before-grow"
	crashAfterGrow      = "elastic.after-grow"
	crashBeforeJoin     = "elastic.before-join"
	crashAfterJoin      = "elastic.after-join"
	crashBeforeRetire   = "elastic.before-retire"
	crashAfterRetire    = "elastic.after-retire"
	crashBeforeGiveBack = "elastic.before-give-back"
	crashAfterGiveBack  = "elastic.after-give-back"
)

// CrashPoints lists them, for the test that kills at each.
var CrashPoints = []string{
	crashBeforeOrder,
	crashAfterOrder,
	crashBeforeGrow,
	crashAfterGrow,
	crashBeforeJoin,
	crashAfterJoin,
	crashBeforeRetire,
	crashAfterRetire,
	crashBeforeGiveBack,
	crashAfterGiveBack,
}
