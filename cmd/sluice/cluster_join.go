package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/registration"
)

// clusterJoinFlags select the cluster that joins and the broker.
type clusterJoinFlags struct {
	admin    adminFlags
	to       string
	manifest kube.ManifestOptions
}

func newClusterJoinCommand() *cobra.Command {
	f := &clusterJoinFlags{}
	cmd := &cobra.Command{
		Use:   "join FILE --to URL",
		Short: "Join a cluster by a provider's invitation; for the cluster's owner",
		Long: `Join a cluster by an invitation that its provider got from a broker (docs/market.md). It needs an administrator's
context of the cluster, and no access to Sluice's hub. FILE holds the invitation; - is standard input.

The command does what "sluice cluster add" does on the cluster: it creates the namespace sluice-system, a service
account with exactly the verbs in "sluice cluster manifest", and its token. It then sends the broker that token, the
URL of the API server and its CA, and nothing of the administrator's. Deleting the Secret sluice-token in that
namespace ends the broker's access.`,
		Example: `  sluice cluster join invitation --to https://broker.example --context mine`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.join(cmd, args[0]) },
	}
	f.admin.bind(cmd, "cluster")
	cmd.Flags().StringVar(&f.admin.server, "server", "", "URL at which the broker reaches the API server, if it is not the kubeconfig's")
	cmd.Flags().StringVar(&f.to, "to", "", "URL of the broker")
	bindWithoutPolicies(cmd, &f.manifest)
	_ = cmd.MarkFlagRequired("to")
	return cmd
}

// join registers the broker on the cluster, and sends it the access.
func (f *clusterJoinFlags) join(cmd *cobra.Command, file string) error {
	invitation, err := readInput(cmd, file)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(invitation))
	if strings.Count(token, ".") != 2 {
		return fmt.Errorf("%s: want the token of an invitation, and nothing else", file)
	}
	if _, err := newMarketClient(f.to, nil); err != nil {
		return err
	}
	admin, err := f.admin.config(cmd)
	if err != nil {
		return err
	}
	manifest, err := registration.PermissionsToJoin(f.manifest)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "applying Sluice's service account and permissions on "+admin.Host)
	kubeconfig, err := kube.Register(cmd.Context(), admin, manifest)
	if err != nil {
		return err
	}
	given, err := member.ParseKubeconfig(kubeconfig)
	if err != nil {
		return err
	}
	name, err := f.send(cmd.Context(), token, market.Access{Server: given.Server, CA: string(given.CA), TLSServerName: given.TLSServerName, Token: given.Token})
	if err != nil {
		return fmt.Errorf("%w; Sluice's account is on the cluster: repeat the command, or remove the account with `sluice cluster manifest | kubectl delete -f -`", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: has joined; its provider sees when it is ready\n", name)
	return err
}

// send sends the access to the cluster, and returns the name that the cluster has got.
func (f *clusterJoinFlags) send(ctx context.Context, invitation string, given market.Access) (name string, err error) {
	m, err := newMarketClient(f.to, nil)
	if err != nil {
		return "", err
	}
	m.token = invitation
	var joined struct{ Name string }
	err = m.call(ctx, http.MethodPost, "clusters", nil, given, &joined)
	return joined.Name, err
}
