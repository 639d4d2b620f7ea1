package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/answers"
	"github.com/sluice-dev/sluice/internal/hub"
)

// scheme holds the kinds that the commands and the manager read and write.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(eventsv1.AddToScheme(s))
	return s
}()

// fieldOwner is the field manager of the fields that the commands apply to the hub.
const fieldOwner = "sluice-cli"

// hubFlags select the hub of a command: the embedded hub of a running `sluice serve`, found
// by its data folder, or a cluster.
type hubFlags struct {
	dataDir    string
	kubeconfig string
	namespace  string
}

func (h *hubFlags) bind(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&h.dataDir, "data-dir", defaultDataDir(), "data folder of the sluice serve whose embedded hub is used")
	flags.StringVar(&h.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster that is the hub, instead of an embedded one")
	flags.StringVarP(&h.namespace, "namespace", "n", "sluice", "namespace of Sluice's resources in the hub")
}

// embedded reports whether the hub is an embedded one: no kubeconfig is given, and this is no
// pod, of which the cluster would be the hub, as for `sluice serve`.
func (h *hubFlags) embedded() bool {
	if h.kubeconfig != "" {
		return false
	}
	_, err := rest.InClusterConfig()
	return err != nil
}

// client returns a client of the hub. It waits for an embedded hub that is starting.
func (h *hubFlags) client(cmd *cobra.Command) (client.Client, error) {
	config, err := h.config(cmd)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	hub := hubClient{Client: c}
	if cmd.HasParent() {
		if list, _, err := cmd.Parent().Find([]string{"list"}); err == nil && list.Name() == "list" {
			hub.list = list.CommandPath()
		}
	}
	return hub, nil
}

// hubClient is a client of the hub whose errors are in the words of the commands.
type hubClient struct {
	client.Client
	list string // the command that lists what the calling one is about; empty if there is none
}

func (c hubClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.inWords(c.Client.Get(ctx, key, object, options...))
}

func (c hubClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.inWords(c.Client.Delete(ctx, object, options...))
}

// inWords returns an error; a missingError if the hub has no such resource of Sluice. That it does not serve them is another.
func (c hubClient) inWords(err error) error {
	if answer := (*apierrors.StatusError)(nil); errors.As(err, &answer) && apierrors.IsNotFound(err) {
		details := answer.ErrStatus.Details
		if details != nil && details.Group == v1alpha1.GroupVersion.Group && details.Name != "" && len(details.Causes) == 0 {
			return missingError{err, c.list}
		}
	}
	return err
}

// missingError is a hub's answer that it has no resource of a name. Commands put before it which.
type missingError struct {
	error
	list string
}

func (m missingError) Error() string {
	if m.list == "" {
		return "there is none of this name"
	}
	return "there is none of this name; `" + m.list + "` shows them all"
}

func (m missingError) Unwrap() error { return m.error }

// quietLibraries drops the log of libraries: a command says itself what is wrong. Without any logger, controller-runtime
// prints a stack trace after half a minute.
var quietLibraries = sync.OnceFunc(func() { log.SetLogger(logr.Discard()) })

// config returns the configuration of the hub. It waits for an embedded hub that is
// starting.
func (h *hubFlags) config(cmd *cobra.Command) (*rest.Config, error) {
	quietLibraries()
	switch {
	case h.embedded():
		return h.awaitEmbedded(cmd)
	case h.kubeconfig == "":
		return rest.InClusterConfig()
	}
	return readHub(h.kubeconfig)
}

func readHub(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the hub's kubeconfig %s: %w", path, err)
	}
	config.QPS = -1
	answers.Check(config, nil)
	return config, nil
}

const (
	// spawnPatience is the wait for a hub without a process: `sluice serve &` takes a moment to
	// begin.
	spawnPatience = 3 * time.Second
	// startPatience is the wait for a hub whose process runs but is not ready.
	startPatience = time.Minute
)

// awaitEmbedded connects to the embedded hub. It waits while the hub does not answer, and
// says so on stderr.
func (h *hubFlags) awaitEmbedded(cmd *cobra.Command) (config *rest.Config, err error) {
	began, said := time.Now(), false
	_ = wait.PollUntilContextCancel(cmd.Context(), 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if config, err = h.reachEmbedded(ctx); err == nil {
			return true, nil
		}
		holder, patience := hub.Holder(h.dataDir), spawnPatience
		if holder != 0 {
			patience = startPatience
		}
		if time.Since(began) > patience || ctx.Err() != nil {
			return true, nil
		}
		if holder != 0 && !said {
			said = true
			fmt.Fprintf(cmd.ErrOrStderr(), "waiting for the hub in %s, which process %d is starting\n", h.dataDir, holder)
		}
		return false, nil
	})
	return config, err
}

// reachEmbedded connects to the embedded hub if it answers. A killed hub leaves its
// kubeconfig behind.
func (h *hubFlags) reachEmbedded(ctx context.Context) (*rest.Config, error) {
	const remedy = "run `sluice serve` first, or name its folder with --data-dir, or a cluster with --kubeconfig"
	path := hub.KubeconfigPath(h.dataDir)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no embedded hub in %s: %s", h.dataDir, remedy)
	}
	config, err := readHub(path)
	if err != nil {
		return nil, err
	}
	address, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("read the hub's kubeconfig %s: %w", path, err)
	}
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address.Host)
	if err != nil {
		return nil, fmt.Errorf("the embedded hub in %s does not answer: %s: %w", h.dataDir, remedy, err)
	}
	return config, connection.Close()
}

// apply writes an object to the hub by server-side apply, and reads the hub's version into
// it.
func apply(ctx context.Context, c client.Client, object client.Object) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	delete(fields, "status")
	written := &unstructured.Unstructured{Object: fields}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(written), client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(written.Object, object)
}

// defaultDataDir returns $SLUICE_DATA_DIR, by default sluice in the user's data folder (XDG
// Base Directory Specification).
func defaultDataDir() string {
	if dir := os.Getenv("SLUICE_DATA_DIR"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "sluice")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "sluice-data"
	}
	return filepath.Join(home, ".local", "share", "sluice")
}
