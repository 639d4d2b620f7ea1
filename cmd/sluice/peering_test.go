package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		got, err := parseConsumer("consumer", text)
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
			err := test.flags.describe(&cluster.Spec, func(flags ...string) bool {
				return test.flags.hub && slices.Contains(flags, "hub") || test.flags.consumers != nil && slices.Contains(flags, "consumer")
			})
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

// TestPeeringHelp: the help of every subcommand has its path, a summary and its flags.
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

// TestPeeringDocuments: an invitation is read exactly as it was written; other documents
// are refused.
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
		{"an unknown field", out.String() + "cluserID: misspelt\n", "cluserID: unknown field"},
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

// answered is a kubeconfig in an answer, whose user has another line too. The line "proxy" names a proxy instead.
func answered(more string) string {
	proxy := ""
	if more == "proxy" {
		proxy, more = ", proxy-url: http://10.0.0.1", ""
	}
	return "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n" +
		"clusters: [{name: a, cluster: {server: https://theirs.example" + proxy + "}}]\nusers:\n- name: a\n  user:\n    token: b\n    " + more + "\n"
}

// TestOperatorOfInvitations: a cluster joins in the role of its invitation, and is
// forgotten with the invitation.
func TestOperatorOfInvitations(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	readyCluster(t, c, h.Namespace, "eu", 4)
	with := "eu"
	answer := func(role v1alpha1.PeeringSide, clusterID string, change ...func(*liqo.Answer)) string {
		a := liqo.Answer{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: liqo.KindAnswer},
			Cluster:  "theirs", With: with, Role: role, Network: v1alpha1.LiqoNetwork{ClusterID: clusterID}, PublicKey: []byte("key"),
			Kubeconfig: answered(""), Identity: answered(""), Handshake: &v1alpha1.LiqoHandshake{PublicKey: []byte("p"), Signature: []byte("s"), CSR: []byte("c")},
		}
		for _, c := range change {
			c(&a)
		}
		text, err := yaml.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "answer.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	refused := func(says string, args ...string) {
		t.Helper()
		if _, err := operator(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("sluice %s: %v, want %q", strings.Join(args, " "), err, says)
		}
	}
	join := func(file string, more ...string) []string {
		return append([]string{"peering", "join", file, "--wait", "0"}, more...)
	}
	invite := []string{"peering", "invite", "theirs", "--cluster-id", "their-id", "--with", "eu", "--wait", "0"}
	peering := func(consumer, provider string) *v1alpha1.Peering {
		p := &v1alpha1.Peering{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: h.Namespace, Name: v1alpha1.PeeringName(consumer, provider)}, p); err != nil {
			t.Fatal(err)
		}
		return p
	}

	refused("--network-only is for consumers", append(invite, "--network-only")...)
	refused("find the invitation of theirs to peer with eu", join(answer(v1alpha1.SideConsumer, "their-id"), "--consumer", "cf")...)
	refused("run the command again", append(invite, "--consumes", "--network-only")...)
	if p := peering("theirs", "eu"); !p.IsInvited(v1alpha1.SideConsumer) || len(p.Spec.Modules) != 1 || p.Spec.Modules[0] != v1alpha1.ModuleNetworking {
		t.Errorf("invited for the network only: %+v", p.Spec)
	}
	refused("run the command again", append(invite, "--consumes")...)
	refused("--consumer is required for clusters", join(answer(v1alpha1.SideConsumer, "their-id"))...)
	refused("was invited as a provider", join(answer(v1alpha1.SideProvider, "their-id"), "--consumer", "cf")...)
	refused("cluster another accepted as a consumer, but the invitation to peer with eu does not say so", join(answer(v1alpha1.SideConsumer, "another"), "--consumer", "cf")...)
	refused("find the invitation", join(answer(v1alpha1.SideProvider, "their-id"))...)
	must(join(answer(v1alpha1.SideConsumer, "their-id"), "--consumer", "cf/acme")...)
	cluster := &v1alpha1.MemberCluster{}
	key := client.ObjectKey{Namespace: h.Namespace, Name: "theirs"}
	if err := c.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	if joined := cluster.Spec.Liqo.Joined; joined.With != "eu" || string(joined.Handshake.Signature) != "s" || joined.Identity != nil || len(cluster.Spec.Liqo.Modules) != 3 {
		t.Errorf("joined as a consumer: %+v", cluster.Spec.Liqo)
	}
	if whose := cluster.Spec.Consumers; len(whose) != 1 || whose[0] != (v1alpha1.ConsumerReference{Platform: "cf", Organization: "acme"}) {
		t.Errorf("it is the own cluster of %+v", whose)
	}

	refused("was not peered with us by invitation, and is not removed", "peering", "withdraw", "theirs", "--with", "us")
	refused("was not peered with us by invitation, and is not removed", "peering", "withdraw", "eu", "--with", "us")
	must("peering", "withdraw", "theirs", "--with", "eu", "--wait", "0")
	if err := c.Get(t.Context(), key, cluster); !apierrors.IsNotFound(err) {
		t.Errorf("the cluster that has left: %v", err)
	}
	refused("run the command again", invite...)
	if p := peering("eu", "theirs"); !p.IsInvited(v1alpha1.SideProvider) {
		t.Errorf("invited as a provider: %+v", p.Spec)
	}
	for field, given := range map[string]string{
		"exec plugins":  "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
		"tokenFile":     "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
		"impersonation": "as: system:admin",
		"proxy-url":     "proxy",
	} {
		refused("the answer is refused: identity: ", join(answer(v1alpha1.SideProvider, "their-id", func(a *liqo.Answer) { a.Identity = answered(given) }))...)
		refused(field, join(answer(v1alpha1.SideProvider, "their-id", func(a *liqo.Answer) { a.Identity = answered(given) }))...)
		refused(field, join(answer(v1alpha1.SideProvider, "their-id", func(a *liqo.Answer) { a.Kubeconfig = answered(given) }))...)
	}
	if err := c.Get(t.Context(), key, cluster); !apierrors.IsNotFound(err) {
		t.Errorf("the cluster whose answer is refused: %v", err)
	}
	must(join(answer(v1alpha1.SideProvider, "their-id"), "--provider", "acme")...)
	if err := c.Get(t.Context(), key, cluster); err != nil || cluster.Spec.Liqo.Joined.Identity == nil || len(cluster.Spec.Consumers) != 0 {
		t.Errorf("joined as a provider: %v, %+v", err, cluster.Spec)
	}

	readyCluster(t, c, h.Namespace, "us", 4)
	with = "us"
	refused("run the command again", "peering", "invite", "theirs", "--cluster-id", "their-id", "--with", "us", "--wait", "0")
	before := cluster.DeepCopy()
	refused("it has joined by the invitation of eu, and is peered with no other cluster: `sluice peering withdraw theirs --with eu` first", join(answer(v1alpha1.SideProvider, "their-id"), "--provider", "acme")...)
	if err := c.Get(t.Context(), key, cluster); err != nil || !equality.Semantic.DeepEqual(cluster.Spec, before.Spec) {
		t.Errorf("joined by another invitation: %v, %+v", err, cluster.Spec)
	}
	must("peering", "withdraw", "theirs", "--with", "us", "--wait", "0")
	if err := c.Get(t.Context(), key, cluster); err != nil || !cluster.DeletionTimestamp.IsZero() {
		t.Errorf("an open invitation was withdrawn, and the cluster with it: %v", err)
	}
	must("peering", "withdraw", "theirs", "--with", "eu", "--wait", "0")
}

