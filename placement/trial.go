package placement

// Moves are searched by making them on a copy of the inventory, one after the other: each is decided by what those before
// it left, while its instance still holds what it leaves. So they can be carried out in that order, and no step
// reserves more than there is.

// trial is a copy of an inventory on which moves are made and undone.
type trial struct {
	*Inventory
	// steps is how many more times a request may be placed or judged. Steps are counted, not timed, so that the same
	// question has the same answer on any machine.
	steps int
	// undo has what takes back the moves that were made, in their order.
	undo []func()
}

func newTrial(in *Inventory, steps int) *trial { return &trial{Inventory: in.Fork(), steps: steps} }

// step counts a step, and reports whether it may be done.
func (t *trial) step() bool {
	t.steps--
	return t.steps >= 0
}

// hold replaces what a request holds, by cluster.
func (t *trial) hold(r *Request, to Holding) {
	was := t.holding(r.ID)
	was.Class = r.Class
	now := was
	now.Consumer, now.Held, now.Prices, now.Pods = r.Consumer, to.Held, to.Prices, to.Pods
	t.Reserve(now)
	t.undo = append(t.undo, func() { t.Reserve(was) })
}

// undone returns a function that takes back all moves that were made after this call.
func (t *trial) undone() func() {
	begin := len(t.undo)
	return func() {
		for len(t.undo) > begin {
			last := len(t.undo) - 1
			t.undo[last]()
			t.undo = t.undo[:last]
		}
	}
}
