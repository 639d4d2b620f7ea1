package reader

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/placement"
)

// poolPause is the shortest time between two notifications of a Pool.
const poolPause = 500 * time.Millisecond

// ReasonNoMembers means that a pool has no members.
const ReasonNoMembers = "NoMembers"

// Pool is the reader of what the members of a pool have together. It follows the inventory.
type Pool struct {
	inventory *placement.Inventory
	name      string
	stop      context.CancelFunc
}

// NewPool returns the reader of a pool, which calls changed when something in the inventory has changed, at most twice a
// second, until the context ends.
func NewPool(ctx context.Context, inventory *placement.Inventory, pool string, changed func()) *Pool {
	p := &Pool{inventory: inventory, name: pool}
	ctx, p.stop = context.WithCancel(ctx)
	go p.follow(ctx, changed)
	return p
}

func (p *Pool) follow(ctx context.Context, changed func()) {
	for {
		next := p.inventory.Changed()
		changed()
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(poolPause):
		case <-ctx.Done():
			return
		}
	}
}

// Read adds up what the members have now.
func (p *Pool) Read(context.Context) (Reading, error) {
	sum, open, members, known := p.inventory.Snapshot().Pooled(p.name)
	switch {
	case !known:
		return Reading{}, &UnknownError{ReasonSyncing, "its members have not been added up yet"}
	case members == 0:
		return Reading{}, &UnknownError{ReasonNoMembers, "it has no members: label some member clusters with the driver liqo as its selector says"}
	}
	r := Reading{
		Source: fmt.Sprintf("the sum of what its members sell; %d of %d take placements", open, members), Capacity: sum.Sold.List(), Allocatable: sum.Sold.List(), Foreign: sum.Used.List(),
		Architectures: sum.Architectures, OperatingSystems: sum.OperatingSystems,
	}
	if sum.Holes != nil {
		r.Holes = sum.Holes.API()
	}
	return r, nil
}

// Wait returns at once.
func (*Pool) Wait(context.Context) {}

// Close ends the notifications.
func (p *Pool) Close(bool) { p.stop() }
