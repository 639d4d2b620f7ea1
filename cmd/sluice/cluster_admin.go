package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-dev/sluice/internal/answers"
)

// adminFlags select the administrator's kubeconfig for a cluster that Sluice has no access
// to yet.
type adminFlags struct{ kubeconfig, context, server string }

func (f *adminFlags) bind(cmd *cobra.Command, of string) {
	cmd.Flags().StringVar(&f.kubeconfig, "from-kubeconfig", "", "kubeconfig of the "+of+" (default: $KUBECONFIG or ~/.kube/config)")
	cmd.Flags().StringVar(&f.context, "context", "", "context in that kubeconfig; required if there are several, unless the command can ask on a terminal")
}

func (f *adminFlags) bindServer(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.server, "server", "", "URL at which Sluice reaches the API server, if it is not the kubeconfig's")
}

// config reads the administrator's kubeconfig and names the cluster on stderr. It never
// uses the current context just because it is current: objects on the wrong cluster would
// be created with all rights.
func (f *adminFlags) config(cmd *cobra.Command) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	file := strings.Join(rules.GetLoadingPrecedence(), ":")
	name, err := f.choose(cmd, raw, file)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*raw, name, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read context %s of the kubeconfig %s: %w", name, file, err)
	}
	if f.server != "" {
		config.Host = f.server
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "using the administrator's context %s: %s\n", name, config.Host)
	answers.Check(config, nil)
	return config, nil
}

// choose returns the context to use: the named one, the only one, or the one that the user
// confirms.
func (f *adminFlags) choose(cmd *cobra.Command, raw *clientcmdapi.Config, file string) (string, error) {
	if f.context != "" {
		return f.context, nil
	}
	all := slices.Sorted(maps.Keys(raw.Contexts))
	switch {
	case len(all) == 0:
		return "", fmt.Errorf("no context in the kubeconfig %s: name another file with --from-kubeconfig", file)
	case len(all) == 1 && (f.kubeconfig != "" || !onTerminal(cmd)):
		return all[0], nil
	case !onTerminal(cmd):
		return "", fmt.Errorf("--context is needed: the kubeconfig %s has %s, and none is used just because it is current", file, strings.Join(all, ", "))
	}
	name := raw.CurrentContext
	if len(all) == 1 {
		name = all[0]
	}
	chosen, ok := raw.Contexts[name]
	if !ok {
		return "", fmt.Errorf("--context is needed: the kubeconfig %s has %s", file, strings.Join(all, ", "))
	}
	server := ""
	if cluster := raw.Clusters[chosen.Cluster]; cluster != nil {
		server = cluster.Server
	}
	if !asked(cmd, "Use context %s, an administrator of cluster %s at %s?", name, chosen.Cluster, server) {
		return "", errors.New("nothing was done: name the cluster with --context")
	}
	return name, nil
}
