package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
)

// measureMarket measures what people look at: pages of the console, and the changes that programs follow.
func measureMarket(ctx context.Context, b *bench) (table, error) {
	plans, clusters := pick(b, 1000, 10), pick(b, 10_000, 20)
	t := table{
		question: "How long does a page take, and how soon does a change reach those who follow the market?",
		note: fmt.Sprintf("A catalog of %d plans and %d member clusters, which cannot be reached and are probed seldom. One client loads a page after the "+
			"other. Then, with 50 plans, so many clients of this machine follow the changes (server-sent events) while plans get another description, "+
			"ten times; the time is from the write to the hub until a follower has read it. Memory is what the process has more than before, for each follower.", plans, clusters),
		header: []string{"", "p50", "p95", "p99", "size", "bar", ""},
	}
	dataDir := filepath.Join(b.folder, "pages")
	b.say("market: store %d plans and %d clusters", plans, clusters)
	err := whileDown(ctx, dataDir, func(c client.Client, namespace string) error {
		if err := storePlans(ctx, c, namespace, plans); err != nil {
			return err
		}
		return storeFleet(ctx, c, namespace, clusters)
	})
	if err != nil {
		return t, err
	}
	if err := b.measurePages(ctx, &t, dataDir, plans, clusters); err != nil {
		return t, err
	}
	return t, b.measureFollowers(ctx, &t)
}

// plansOf returns an offering with plans of this description.
func plansOf(name, description string, plans int) *v1alpha1.ServiceOffering {
	o := &v1alpha1.ServiceOffering{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ServiceOfferingSpec{ID: name, Name: name, Description: "A service of which there are plans of many sizes."},
	}
	for n := range plans {
		o.Spec.Plans = append(o.Spec.Plans, v1alpha1.Plan{
			ID: fmt.Sprintf("%s-%d", name, n), Name: fmt.Sprintf("plan-%d", n), Description: description, Kind: v1alpha1.PlanKindResources,
			Resources: &v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		})
	}
	return o
}

