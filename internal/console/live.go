package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

const (
	// livePause is the time from a change to its event, in which further changes are taken together.
	livePause = 500 * time.Millisecond
	// liveSettled is the time after the last change at which there is one more event, because what is shown of very
	// large fleets may be some seconds old.
	liveSettled = 10 * time.Second
	// liveBeat is how often a stream without changes says that it is alive, and its token is verified again.
	liveBeat = 20 * time.Second
)

// Changes announces that resources have changed, by topic. It keeps nothing of those who listen: a topic is a channel
// that is closed with the next change.
type Changes struct {
	mu     sync.Mutex
	topics map[string]chan struct{}
	ended  chan struct{}
}

// NewChanges returns changes that nobody announces before Follow.
func NewChanges() *Changes {
	return &Changes{topics: map[string]chan struct{}{}, ended: make(chan struct{})}
}

// Follow announces what changes in the cache until ctx ends. Then all streams end, so that the server can.
func (c *Changes) Follow(ctx context.Context, in cache.Cache) error {
	defer close(c.ended)
	for _, kind := range []client.Object{&v1alpha1.ServiceInstance{}, &v1alpha1.ServiceBinding{}, &v1alpha1.MemberCluster{}, &v1alpha1.Peering{}, &v1alpha1.Provider{}} {
		informer, err := in.GetInformer(ctx, kind)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if err != nil {
			return nil
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: c.announce, UpdateFunc: func(_, o any) { c.announce(o) }, DeleteFunc: c.announce,
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // the cache stops with ctx
	}
	<-ctx.Done()
	return nil
}

// topicAll is the topic of every change; others are of a platform, or of an instance.
const topicAll = "all"

func topicPlatform(name string) string { return "platform " + name }
func topicInstance(name string) string { return "instance " + name }

func (c *Changes) announce(o any) {
	if missed, isMissed := o.(toolscache.DeletedFinalStateUnknown); isMissed {
		o = missed.Obj
	}
	topics := []string{topicAll}
	switch o := o.(type) {
	case *v1alpha1.ServiceInstance:
		topics = append(topics, topicInstance(o.Name), topicPlatform(o.Spec.Platform))
	case *v1alpha1.ServiceBinding:
		topics = append(topics, topicInstance(o.Spec.InstanceName))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, topic := range topics {
		if changed, waits := c.topics[topic]; waits {
			close(changed)
			delete(c.topics, topic)
		}
	}
}

// next returns a channel that is closed with the next change of a topic.
func (c *Changes) next(topic string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, waits := c.topics[topic]
	if !waits {
		changed = make(chan struct{})
		c.topics[topic] = changed
	}
	return changed
}

// live streams an event for each change of what the caller's page shows (server-sent events), and one at the start,
// because something may have changed since the page was made.
func (s *server) live(w http.ResponseWriter, r *http.Request) {
	c := &call{Request: r, w: w}
	topic, err := s.topic(c)
	if err != nil {
		refused := s.failed(c, err)
		http.Error(w, refused.Title, refused.status)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies
	stream := http.NewResponseController(w)
	send := func(text string) bool {
		_ = stream.SetWriteDeadline(time.Now().Add(2 * liveBeat)) // the server's own is for pages
		_, err := io.WriteString(w, text)
		return err == nil && stream.Flush() == nil
	}
	const change, beat = "event: change\ndata:\n\n", ":\n\n"
	changed, settled := s.Changes.next(topic), false
	for text := change; send(text); {
		wait := liveBeat
		if text == change && !settled {
			wait = liveSettled
		}
		select {
		case <-changed:
			changed = s.Changes.next(topic)
			if !s.sleeps(r.Context(), livePause) {
				return
			}
			text, settled = change, false
		case <-time.After(wait):
			if !s.isSame(r, c.caller) {
				return
			}
			if wait == liveSettled {
				text, settled = change, true
			} else {
				text = beat
			}
		case <-s.Changes.ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// isSame reports whether the session of a request still is the caller's.
func (s *server) isSame(r *http.Request, caller access.Caller) bool {
	now := &call{Request: r}
	return s.identify(now) == nil && now.caller == caller
}

// sleeps waits, and returns false if the request ends meanwhile.
func (s *server) sleeps(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	case <-s.Changes.ended:
		return false
	}
}

// topic returns what a stream is about: an instance that the caller may see, or everything that it may see.
func (s *server) topic(c *call) (string, error) {
	if err := s.identify(c); err != nil {
		return "", err
	}
	if c.caller == (access.Caller{}) {
		return "", errLogin
	}
	if name := c.URL.Query().Get("instance"); name != "" {
		i := &v1alpha1.ServiceInstance{}
		if err := s.get(c.Context(), name, i); err != nil {
			return "", orNoSuch(err, "instance", name)
		}
		if c.caller.Role == access.Platform && i.Spec.Platform != c.caller.Name || c.caller.Role == access.Provider {
			return "", errNoPage
		}
		return topicInstance(name), nil
	}
	if c.caller.Role == access.Platform {
		return topicPlatform(c.caller.Name), nil
	}
	return topicAll, nil
}
