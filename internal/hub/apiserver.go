package hub

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	noop "go.opentelemetry.io/otel/trace/noop"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	crdopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

const (
	// storagePrefix is the etcd prefix of everything the API server stores.
	// Changing it loses every hub's content.
	storagePrefix = "/sluice"
	// watchDrainTimeout is how long open watches may take to end when the API
	// server stops.
	watchDrainTimeout = 200 * time.Millisecond
	// connectionDrainTimeout is how long connections may then take to close; the
	// HTTP/2 server spends a second of it on waiting for clients to go away.
	connectionDrainTimeout = 1500 * time.Millisecond
	// readyTimeout bounds the wait of stop for a server that is still starting.
	readyTimeout = 10 * time.Second
)

// apiServer is a running API server for custom resources.
type apiServer struct {
	config *rest.Config
	cancel context.CancelFunc
	ended  chan error // receives the error that ended the server, then is closed
	ready  chan struct{}
}

// startAPIServer serves on listener the content of the etcd at endpoint, and returns when it is
// ready. The listener is closed by stop, or before an error is returned.
func startAPIServer(ctx context.Context, listener net.Listener, endpoint string) (*apiServer, error) {
	certificate, key, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("make the API's certificate: %w", err)
	}
	serving, err := dynamiccertificates.NewStaticCertKeyContent("hub", certificate, key)
	if err != nil {
		return nil, fmt.Errorf("load the API's certificate: %w", err)
	}
	clientConfig := func() *rest.Config {
		return &rest.Config{
			Host:            "https://" + listener.Addr().String(),
			BearerToken:     rand.Text(),
			TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
			QPS:             -1,
		}
	}
	admin := clientConfig()
	admin.UserAgent = rest.DefaultKubernetesUserAgent()

	config := serverConfig(&genericserver.SecureServingInfo{
		Listener: listener, Cert: serving, MinTLSVersion: tls.VersionTLS13,
	}, clientConfig(), admin.BearerToken)
	etcdOptions := etcdOptions(endpoint)
	if err := etcdOptions.ApplyTo(&config.Config); err != nil {
		return nil, fmt.Errorf("configure the API's storage: %w", err)
	}
	server, err := newServer(config, etcdOptions)
	if err != nil {
		return nil, fmt.Errorf("assemble the API server: %w", err)
	}
	a := run(server.GenericAPIServer, admin)
	if err := a.awaitReady(ctx); err != nil {
		return nil, fmt.Errorf("wait for the API server: %w", errors.Join(err, a.stop()))
	}
	return a, nil
}

// run serves until stop.
func run(server *genericserver.GenericAPIServer, admin *rest.Config) *apiServer {
	ctx, cancel := context.WithCancel(context.Background())
	a := &apiServer{config: admin, cancel: cancel, ended: make(chan error, 1), ready: make(chan struct{})}
	prepared := server.PrepareRun()
	go func() {
		defer close(a.ended)
		a.ended <- prepared.RunWithContext(ctx)
	}()
	go func() {
		for _, complete := range server.MuxAndDiscoveryCompleteSignals() {
			select {
			case <-complete:
			case <-ctx.Done():
				return
			}
		}
		close(a.ready)
	}()
	return a
}

func (a *apiServer) awaitReady(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case err := <-a.ended:
		return unexpectedEnd("API server", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serverConfig configures authentication, and only what a single administrator on the loopback
// interface needs. There is no fair queueing and no limit on requests in flight, because all
// clients are Sluice's own.
func serverConfig(serving *genericserver.SecureServingInfo, loopback *rest.Config, adminToken string) *genericserver.RecommendedConfig {
	config := genericserver.NewRecommendedConfig(apiserver.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.SecureServing = serving
	config.ExternalAddress = serving.Listener.Addr().String()
	config.LoopbackClientConfig = loopback
	config.MergedResourceConfig = serverstorage.NewResourceConfig()
	config.MergedResourceConfig.EnableVersions(apiextensionsv1.SchemeGroupVersion)

	config.Authentication.Authenticator = authenticatorfactory.NewFromTokens(map[string]*user.DefaultInfo{
		adminToken: {Name: "sluice:admin", Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}},
	}, authenticator.Audiences(nil))
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()

	config.AdmissionControl = ownersOnceApplied{}
	config.EnableIndex = false
	config.EnableProfiling = false
	config.EnableMetrics = false
	config.MaxRequestsInFlight = 0
	config.MaxMutatingRequestsInFlight = 0
	config.ShutdownWatchTerminationGracePeriod = watchDrainTimeout

	// Server-side apply needs these, and kubectl's apply and explain the documents that openAPI makes of them.
	config.SkipOpenAPIInstallation = true
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(crdopenapi.GetOpenAPIDefinitions)
	namer := apiopenapi.NewDefinitionNamer(apiserver.Scheme)
	config.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(definitions, namer)
	return config
}

func etcdOptions(endpoint string) *options.EtcdOptions {
	storage := storagebackend.NewDefaultConfig(storagePrefix, apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion))
	storage.Transport.ServerList = []string{endpoint}
	etcdOptions := options.NewEtcdOptions(storage)
	// There is no garbage collector: with this set, a foreground deletion would wait for ever.
	etcdOptions.EnableGarbageCollection = false
	// The health endpoints would answer no earlier than a second after the start. They are not
	// needed: the server and its client share a process.
	etcdOptions.SkipHealthEndpoints = true
	// The one client has a cache of its own. A second copy of every object, as
	// maps, would be most of the process's memory; etcd is in the same process.
	etcdOptions.EnableWatchCache = false
	return etcdOptions
}

func newServer(config *genericserver.RecommendedConfig, etcdOptions *options.EtcdOptions) (*apiserver.CustomResourceDefinitions, error) {
	complete := (&apiserver.Config{
		GenericConfig: config,
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: crdoptions.NewCRDRESTOptionsGetter(*etcdOptions, config.ResourceTransformers, config.StorageObjectCountTracker),
			ServiceResolver:      webhook.NewDefaultServiceResolver(),
			AuthResolverWrapper: webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, config.LoopbackClientConfig,
				noop.NewTracerProvider()),
		},
	}).Complete()
	// In a cluster the aggregator in front serves /apis; here there is no aggregator.
	complete.GenericConfig.EnableDiscovery = true
	server, err := complete.New(genericserver.NewEmptyDelegateWithCustomHandler(http.NotFoundHandler()))
	if err != nil {
		return nil, err
	}
	server.GenericAPIServer.ShutdownTimeout = connectionDrainTimeout
	serveOpenAPI(server, config.Config)
	return server, nil
}

// failed receives the error that ended the API server.
func (a *apiServer) failed() <-chan error { return a.ended }

// stop ends the API server and returns when it no longer uses etcd.
func (a *apiServer) stop() error {
	// The server treats a cancellation during its start as a crash, and would end the process.
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	_ = a.awaitReady(ctx) // it is stopped in any case
	a.cancel()
	if err := <-a.ended; err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return nil
}