// storePlans writes offerings with so many plans, in all.
func storePlans(ctx context.Context, c client.Client, namespace string, plans int) error {
	const each = 50
	for n := 0; n < plans; n += each {
		o := plansOf(fmt.Sprintf("service-%d", n/each), strings.Repeat("A plan with a description of some length. ", 5), min(each, plans-n))
		o.Namespace = namespace
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// storeFleet writes member clusters of many regions and providers.
func storeFleet(ctx context.Context, c client.Client, namespace string, clusters int) error {
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(32)
	for n := range clusters {
		writers.Go(func() error {
			m := memberCluster(namespace, fmt.Sprintf("cluster-%d", n))
			m.Spec.Region, m.Spec.Provider = fmt.Sprintf("region-%d", n%150), fmt.Sprintf("provider-%d", n%40)
			return createWithStatus(ctx, c, m)
		})
	}
	return writers.Wait()
}

// measurePages loads pages with many plans and clusters.
func (b *bench) measurePages(ctx context.Context, t *table, dataDir string, plans, clusters int) error {
	s, err := b.serve(ctx, dataDir, "--probe-every", "1h")
	if err != nil {
		return err
	}
	defer s.kill()
	wait, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := s.awaitLooks(wait, "membercluster", clusters); err != nil {
		return err
	}
	for _, page := range []struct {
		what, path, as string
		bar            time.Duration
	}{
		{fmt.Sprintf("market, %d plans", plans), "market", "bench", 50 * time.Millisecond},
		{fmt.Sprintf("fleet, %d clusters", clusters), "fleet", "", time.Second},
	} {
		session, err := s.session(ctx, page.as)
		if err != nil {
			return err
		}
		size := 0
		loaded := closedLoop(ctx, 1, pick(b, 5*time.Second, 100*time.Millisecond), func(ctx context.Context) (err error) {
			size, err = s.page(ctx, page.path, session)
			return err
		})
		if loaded.err != nil {
			return loaded.err
		}
		const most = 100_000
		p95 := loaded.quantile(0.95)
		t.add("page: "+page.what, milliseconds(loaded.median()), milliseconds(p95), milliseconds(loaded.quantile(0.99)), fmt.Sprintf("%d kB", size/1000),
			fmt.Sprintf("p95 ≤ %s, ≤ %d kB", milliseconds(page.bar), most/1000), verdict(p95 <= page.bar && size <= most))
	}
	return nil
}

// session opens the console as a platform, or as the operator, and returns the cookie.
func (s *sluice) session(ctx context.Context, platform string) (*http.Cookie, error) {
	args := []string{"console", "--data-dir", s.dataDir, "--url", s.url}
	if platform != "" {
		args = append(args, "--as-platform", platform)
	}
	link, err := exec.CommandContext(ctx, s.binary, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("sluice console: %w", err)
	}
	_, ticket, _ := strings.Cut(strings.TrimSpace(string(link)), "#ticket=")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/console/enter", strings.NewReader(url.Values{"ticket": {ticket}}.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultTransport.RoundTrip(r) // without following it
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if len(answer.Cookies()) != 1 {
		return nil, fmt.Errorf("enter the console: %s, with %d cookies", answer.Status, len(answer.Cookies()))
	}
	return answer.Cookies()[0], nil
}

// page loads a page of the console, and returns its size in bytes.
func (s *sluice) page(ctx context.Context, path string, session *http.Cookie) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/console/"+path, nil)
	if err != nil {
		return 0, err
	}
	r.AddCookie(session)
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return len(body), err
}

// measureFollowers has ever more clients follow the market.
func (b *bench) measureFollowers(ctx context.Context, t *table) error {
	s, err := b.serveNew(ctx, "followers", "--max-connections", "32768") // half of them from one address
	if err != nil {
		return err
	}
	defer s.kill()
	c, err := s.hub()
	if err != nil {
		return err
	}
	o := plansOf("many", "as it was", 50)
	o.Namespace = "sluice"
	if err := c.Create(ctx, o); err != nil {
		return err
	}
	if err := poll(ctx, 10*time.Millisecond, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.Status.Accepted != nil {
			return err
		}
		return errors.New("its catalog does not serve the plans")
	}); err != nil {
		return err
	}
	r, err := s.request(ctx, http.MethodPost, "/market/v1/tokens", nil)
	if err != nil {
		return err
	}
	var session struct{ Token string }
	if err := s.send(r, http.StatusCreated, &session); err != nil {
		return err
	}
	for _, count := range pick(b, []int{100, 1000, 10_000}, []int{10}) {
		b.say("market: %d followers", count)
		before, err := s.memory("VmRSS")
		if err != nil {
			return err
		}
		f, err := s.follow(ctx, session.Token, count)
		if err != nil {
			return err
		}
		var all latencies
		for round := range 10 {
			for n := range o.Spec.Plans {
				o.Spec.Plans[n].Description = fmt.Sprintf("as it is with %d, %d times", count, round)
			}
			began := time.Now()
			if err := c.Update(ctx, o); err != nil {
				return err
			}
			heard, err := f.hear(ctx)
			if err != nil {
				return err
			}
			for _, at := range heard {
				all = append(all, at.Sub(began))
			}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		after, err := s.memory("VmRSS")
		if err != nil {
			return err
		}
		f.close()
		each := float64((after-before)<<10) / float64(count)
		bar, met := "", ""
		if count == 10_000 {
			bar, met = "p99 ≤ 1 s, ≤ 30 kB each", verdict(all.quantile(0.99) <= time.Second && each <= 30)
		}
		t.add(fmt.Sprintf("a change, %d followers", count), milliseconds(all.median()), milliseconds(all.quantile(0.95)), milliseconds(all.quantile(0.99)), fmt.Sprintf("%.0f kB each", each), bar, met)
	}
	return nil
}

// hub returns a client of the hub of a running Sluice.
func (s *sluice) hub() (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", hub.KubeconfigPath(s.dataDir))
	if err != nil {
		return nil, err
	}
	return newHubClient(config)
}

// followers are connections that follow the market.
type followers struct {
	connections []net.Conn
	// heard has the time at which one of them read that something has changed, or why it never will.
	heard chan heard
}

type heard struct {
	at  time.Time
	err error
}

// follow connects so many followers, and returns when each has the whole list.
func (s *sluice) follow(ctx context.Context, token string, count int) (*followers, error) {
	f := &followers{heard: make(chan heard, count)}
	var mu sync.Mutex
	dialing, ctx := errgroup.WithContext(ctx)
	dialing.SetLimit(64)
	for range count {
		dialing.Go(func() error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				return err
			}
			mu.Lock()
			f.connections = append(f.connections, connection)
			mu.Unlock()
			if _, err := fmt.Fprintf(connection, "GET /market/v1/changes HTTP/1.1\r\nHost: sluice\r\nAuthorization: Bearer %s\r\n\r\n", token); err != nil {
				return err
			}
			lines := bufio.NewReaderSize(connection, 4096)
			if status, _, err := lines.ReadLine(); err != nil || !strings.HasSuffix(string(status), "200 OK") {
				return fmt.Errorf("follow the market: %q, %w", status, err)
			}
			if err := awaitEvent(lines, "plans"); err != nil {
				return err
			}
			go func() {
				for {
					err := awaitEvent(lines, "change")
					f.heard <- heard{time.Now(), err}
					if err != nil {
						return
					}
				}
			}()
			return nil
		})
	}
	if err := dialing.Wait(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// awaitEvent reads an event of the name.
func awaitEvent(lines *bufio.Reader, name string) error {
	for inside := false; ; {
		line, isPrefix, err := lines.ReadLine()
		switch {
		case err != nil:
			return err
		case string(line) == "event: "+name:
			inside = true
		case inside && !isPrefix && len(line) == 0:
			return nil
		}
	}
}

// hear returns when each follower has read the next change.
func (f *followers) hear(ctx context.Context) (times []time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for range f.connections {
		select {
		case one := <-f.heard:
			if one.err != nil {
				return nil, one.err
			}
			times = append(times, one.at)
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d followers have heard of a change: %w", len(times), len(f.connections), ctx.Err())
		}
	}
	return times, nil
}

// close disconnects the followers.
func (f *followers) close() {
	for _, connection := range f.connections {
		_ = connection.Close()
	}
}
