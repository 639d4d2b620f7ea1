//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// tour is an application over three clusters: its web server is public, by a certificate of the consumer's own, and the
// image of its database is in a private registry.
const (
	tourID   = "tour"
	tourHost = "tour." + publicDomain
)

// tourClusters are the kind clusters by the names that they have as member clusters.
var tourClusters = map[string]string{"a": peerConsumer, "b": peerProvider, "far": peerInvited}

// running are the pods of the tour by component, each with its kind cluster and its name.
type running map[string][2]string

// tour orders the application. Its components reach each other by name where they are linked, and only there. One
// moves to another cluster, another goes; the rest runs on.
func (w *peeringWorld) tour(t *testing.T) {
	w.own(t) // nothing is placed on clusters of consumers
	w.sluice("cluster", "add", "a", "--from-kubeconfig", internalKubeconfig(peerConsumer), "--driver", "liqo", "--tier", "edge", "--region", "region-a",
		"--public-gateway", gatewayNamespace+"/public", "--public-domain", publicDomain, "--public-port", publicPort, "--public-tls", "tls:"+tlsPort)
	w.sluice("cluster", "add", "far", "--from-kubeconfig", internalKubeconfig(peerInvited), "--driver", "liqo", "--gateway-service", "NodePort", "--region", "region-c")
	const user, password = "ann", "as-long-as-it-is-secret"
	privateRegistry(t, peerInvited, user, password)
	chain, key := selfSigned(t, tourHost)
	p := w.broker.findPlan(t, "peered-workloads", "tour")
	began := time.Now()
	w.broker.provision(t, tourID, p, map[string]any{
		"host":        "tour",
		"certificate": map[string]any{"chain": string(chain), "key": string(key)},
		"registry":    map[string]any{"username": user, "password": password},
	})
	t.Logf("components on three clusters, peerings included: %.1f s", time.Since(began).Seconds())
	shown := fmt.Sprint(w.broker.must(t, "GET", "/v2/service_instances/"+tourID, nil, nil, http.StatusOK))
	if strings.Contains(shown, password) || strings.Contains(shown, "PRIVATE KEY") {
		t.Errorf("what is to be sealed is shown: %s", shown)
	}

	pods := w.tourOn(t, map[string]string{"web": "a", "api": "b", "worker": "b", "db": "far"})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	get := browser(w.gateway, roots)
	site := "https://" + tourHost + ":" + tlsPort
	if credentials := w.broker.bind(t, tourID, "visitor", p, nil); credentials["url"] != site {
		t.Errorf("the credentials are %v, want the url %s", credentials, site)
	}
	serves(t, get, site, "web-")
	w.broker.unbind(t, tourID, "visitor", p)
	w.wantAnswers(t, pods, map[string][]string{"web": {"api:8081"}, "api": {"db:5432"}, "worker": {"db:5432", "api:8081"}, "db": {"api:8081"}})
	w.wantOverlay(t, "b", "db", "far")
	w.wantOverlay(t, "far", "api", "b")
	slices := clientset(t, peerConsumer).DiscoveryV1().EndpointSlices(tourNamespace())
	must(t, slices.Delete(t.Context(), "api", metav1.DeleteOptions{}))
	deleted := time.Now()
	eventually(t, time.Minute, "the deleted link is back", func(ctx context.Context) string {
		if _, err := slices.Get(ctx, "api", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Logf("the deleted link was back after %s: by the watch, because Sluice looks by itself every five minutes", time.Since(deleted))
	silent(t, "worker asks web, to which it is not linked", w.askTour(pods, "worker", "web:443"))

	now := w.tourMoves(t, pods, map[string]string{"web": "a", "api": "a", "db": "far"})
	w.wantOverlay(t, "a", "db", "far")
	silent(t, "web asks db, to which it is not linked", w.askTour(now, "web", "db:5432"))
	serves(t, get, site, "web-")
}

func tourNamespace() string {
	return v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", tourID))
}

// own makes a cluster that of some consumers, or of none, and waits until Sluice knows them.
func (w *peeringWorld) own(t *testing.T, consumers ...v1alpha1.ConsumerReference) {
	t.Helper()
	hub, a := func() client.Client { return w.server.hub(t) }, &v1alpha1.MemberCluster{} // one that was killed has another address
	key := client.ObjectKey{Namespace: "sluice", Name: "a"}
	eventually(t, time.Minute, "cluster a has other owners", func(ctx context.Context) string {
		err := hub().Get(ctx, key, a)
		if err == nil {
			a.Spec.Consumers = consumers
			err = hub().Update(ctx, a)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	eventually(t, time.Minute, "Sluice knows the owners of cluster a", func(ctx context.Context) string {
		now := &v1alpha1.MemberCluster{}
		if err := hub().Get(ctx, key, now); err != nil {
			return err.Error()
		}
		ready := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration < a.Generation {
			return fmt.Sprintf("it knows %+v", ready)
		}
		return ""
	})
}

// tourOn checks that each component of the tour runs on a cluster, and no others do.
func (w *peeringWorld) tourOn(t *testing.T, components map[string]string) running {
	t.Helper()
	found := running{}
	for cluster, kind := range tourClusters {
		list, err := clientset(t, kind).CoreV1().Pods(tourNamespace()).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp == nil {
				name := p.Labels[v1alpha1.LabelComponent]
				found[name] = [2]string{kind, p.Name}
				if components[name] != cluster {
					t.Errorf("%s runs on %s, want %s", name, cluster, components[name])
				}
			}
		}
	}
	if len(found) != len(components) {
		t.Fatalf("there are pods of %v, want %v", found, components)
	}
	return found
}

func (w *peeringWorld) askTour(pods running, from, target string) func() (string, error) {
	return func() (string, error) {
		return inPod(w.kubectl, pods[from][0], tourNamespace(), pods[from][1], "get", "http://"+target)
	}
}

// wantAnswers waits until components are answered at the names of others, by those.
func (w *peeringWorld) wantAnswers(t *testing.T, pods running, ways map[string][]string) {
	t.Helper()
	for from, targets := range ways {
		for _, target := range targets {
			name, _, _ := strings.Cut(target, ":")
			eventually(t, patience, from+" asks "+target, func(context.Context) string {
				if answered, err := w.askTour(pods, from, target)(); err != nil || !strings.HasPrefix(answered, name) {
					return fmt.Sprintf("%q %v", answered, err)
				}
				return ""
			})
		}
	}
}

// wantOverlay checks that on a cluster a name leads to another one, at an address that Liqo has mapped.
func (w *peeringWorld) wantOverlay(t *testing.T, on, name, to string) {
	t.Helper()
	s, err := clientset(t, tourClusters[on]).DiscoveryV1().EndpointSlices(tourNamespace()).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	address, err := netip.ParseAddr(s.Endpoints[0].Addresses[0])
	must(t, err)
	for _, cidr := range networkOf(t, tourClusters[on], tourClusters[to]).External {
		if netip.MustParsePrefix(string(cidr)).Contains(address) && s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy {
			return
		}
	}
	t.Errorf("%s on %s leads to %s, which is not in the range that %s has there", name, on, address, to)
}

// tourMoves updates the tour to the plan by which api moves to another cluster and the worker goes. No request fails
// that api's callers make meanwhile, one on each of the other two clusters, and pods of components that stay are not
// replaced.
func (w *peeringWorld) tourMoves(t *testing.T, pods running, components map[string]string) running {
	t.Helper()
	load := func(from string) func() {
		return loadFrom(t, w.kubectl, pods[from][0], tourNamespace(), pods[from][1], "api:8081", "api")
	}
	ends := []func(){load("web"), load("db")}
	p, began := w.broker.findPlan(t, "peered-workloads", "beside"), time.Now()
	w.broker.must(t, "PATCH", "/v2/service_instances/"+tourID, url.Values{"accepts_incomplete": {"true"}},
		map[string]any{"service_id": p.service, "plan_id": p.id}, http.StatusAccepted)
	w.broker.await(t, tourID, "update of the tour")
	t.Logf("api moved in %.1f s", time.Since(began).Seconds())
	now := w.tourOn(t, components)
	for _, end := range ends { // before the peerings end that are not needed any more, see docs/peering.md, Limits
		end()
	}
	w.wantAnswers(t, now, map[string][]string{"web": {"api:8081"}, "api": {"db:5432"}, "db": {"api:8081"}})
	for stays := range components {
		if stays != "api" && now[stays] != pods[stays] {
			t.Errorf("the pod of %s was replaced", stays)
		}
	}
	return now
}

// wantPeerings waits until the clusters of the tour have only these peerings, each with its consumer and its provider.
func (w *peeringWorld) wantPeerings(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, patience, fmt.Sprintf("the peerings are %q", want), func(ctx context.Context) string {
		var peerings v1alpha1.PeeringList
		if err := w.server.hub(t).List(ctx, &peerings, client.InNamespace("sluice")); err != nil {
			return err.Error()
		}
		var found []string
		for i := range peerings.Items {
			found = append(found, peerings.Items[i].Spec.Consumer+" "+peerings.Items[i].Spec.Provider)
		}
		if strings.Join(found, ",") != strings.Join(want, ",") {
			return fmt.Sprintf("they are %q", found)
		}
		return ""
	})
}
