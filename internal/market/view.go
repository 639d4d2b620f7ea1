package market

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
)

// quiet is the least time between two looks at the inventory for one view, so that availability is at most so old. A
// look at ten thousand plans takes long; the next is not before it has been idle for ten times that.
const quiet = 500 * time.Millisecond

// views are the lists of plans that callers see. There is one for each platform that calls, one for operators, and one
// for providers; it is made when somebody asks, and everybody who sees the same shares it.
type views struct {
	catalog   *catalog.Catalog
	inventory Inventory
	// life distinguishes this process's numbers of states from those of others.
	life string

	mu    sync.Mutex
	views map[access.Caller]*view
}

func newViews(c *catalog.Catalog, inventory Inventory) *views {
	if inventory == nil {
		inventory = unknown{}
	}
	return &views{catalog: c, inventory: inventory, life: rand.Text()[:8], views: map[access.Caller]*view{}}
}

// of returns the view of a caller.
func (v *views) of(caller access.Caller) *view {
	if caller.Role == access.Provider {
		caller.Name = ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.views[caller]
	if found == nil {
		found = &view{views: v, caller: caller}
		v.views[caller] = found
	}
	return found
}

// view is the list of plans that one kind of caller sees.
type view struct {
	*views
	caller access.Caller

	mu sync.Mutex
	// state is the latest; nil before the first look.
	state *state
	// looked is when the last look ended, and took how long it took. What it saw has changed once one of the channels is
	// closed.
	looked                          time.Time
	took                            time.Duration
	catalogChanged, inventoryChange <-chan struct{}
	log                             changeLog
	// next is closed by the next state; nil while nobody waits for it.
	next chan struct{}
	// followers wait for states; while there are any, a goroutine looks for changes, until stop is closed.
	followers int
	stop      chan struct{}
}

// state is a view at one moment. It never changes.
type state struct {
	number   int64
	asOf     time.Time
	snapshot *catalog.Snapshot
	// rows by offering, in the order that its plans have there.
	rows []*row
	byID map[string]*row
	// full is the event with the whole list, encoded when somebody needs it.
	full func() *event
}

// row is a plan of a state. Rows that did not change are shared by states.
type row struct {
	Plan
	plan    *catalog.Plan
	room    Room
	encoded []byte
	// position orders rows that are equal otherwise.
	position string
	values   values
}

// current returns the state of now: at most a moment old, see quiet.
func (v *view) current() *state {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.due() <= 0 {
		v.look()
	}
	return v.state
}

// due returns when the next look is allowed and needed; never if nothing has changed.
func (v *view) due() time.Duration {
	const never = time.Duration(1<<63 - 1)
	since := time.Since(v.looked)
	switch {
	case v.state == nil:
		return 0
	case isClosed(v.catalogChanged):
		return v.took - since // at most half of the time
	case isClosed(v.inventoryChange):
		return max(quiet, 10*v.took) - since
	}
	return never
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// look makes the next state, unless it would be equal.
func (v *view) look() {
	begun := time.Now()
	v.catalogChanged, v.inventoryChange = v.catalog.Changed(), v.inventory.Changed() // before reading, so that no change is lost
	snapshot := v.catalog.Snapshot()
	plans := v.plans(snapshot)
	platform := ""
	if v.caller.Role == access.Platform {
		platform = v.caller.Name
	}
	rooms := v.inventory.Rooms(plans, platform, begun)
	next := &state{asOf: begun, snapshot: snapshot, rows: make([]*row, 0, len(plans)), byID: make(map[string]*row, len(plans))}
	var changed []*row
	for i, p := range plans {
		var room Room
		if rooms != nil {
			room = rooms[i]
		}
		r := v.known(p, snapshot, room)
		if r == nil {
			r = newRow(p, snapshot, room)
			if before := v.before(p.ID); before == nil || !bytes.Equal(before.encoded, r.encoded) {
				changed = append(changed, r)
			}
		}
		next.rows, next.byID[p.ID] = append(next.rows, r), r
	}
	v.advance(next, changed)
	v.looked = time.Now()
	v.took = v.looked.Sub(begun)
}

// plans returns the plans that the caller sees.
func (v *view) plans(s *catalog.Snapshot) (plans []*catalog.Plan) {
	offerings := s.All()
	if v.caller.Role != access.Operator {
		offerings = s.Offerings(v.caller.Name)
	}
	for _, o := range offerings {
		plans = append(plans, o.Plans...)
	}
	return plans
}

// before returns the latest row of a plan; nil if there is none.
func (v *view) before(id string) *row {
	if v.state == nil {
		return nil
	}
	return v.state.byID[id]
}

// known returns the latest row of a plan if it would be the same now.
func (v *view) known(p *catalog.Plan, s *catalog.Snapshot, room Room) *row {
	if r := v.before(p.ID); r != nil && v.state.snapshot == s && r.plan == p && r.room == room {
		return r
	}
	return nil
}

func newRow(p *catalog.Plan, s *catalog.Snapshot, room Room) *row {
	r := &row{Plan: planOf(p, s, room), plan: p, room: room}
	r.position = fmt.Sprintf("%s\x00%03d\x00%s", p.Offering.Name, slices.Index(p.Offering.Plans, p), p.ID)
	r.encoded, _ = json.Marshal(&r.Plan) // strings, numbers and lists of them
	r.values = valuesOf(&r.Plan)
	return r
}

// advance makes a state the latest, and logs the change. A state without a change keeps the number of the one before.
func (v *view) advance(next *state, changed []*row) {
	var removed []string
	if v.state != nil {
		for id := range v.state.byID {
			if next.byID[id] == nil {
				removed = append(removed, id)
			}
		}
		next.number = v.state.number
	}
	slices.Sort(removed)
	next.full = sync.OnceValue(func() *event { return v.fullEvent(next) })
	first := v.state == nil
	if !first && len(changed)+len(removed) == 0 {
		next.full = v.state.full // the same list
		v.state = next
		return
	}
	next.number++
	if !first {
		v.log.add(v.changeEvent(next, changed, removed))
	}
	v.state = next
	if v.next != nil {
		close(v.next)
		v.next = nil
	}
}
