package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func newProviderCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provider",
		Short: "Manage providers, the organisations that run member clusters and present credentials",
	}
	hub.bind(cmd)
	cmd.AddCommand(newProviderAddCommand(hub), newProviderListCommand(hub), providerRemoval.command(hub))
	return cmd
}

func newProviderAddCommand(hub *hubFlags) *cobra.Command {
	identity := &identityFlags{}
	joins := &v1alpha1.ProviderJoins{}
	cmd := &cobra.Command{
		Use:   "add NAME --did DID",
		Short: "Let a provider present credentials",
		Long: `Let a provider present credentials. Member clusters name it with "sluice cluster add --provider NAME".

Its keys are fetched from the host that its did:web names, and from no other, each time they are needed. Where
--keys gives them (the jwks.json or did.json that "sluice sd init" made), nothing is fetched.

With --clusters, the provider adds clusters itself, by invitations (docs/market.md). A change of any flag ends the
provider's tokens and open invitations.

If there is such a provider already, only the given flags change it. Keys of another DID are dropped; --keys "" makes
those of the DID be fetched again.`,
		Example: `  sluice provider add acme --did did:web:acme.example
  sluice provider add acme --did did:web:acme.example --clusters 10 --proven
  sluice provider add lab --did did:web:lab.example --keys lab/jwks.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			provider := &v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Name: args[0], Namespace: hub.namespace}}
			err := identity.add(cmd, hub, provider, &provider.Spec.Identified, func(given given) (err error) {
				provider.Spec.Joins, err = joinsOf(provider.Spec.Joins, joins, given)
				return err
			})
			if err != nil {
				return fmt.Errorf("provider %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "provider %s: %s may present credentials\n", args[0], provider.Spec.DID)
			return err
		},
	}
	identity.bind(cmd)
	cmd.Flags().Int32Var(&joins.AtMost, "clusters", 0, "how many clusters the provider may have, if it adds clusters itself; 0 means that it adds none")
	cmd.Flags().BoolVar(&joins.Proven, "proven", false, "place nothing on a cluster that the provider adds until it has proven which offering the cluster is")
	cmd.Flags().StringSliceVar(&joins.Types, "requires", nil, "types of credentials that such a cluster needs in addition to the offering's own, for instance LabelCredential; with --proven")
	return cmd
}

// joinsOf returns before with the given flags; nil if the provider adds no clusters.
func joinsOf(before, flags *v1alpha1.ProviderJoins, given given) (*v1alpha1.ProviderJoins, error) {
	joins := v1alpha1.ProviderJoins{}
	if before != nil {
		joins = *before
	}
	if given("clusters") {
		joins.AtMost = flags.AtMost
	}
	if joins.AtMost == 0 {
		if flags.Proven || len(flags.Types) > 0 {
			return nil, errors.New("--proven and --requires go with --clusters")
		}
		return nil, nil
	}
	if given("proven") {
		joins.Proven = flags.Proven
	}
	if given("requires") {
		joins.Types = flags.Types
	}
	return &joins, nil
}

func newProviderListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List providers, and which of their credentials were admitted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var providers v1alpha1.ProviderList
			if err := c.List(cmd.Context(), &providers, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list providers: %w", err)
			}
			var clusters v1alpha1.MemberClusterList
			if err := c.List(cmd.Context(), &clusters, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list member clusters: %w", err)
			}
			var credentials v1alpha1.SelfDescriptionList
			if err := c.List(cmd.Context(), &credentials, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list self-descriptions: %w", err)
			}
			t := table{header: []string{"NAME", "DID", "KEYS", "CREDENTIALS", "CLUSTERS", "AGE"}}
			for _, p := range providers.Items {
				t.rows = append(t.rows, []string{p.Name, p.Spec.DID, keySource(p.Spec.Identified), orDash(statesOf(credentials.Items, p.Name)),
					orDash(strings.Join(clustersRunBy(clusters.Items, p.Name), ", ")), age(v1alpha1.CreatedOf(&p))})
			}
			return output.print(cmd.OutOrStdout(), providers.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

// clustersRunBy names a provider's clusters, and marks those that are kept out of
// placement.
func clustersRunBy(clusters []v1alpha1.MemberCluster, provider string) []string {
	var names []string
	for _, c := range clusters {
		if c.Spec.Provider != provider {
			continue
		}
		text := c.Name
		if admitted := viewCondition(c.Status.Conditions, v1alpha1.ConditionAdmitted); c.Spec.Trust != nil && (admitted == nil || !admitted.isTrue) {
			text += " (not admitted)"
		}
		names = append(names, text)
	}
	return names
}

// statesOf counts the credentials that a provider presented, for instance "7 verified".
func statesOf(credentials []v1alpha1.SelfDescription, provider string) string {
	count := map[string]int{}
	for _, c := range credentials {
		if c.Spec.Provider == provider {
			count[cmp.Or(string(c.Status.State), string(v1alpha1.CredentialPending))]++
		}
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
	}
	return strings.Join(parts, ", ")
}

// yesNo shows a condition, with its message if it is not true.
func yesNo(condition *conditionView) string {
	switch {
	case condition == nil:
		return "unknown"
	case condition.isTrue:
		return "yes"
	}
	return "no: " + condition.message
}

// identityFlags name an organisation that signs credentials.
type identityFlags struct{ did, keys string }

func (f *identityFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.did, "did", "", "DID of the organisation, for instance did:web:acme.example")
	cmd.Flags().StringVar(&f.keys, "keys", "", "file with the public keys (jwks.json or did.json), instead of fetching them")
	_ = cmd.MarkFlagRequired("did")
}

// read returns the organisation as the flags name it, with the keys from before if there are none for the same DID. It
// reports the keys that it omits.
func (f *identityFlags) read(tell io.Writer, given given, before v1alpha1.Identified) (v1alpha1.Identified, error) {
	identified := v1alpha1.Identified{DID: f.did}
	if !given("keys") && before.DID == f.did {
		identified.Keys = before.Keys
	}
	if f.keys == "" {
		return identified, nil
	}
	keys, err := readKeySet(tell, f.keys)
	if err != nil {
		return identified, fmt.Errorf("--keys: %w", err)
	}
	if keys.DID != f.did {
		return identified, fmt.Errorf("--keys %s: its keys are not of %s but of %s", f.keys, f.did, keys.DID)
	}
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: keys.Keys})
	if err != nil {
		return identified, err
	}
	identified.Keys = &runtime.RawExtension{Raw: raw}
	return identified, nil
}

// add writes an object about the organisation to the hub. One that is there keeps what neither the flags nor change
// change.
func (f *identityFlags) add(cmd *cobra.Command, hub *hubFlags, object client.Object, organisation *v1alpha1.Identified, change func(given) error) error {
	c, err := hub.client(cmd)
	if err != nil {
		return err
	}
	err = c.Get(cmd.Context(), client.ObjectKeyFromObject(object), object)
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return err
	}
	given := givenOf(cmd)
	if *organisation, err = f.read(cmd.ErrOrStderr(), given, *organisation); err != nil {
		return err
	}
	if err := change(given); err != nil {
		return err
	}
	if isNew {
		return c.Create(cmd.Context(), object, client.FieldOwner(fieldOwner))
	}
	return c.Update(cmd.Context(), object, client.FieldOwner(fieldOwner))
}

// keySource names the source of an organisation's keys.
func keySource(i v1alpha1.Identified) string {
	switch {
	case i.Keys != nil:
		return "given"
	case strings.HasPrefix(i.DID, "did:key:"):
		return "in the DID"
	}
	return "fetched"
}
