package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/overview"
)

func newBrokerCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Manage brokers behind this one, from which instances of upstream plans are ordered",
	}
	hub.bind(cmd)
	cmd.AddCommand(newBrokerAddCommand(hub), newBrokerListCommand(hub), newBrokerDescribeCommand(hub),
		newStandInRemoveCommand(hub, overview.KindBroker, "Deprovision them first, because their data are the broker's"))
	return cmd
}

// brokerAddFlags describe the broker to add.
type brokerAddFlags struct {
	clusterAddFlags
	url, caFile                                       string
	username, passwordFile, tokenFile, credentialFile string
	addresses, allow, deny                            []string
	refresh                                           time.Duration
	instances                                         int64
	passIdentity                                      bool
}

func newBrokerAddCommand(hub *hubFlags) *cobra.Command {
	f := &brokerAddFlags{clusterAddFlags: clusterAddFlags{driver: v1alpha1.DriverOSB}}
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Register a broker, or change its description",
		Long: `Register an OSB broker from which instances of plans with kind upstream are ordered. Sluice reads its catalog at
once and then every --refresh; "sluice broker describe" shows what may be ordered.

The credentials are sealed in the hub (or kept in a Secret, if the hub is a cluster): a user name and a password,
a token, or a file of JSON or YAML with oauth: {tokenURL, clientID, clientSecret, scopes}.

Only public addresses are reached, and only with https, unless --address allows others. In the inventory the
broker is a member cluster with the driver osb: policies, labels, taints, prices and proofs apply to it as to
clusters, and "sluice cluster cordon" stops new orders.

If the broker is registered already, only the given flags change it.`,
		Example: `  sluice broker add eu --url https://broker.eu.example --username sluice --password-file eu.password --region eu-de --provider acme
  sluice broker add cheap --url https://broker.example/osb --token-file cheap.token --allow mysql/small --price sluice.dev/instances=0.02
  sluice broker add lab --url http://10.1.2.3:8080 --address 10.1.2.0/24 --username sluice --password-file lab.password`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.addAs(cmd, hub, overview.KindBroker, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "URL of the broker, without /v2")
	flags.StringVar(&f.caFile, "ca-file", "", "file with the certificates (PEM) that the broker's is checked against, if they are not the system's")
	flags.StringVar(&f.username, "username", "", "user name at the broker, with --password-file")
	flags.StringVar(&f.passwordFile, "password-file", "", "file with the password")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with a bearer token, instead of a user name")
	flags.StringVar(&f.credentialFile, "credentials-file", "", "file with credentials as JSON or YAML, instead of a user name")
	flags.StringSliceVar(&f.addresses, "address", nil, "addresses (CIDR) that may be reached though they are not public")
	flags.StringSliceVar(&f.allow, "allow", nil, "what may be ordered, SERVICE or SERVICE/PLAN (default: everything)")
	flags.StringSliceVar(&f.deny, "deny", nil, "what may not be ordered, SERVICE or SERVICE/PLAN")
	flags.DurationVar(&f.refresh, "refresh", time.Minute, "time between two reads of the catalog")
	flags.Int64Var(&f.instances, "instances", 0, "largest number of instances that are ordered there; 0 means any number")
	flags.BoolVar(&f.passIdentity, "pass-identity", false, "send the platform's context and the originating identity of its user")
	f.bindDescription(cmd)
	f.bindTrust(cmd)
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long to wait until the broker is ready; 0 does not wait")
	return cmd
}

// describeOwn implements standIn.
func (f *brokerAddFlags) describeOwn(cluster *v1alpha1.MemberCluster, given given) error {
	if cluster.Spec.Broker == nil {
		cluster.Spec.Broker = &v1alpha1.UpstreamBroker{RefreshSeconds: int32(f.refresh / time.Second)}
		if f.url == "" {
			return errors.New("--url: is missing")
		}
	}
	b := cluster.Spec.Broker
	if given("url") {
		b.URL = f.url
	}
	if given("refresh") {
		b.RefreshSeconds = int32(f.refresh / time.Second)
	}
	if given("pass-identity") {
		b.PassIdentity = f.passIdentity
	}
	for flag, list := range map[string]struct {
		into *[]string
		from []string
	}{"address": {&b.Addresses, f.addresses}, "allow": {&b.Allow, f.allow}, "deny": {&b.Deny, f.deny}} {
		if given(flag) {
			*list.into = list.from
		}
	}
	if given("instances") {
		cluster.Spec.Capacity = nil
		if f.instances > 0 {
			cluster.Spec.Capacity = corev1.ResourceList{v1alpha1.ResourceInstances: *resource.NewQuantity(f.instances, resource.DecimalSI)}
		}
	}
	if given("ca-file") {
		bundle, err := os.ReadFile(f.caFile)
		if err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
		b.CABundle = string(bundle)
	}
	return nil
}

// prepare implements standIn: it keeps the credentials, if some are given.
func (f *brokerAddFlags) prepare(ctx context.Context, c client.Client, hub *hubFlags, broker *v1alpha1.MemberCluster, given given) error {
	if !given("username", "password-file", "token-file", "credentials-file") {
		if broker.UID == "" {
			return errors.New("name its credentials with --username and --password-file, --token-file, or --credentials-file")
		}
		return nil
	}
	credentials, err := f.credentials()
	if err != nil {
		return err
	}
	document, err := json.Marshal(credentials)
	if err != nil {
		return err
	}
	store, err := hub.store(c)
	if err != nil {
		return err
	}
	broker.Spec.Access, err = store.Store(ctx, broker, document)
	return err
}

// offers implements standIn.
func (f *brokerAddFlags) offers(_ context.Context, _ client.Client, broker *v1alpha1.MemberCluster) (string, error) {
	return count(len(plansOf(broker)), "plan") + " may be ordered", nil
}

func (f *brokerAddFlags) credentials() (credentials osbclient.Credentials, err error) {
	secret := func(flag, path string) string {
		content, readErr := os.ReadFile(path)
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", flag, readErr))
		}
		return string(bytes.TrimRight(content, "\r\n"))
	}
	if f.credentialFile != "" {
		document, err := yaml.YAMLToJSON([]byte(secret("--credentials-file", f.credentialFile)))
		if err != nil {
			return credentials, fmt.Errorf("--credentials-file: want JSON or YAML")
		}
		return osbclient.ParseCredentials(document)
	}
	credentials.Username = f.username
	if f.passwordFile != "" {
		credentials.Password = secret("--password-file", f.passwordFile)
	}
	if f.tokenFile != "" {
		credentials.Token = secret("--token-file", f.tokenFile)
	}
	return credentials, errors.Join(err, credentials.Check())
}
