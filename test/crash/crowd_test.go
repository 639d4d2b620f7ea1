//go:build faults

package crash

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sluice-dev/sluice/api/v1alpha1"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// crowders is how many instances there are in a crowd; each takes more than half
// of a cluster, and there are two clusters.
const crowders = 3

// crowdStory is about instances of which one more is asked for than fits: two are
// delivered, on different clusters, and the third waits until one of them goes.
type crowdStory struct {
	*bed
	all []*instance
	// waiting is the instance that waits.
	waiting *instance
}

func newCrowd(b *bed) *crowdStory {
	c := &crowdStory{bed: b}
	for n := range crowders {
		i := b.instance(fmt.Sprintf("crowd-%c", 'a'+n))
		i.plan = "most"
		c.all = append(c.all, i)
	}
	return c
}

// provision asks for all at once; those that are there already are asked for again.
func (c *crowdStory) provision(ctx context.Context) error {
	if err := c.request(ctx, c.all); err != nil {
		return err
	}
	return c.withHub(ctx, func(hub client.Client) error { return c.settled(ctx, hub) })
}

// provisionTwo asks for as many as fit, and waits until they are delivered.
func (c *crowdStory) provisionTwo(ctx context.Context) error {
	two := c.all[:crowders-1]
	if err := c.request(ctx, two); err != nil {
		return err
	}
	for _, i := range two {
		if _, err := c.await(ctx, i.path(), "provision-1"); err != nil {
			return err
		}
		if err := i.delivered(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// request sends the requests.
func (c *crowdStory) request(ctx context.Context, instances []*instance) error {
	var requests errgroup.Group
	for _, i := range instances {
		requests.Go(func() error {
			// 200 when it is delivered already.
			_, err := i.send(ctx, http.MethodPut, i.path(), async, i.body(i.plan, 0), http.StatusAccepted, http.StatusOK)
			return err
		})
	}
	return requests.Wait()
}

// settled checks that two are delivered, on two clusters, and one waits.
func (c *crowdStory) settled(ctx context.Context, hub client.Client) error {
	on, waiting := map[string]string{}, (*instance)(nil)
	for _, i := range c.all {
		seen := &v1alpha1.ServiceInstance{}
		if err := hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: i.name}, seen); err != nil {
			return err
		}
		switch {
		case seen.Status.Delivered != nil:
			cluster := seen.Status.Delivered.Decision.Placements[0].Cluster
			if other, taken := on[cluster]; taken {
				return fmt.Errorf("oversold: %s has %s and %s", cluster, other, i.id)
			}
			on[cluster] = i.id
		case isParked(seen):
			waiting = i
		}
	}
	if len(on) != crowders-1 || waiting == nil {
		return fmt.Errorf("of %d instances %d are delivered (%v), want one to wait", crowders, len(on), on)
	}
	c.waiting = waiting
	return nil
}

// release deprovisions a delivered one, and the one that waited takes its place.
func (c *crowdStory) release(ctx context.Context) error {
	for _, i := range c.all {
		if i != c.waiting {
			if err := i.deprovision(ctx); err != nil {
				return err
			}
			break
		}
	}
	a, err := c.await(ctx, c.waiting.path(), "provision-1")
	if err != nil {
		return err
	}
	if a.text("state") != "succeeded" {
		return fmt.Errorf("the instance that waited: %v", a)
	}
	return c.waiting.delivered(ctx, 1)
}

// deprovision ends them all.
func (c *crowdStory) deprovision(ctx context.Context) error {
	var requests errgroup.Group
	for _, i := range c.all {
		requests.Go(func() error { return i.deprovision(ctx) })
	}
	return requests.Wait()
}