// TestWhichPeeringsEnd: a peering that an instance needs ends only if Sluice refuses it, and the next delivery can make another one.
func TestWhichPeeringsEnd(t *testing.T) {
	h, c, operator, _ := operatedHub(t)
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "si-1"},
		Spec:       v1alpha1.ServiceInstanceSpec{Platform: "cf", InstanceID: "one", ServiceID: "s", Desired: v1alpha1.InstanceState{PlanID: "p"}},
	}
	if err := c.Create(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	instance.Status.Decision = &v1alpha1.Decision{Generation: 1, Placements: []v1alpha1.Placement{{
		Cluster: "eu", Reserved: corev1.ResourceList{}, Peering: &v1alpha1.PlacementPeering{Consumer: "theirs", Node: "node"},
	}}}
	if err := c.Status().Update(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		reason  string
		invited *v1alpha1.InvitedCluster
		ends    bool
	}{
		{"Ready", nil, false},
		{v1alpha1.ReasonInProgress, nil, false},
		{"Refused", &v1alpha1.InvitedCluster{Role: v1alpha1.SideConsumer, ClusterID: "their-id"}, false},
		{"Refused", nil, true},
	} {
		peering := newPeering(&hubFlags{namespace: h.Namespace}, "theirs", "eu")
		peering.Spec.Modules, peering.Spec.Invited = v1alpha1.ModulesFor(true), row.invited
		if err := c.Create(t.Context(), peering); err != nil {
			t.Fatal(err)
		}
		v1alpha1.SetCondition(&peering.Status.Conditions, peering.Generation, v1alpha1.ConditionReady, metav1.ConditionFalse, row.reason, "")
		if err := c.Status().Update(t.Context(), peering); err != nil {
			t.Fatal(err)
		}
		_, err := operator("peering", "remove", "theirs", "eu", "--wait", "0")
		if row.ends && err != nil || !row.ends && (err == nil || !strings.Contains(err.Error(), "instance one needs the peering of theirs and eu")) {
			t.Errorf("%s, invited as %+v: %v", row.reason, row.invited, err)
		}
		if err := c.Delete(t.Context(), peering); row.ends != apierrors.IsNotFound(err) {
			t.Errorf("%s, invited as %+v: afterwards %v", row.reason, row.invited, err)
		}
	}
}
