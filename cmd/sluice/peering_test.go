package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/liqo"
)

func TestParseConsumer(t *testing.T) {
	for text, want := range map[string]*v1alpha1.ConsumerReference{
		"cf":                {Platform: "cf"},
		"cf/acme":           {Platform: "cf", Organization: "acme"},
		"cf/acme/dev":       {Platform: "cf", Organization: "acme", Space: "dev"},
		"k8s//a-namespace":  {Platform: "k8s", Space: "a-namespace"}, // a platform without organizations
		"":                  nil,
		"/acme":             nil,
		"cf/":               nil,
		"cf/acme/":          nil,
		"cf/acme/dev/extra": nil,
	} {
		got, err := parseConsumer(text)
		switch {
		case want == nil && (err == nil || !strings.Contains(err.Error(), "want platform, platform/organization")):
			t.Errorf("%q: got %+v, %v, want it refused", text, got, err)
		case want != nil && (err != nil || got != *want):
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, *want)
		}
	}
}

func TestLiqoFlagsThatExcludeEachOther(t *testing.T) {
	for _, test := range []struct {
		name, driver string
		flags        liqoFlags
		says         string // accepted if empty
	}{
		{"a hub without Liqo", v1alpha1.DriverKube, liqoFlags{hub: true}, "go with --driver liqo"},
		{"a consumer's own without Liqo", v1alpha1.DriverKube, liqoFlags{consumers: []string{"cf"}}, "go with --driver liqo"},
		{"neither without Liqo", v1alpha1.DriverKube, liqoFlags{}, ""},
		{"a consumer's own as a hub", v1alpha1.DriverLiqo, liqoFlags{hub: true, consumers: []string{"cf"}}, "no hub for others"},
		{"a consumer that cannot be", v1alpha1.DriverLiqo, liqoFlags{consumers: []string{"cf", "cf/"}}, `--consumer "cf/"`},
		{"a hub", v1alpha1.DriverLiqo, liqoFlags{hub: true, namespace: "liqo", gatewayService: "NodePort"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: test.driver}}
			err := test.flags.describe(cluster)
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %v, want %q", err, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if test.driver == v1alpha1.DriverKube && cluster.Spec.Liqo != nil {
				t.Error("a cluster without Liqo takes part in peerings")
			}
			if l := cluster.Spec.Liqo; test.flags.hub && (l == nil || !l.Hub || l.GatewayService != corev1.ServiceTypeNodePort) {
				t.Errorf("the hub is %+v", l)
			}
		})
	}
}

// TestPeeringHelp: every subcommand says what it is for, which flags it has and whose it is.
func TestPeeringHelp(t *testing.T) {
	cmd, _, err := newCommand().Find([]string{"peering"})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]*cobra.Command{}
	for _, sub := range cmd.Commands() {
		names[sub.Name()] = sub
	}
	for name, flags := range map[string][]string{
		"list": {"output"}, "add": {"network-only", "wait"}, "remove": {"wait"},
		"invite": {"cluster-id", "with", "wait"}, "accept": {"from-kubeconfig", "context", "server", "liqo-namespace"},
		"join": {"provider", "region", "wait"}, "withdraw": {"with", "wait"}, "leave": {"from-kubeconfig", "context", "liqo-namespace"},
	} {
		if names[name] == nil {
			t.Errorf("there is no peering %s", name)
			continue
		}
		help := mustSluice(t, "peering", name, "--help")
		if !strings.Contains(help, "sluice peering "+name) || names[name].Short == "" {
			t.Errorf("help of peering %s:\n%s", name, help)
		}
		for _, flag := range flags {
			if !strings.Contains(help, "--"+flag) {
				t.Errorf("help of peering %s does not name --%s", name, flag)
			}
		}
		delete(names, name)
	}
	for name := range names {
		t.Errorf("peering %s is not tested", name)
	}
	overview := mustSluice(t, "peering", "--help")
	for _, text := range []string{"sluice peering invite", "sluice peering accept", "sluice peering join", "withdraw", "leave"} {
		if !strings.Contains(overview, text) {
			t.Errorf("the overview does not mention %s", text)
		}
	}
}

// TestPeeringDocuments: an invitation is read as it was written, and nothing else is.
func TestPeeringDocuments(t *testing.T) {
	write := func(content string) string {
		file := filepath.Join(t.TempDir(), "document.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	peering := &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Consumer: "hub", Provider: "theirs", Invited: &v1alpha1.InvitedCluster{Role: v1alpha1.SideProvider, ClusterID: "their-id"}}}
	peering.Status = v1alpha1.PeeringStatus{
		HubID: "hub-1", Consumer: &v1alpha1.LiqoNetwork{ClusterID: "hub-id", PodCIDRs: []string{"10.0.0.0/16"}, ExternalCIDR: "10.70.0.0/16"},
		Gateway: &v1alpha1.GatewayAddress{Addresses: []string{"192.0.2.1"}, Port: 51840, PublicKey: []byte{0, 1, 255}},
	}
	invitation, err := liqo.InvitationOf(peering)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	if err := printDocument(cmd, invitation); err != nil {
		t.Fatal(err)
	}
	read, err := readInvitation(cmd, write(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	again, err := yaml.Marshal(read)
	if err != nil || string(again) != out.String() {
		t.Errorf("%v; read is\n%s\nwritten was\n%s", err, again, out.String())
	}
	for _, test := range []struct{ name, document, says string }{
		{"an answer", strings.Replace(out.String(), liqo.KindInvitation, liqo.KindAnswer, 1), "is a sluice.dev/v1alpha1 PeeringAnswer, want sluice.dev/v1alpha1 PeeringInvitation"},
		{"another version", strings.Replace(out.String(), "/v1alpha1", "/v9", 1), "want sluice.dev/v1alpha1"},
		{"an unknown field", out.String() + "cluserID: misspelt\n", `unknown field "cluserID"`},
		{"nothing", "", "want sluice.dev/v1alpha1 PeeringInvitation"},
	} {
		if _, err := readInvitation(cmd, write(test.document)); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.says)
		}
	}
	if _, err := sluice(t, "peering", "join", write(out.String())); err == nil || !strings.Contains(err.Error(), "want sluice.dev/v1alpha1 PeeringAnswer") {
		t.Errorf("joining by an invitation: %v", err)
	}
}
