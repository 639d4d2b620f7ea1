package console

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/overview"
)

// home is the operator's first page: what there is, and what needs attention.
type home struct {
	*overview.Overview
	Fleet groupRow
	// NotReady and Changing are shortened to what a page shows; the rest is counted.
	NotReadyMore, ChangingMore int
}

// mostTroubles is how many resources that are not ready the first page lists.
const mostTroubles = 40

// Attention is how many resources are not ready.
func (h *home) Attention() int { return len(h.NotReady) + h.NotReadyMore }

// linked maps what the overview calls a resource to the path of its page.
var linked = map[string]string{"cluster": "clusters/", "broker": "clusters/", "pool": "clusters/", "instance": "instances/"}

// Link returns the page of a resource that is not ready; "" if it has none.
func (h *home) Link(t overview.Trouble) string {
	if path, found := linked[t.What]; found {
		return Root + path + t.Resource
	}
	if t.What == "peering" {
		return h.List(t.What)
	}
	return ""
}

// section of the console that lists what is counted; "" if there is none.
func (h *home) List(what string) string {
	return map[string]string{
		"cluster": Root + "fleet", "broker": Root + "fleet", "pool": Root + "fleet", "instance": Root + "instances", "policy": Root + "policies", "credential": Root + "expiring", "peering": Root + "peerings", "binding": Root + "expiring",
	}[what]
}

func (s *server) homePage(c *call) (*page, error) {
	h, err := s.looks.get(c.Context(), s.Clock, s.look)
	if err != nil {
		return nil, err
	}
	return &page{Title: "Overview", template: "home", Live: Root + "live", Data: h}, nil
}

func (s *server) look(ctx context.Context) (*home, error) {
	seen, err := overview.Look(ctx, s.each)
	if err != nil {
		return nil, err
	}
	f, err := s.fleet(ctx)
	if err != nil {
		return nil, err
	}
	h := &home{Overview: seen, Fleet: f.sum()}
	shorten := func(all *[]overview.Trouble) int {
		more := max(0, len(*all)-mostTroubles)
		*all = slices.Clip((*all)[:len(*all)-more])
		return more
	}
	h.NotReadyMore, h.ChangingMore = shorten(&seen.NotReady), shorten(&seen.Changing)
	return h, nil
}

// each calls do with every resource of a kind that the cache has.
func (s *server) each(ctx context.Context, kind client.ObjectList, do func(client.Object) error) error {
	list := kind.DeepCopyObject().(client.ObjectList)
	if err := s.list(ctx, list); err != nil {
		return err
	}
	return meta.EachListItem(list, func(o runtime.Object) error { return do(o.(client.Object)) })
}
