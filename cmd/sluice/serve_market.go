package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/console"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/probe"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/registration"
	"github.com/sluice-dev/sluice/placement/replay"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/server"
)

// web returns the handler of everything at --listen: the console, self-descriptions, the market, and the OSB API.
func (f *serveFlags) web(mgr ctrl.Manager, h *hub.Hub, served *catalog.Catalog, sold *soldInventory, platforms *broker.Platforms, keys *seal.Keyset, osb http.Handler, probes *probe.Server, changes *console.Changes) (http.Handler, error) {
	// Every replica accepts presentations and tickets, so the fence that keeps other replicas from writing must not
	// hold this client.
	everywhere, err := client.New(h.Config, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: mgr.GetCache()}})
	if err != nil {
		return nil, fmt.Errorf("connect to the hub: %w", err)
	}
	described, err := f.trust.assemble(mgr, h, keys, everywhere, f.prepared)
	if err != nil {
		return nil, fmt.Errorf("set up self-descriptions: %w", err)
	}
	tokens := &access.Tokens{Hub: everywhere, Live: mgr.GetAPIReader(), Writer: everywhere, Namespace: h.Namespace, Seal: keys, Platforms: platforms}
	platforms.AcceptTokens(tokens)
	newcomers := &registration.Newcomers{
		Connections: &member.Connections{Reader: mgr.GetAPIReader(), Namespace: h.Namespace, AllowAddresses: f.joinAddresses}, Store: registration.Sealed{Keys: keys},
	}
	signs := &statements{hub: everywhere, namespace: h.Namespace, keys: keys}
	supposes := supposer{mgr.GetCache(), h.Namespace, served}
	sells := market.New(market.Options{
		Hub: everywhere, Live: mgr.GetAPIReader(), Namespace: h.Namespace, Catalog: served, Inventory: sold, Tokens: tokens, Platforms: platforms,
		Login: loginOf(server.Login(described)), Connect: connectOf(newcomers),
		Policies: supposes, Moves: supposes.moves, Manifest: sync.OnceValues(manifestToJoin),
		SignContract: signs.of(selfdescription.StatementContract), SignUsage: signs.of(selfdescription.StatementUsage),
	}, probes.Handler(osb))
	f.listener.ending = sells.EndFollowing
	handler := server.New(described, sells)
	if !f.console {
		return handler, nil
	}
	return console.New(console.Options{
		Hub: mgr.GetCache(), Live: mgr.GetAPIReader(), Namespace: h.Namespace, Catalog: served, Tokens: tokens, Platforms: platforms, OSB: osb, Market: sells,
		Explain: explainer(served, mgr.GetAPIReader(), h.Namespace), Changes: changes, URL: strings.TrimSuffix(f.trust.publicURL, "/"), Secure: strings.HasPrefix(f.publicURL(), "https://"),
	}, handler)
}

// probes returns the server of the probes on member clusters, which measures on the leader if the broker does.
func (f *serveFlags) probes(mgr ctrl.Manager, h *hub.Hub, keys *seal.Keyset) (*probe.Server, error) {
	o := probe.Options{Every: f.probeEvery, Hub: mgr.GetCache(), Instances: mgr.GetCache(), Namespace: h.Namespace, Keys: keys}
	if results := f.prepared.measure.Probes; results != nil {
		o.Results = results
	}
	server := probe.NewServer(o)
	return server, mgr.Add(server)
}

// manifestToJoin returns what the owner of a cluster applies to it before it joins, as YAML.
func manifestToJoin() ([]byte, error) {
	permissions, err := registration.PermissionsToJoin(kube.ManifestOptions{})
	if err != nil {
		return nil, err
	}
	return kube.Manifest(permissions)
}

// loginOf makes refusals of presentations those of the market.
func loginOf(login func(context.Context, string) (string, error)) func(context.Context, string) (string, error) {
	return func(ctx context.Context, presentation string) (string, error) {
		provider, err := login(ctx, presentation)
		if refused := (*server.Error)(nil); errors.As(err, &refused) {
			return "", &market.Error{Status: refused.Status, Code: "PresentationRefused", Description: refused.Description}
		}
		return provider, err
	}
}

// connectOf makes refusals of clusters those of the market.
func connectOf(newcomers *registration.Newcomers) func(context.Context, *v1alpha1.MemberCluster, market.Access) (string, error) {
	return func(ctx context.Context, cluster *v1alpha1.MemberCluster, given market.Access) (string, error) {
		uid, err := newcomers.Take(ctx, cluster, member.Kubeconfig{Server: given.Server, CA: []byte(given.CA), TLSServerName: given.TLSServerName, Token: given.Token})
		if refused := (*registration.RefusedError)(nil); errors.As(err, &refused) {
			return "", &market.Error{Status: http.StatusUnprocessableEntity, Code: "ClusterRefused", Description: refused.Error() + "."}
		}
		return uid, err
	}
}

// explainer returns a function that decides anew for an instance, from the hub's state.
func explainer(served *catalog.Catalog, live client.Reader, namespace string) console.Explain {
	return func(ctx context.Context, i *v1alpha1.ServiceInstance, leaving []string) ([]placement.Verdict, error) {
		plan, err := served.Snapshot().Plan(i.Spec.ServiceID, i.Spec.Desired.PlanID)
		if err != nil {
			return nil, err
		}
		order := replay.Order{ID: i.Name, PlanID: plan.ID, Parameters: i.Spec.Desired.Raw(), Leaving: leaving}
		_, verdicts, err := replay.Record(ctx, live, namespace, *plan.Offering.ServiceOfferingSpec, order, time.Now())
		return verdicts, err
	}
}
