package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/claims"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/secretfile"
)

// claimsFlags are the settings of `sluice claims`.
type claimsFlags struct {
	kubeconfig    string
	url, caFile   string
	credentials   string
	name          string
	namespaces    []string
	election      string
	overlap       time.Duration
	metricsListen string
	log           logFlags
}

func newClaimsCommand() *cobra.Command {
	f := &claimsFlags{}
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "Order what the claims in your cluster ask for, from any OSB broker",
		Long: `Order what the claims in your cluster ask for, from any broker that speaks OSB 2.17: a Sluice or another one.

A ServiceClaim orders an instance of a service. A BindingClaim puts credentials for it into a Secret in its
namespace, and renews them before they end. This command is their controller, and runs until it is stopped. It
may be killed at any time, and goes on where it was. The definitions of both kinds, and a Deployment of this
command, are in the Helm chart charts/claims.

The credentials for the broker are $SLUICE_USERNAME and $SLUICE_PASSWORD, or $SLUICE_TOKEN, or in a file. One
controller orders from one broker: for another one, run another with another --name, which claims give as broker.`,
		Example: `  eval "$(sluice platform show default)"
  sluice claims --kubeconfig consumer.kubeconfig
  sluice claims --broker https://broker.example --credentials broker.json --name public --namespaces shop,blog`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	cmd.GroupID = consumerGroup
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster with the claims (default: the pod's own cluster, or kubectl's)")
	flags.StringVar(&f.url, "broker", "", "URL of the broker, without /v2 (default: $"+envURL+")")
	flags.StringVar(&f.caFile, "ca-file", "", "file with the certificates (PEM) that the broker's is checked against, if they are not the system's")
	flags.StringVar(&f.credentials, "credentials", "", `JSON file with the credentials for the broker: {"username", "password"}, {"token"} or {"oauth": {"tokenURL", "clientID", "clientSecret"}}; read again when it changes`)
	flags.StringVar(&f.name, "name", claimsv1.DefaultBroker, "name of the broker in claims")
	flags.StringSliceVar(&f.namespaces, "namespaces", nil, "namespaces whose claims are carried out (default: all)")
	flags.StringVar(&f.election, "election-namespace", "", "namespace of the Lease by which one of several replicas works (default: this is the only one)")
	flags.DurationVar(&f.overlap, "overlap", time.Hour, "how long replaced credentials go on, so that pods read the new ones first; never longer than they would anyway")
	flags.StringVar(&f.metricsListen, "metrics-listen", "127.0.0.1:8082", "address of /metrics, /healthz and /readyz; 0 disables it")
	f.log.bind(cmd)
	return cmd
}

// run carries out claims until the context ends.
func (f *claimsFlags) run(ctx context.Context) error {
	logger := f.log.logger()
	broker, err := f.broker()
	if err != nil {
		return err
	}
	config, err := f.cluster()
	if err != nil {
		return err
	}
	known := runtime.NewScheme()
	if err := claims.AddToScheme(known); err != nil {
		return err
	}
	live, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	cluster, err := claims.LookUp(ctx, live)
	if err != nil {
		return err
	}
	healthy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	options := manager.Options{
		Scheme:  known,
		Cache:   cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics: metricsserver.Options{BindAddress: f.metricsListen, ExtraHandlers: map[string]http.Handler{"/healthz": healthy, "/readyz": healthy}},

		LeaderElection: f.election != "", LeaderElectionNamespace: f.election, LeaderElectionID: "sluice-claims-" + f.name, LeaderElectionReleaseOnCancel: true,
	}
	if len(f.namespaces) > 0 {
		options.Cache.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range f.namespaces {
			options.Cache.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	controller := &claims.Controller{Client: live, Broker: broker, Name: f.name, Cluster: cluster, Overlap: f.overlap, Events: mgr.GetEventRecorder("sluice-claims")}
	if err := controller.SetupWithManager(mgr); err != nil {
		return err
	}
	if err := announce(mgr, logger, "name", f.name, "metrics", f.metricsListen); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// cluster returns the connection to the cluster with the claims.
func (f *claimsFlags) cluster() (*rest.Config, error) {
	if f.kubeconfig == "" {
		config, err := ctrl.GetConfig()
		if err != nil {
			return nil, fmt.Errorf("no cluster is named with --kubeconfig, and there is no other: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}

// broker returns the client of the broker, which is another one after a change of its credentials.
func (f *claimsFlags) broker() (func() *osbclient.Client, error) {
	url := cmp.Or(f.url, os.Getenv(envURL))
	if url == "" {
		return nil, errors.New("no broker is named with --broker or $" + envURL)
	}
	roots, err := readBundle(f.caFile)
	if err != nil {
		return nil, err
	}
	if f.credentials == "" {
		credentials, err := environmentCredentials()
		if err != nil {
			return nil, err
		}
		given, err := brokerAccess{url, credentials}.open(roots)
		return func() *osbclient.Client { return given }, err
	}
	file, err := secretfile.Open("the broker's credentials", f.credentials, func(content []byte) (*osbclient.Client, error) {
		credentials, err := osbclient.ParseCredentials(slices.Clone(content))
		if err != nil {
			return nil, err
		}
		return brokerAccess{url, credentials}.open(roots)
	})
	if err != nil {
		return nil, fmt.Errorf("--credentials: %w", err)
	}
	return file.Current, nil
}
