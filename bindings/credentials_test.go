package bindings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

const secret = "secret-token"

func example() Credentials {
	return Credentials{
		{Cluster: "cluster-a", Name: "cluster-a", Server: "https://a.example:6443", Namespace: "n", CertificateAuthority: "CA", Token: seal.Redact([]byte(secret))},
		{Cluster: "cluster-b", Name: "cluster-b", Server: "https://b.example", Namespace: "n", Token: seal.Redact([]byte(secret))},
	}
}

func TestCredentialsDoNotShowTheirTokens(t *testing.T) {
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("issued", "credentials", example(), "all", issued{credentials: example()[0]})
	marshalled, err := json.Marshal(example())
	if err != nil {
		t.Fatal(err)
	}
	for how, output := range map[string]string{
		"slog": logged.String(), "json": string(marshalled),
		"%v": fmt.Sprintf("%v", example()), "%+v": fmt.Sprintf("%+v", example()), "%#v": fmt.Sprintf("%#v", example()),
		"%v in an unexported field": fmt.Sprintf("%+v", issued{credentials: example()[0]}),
	} {
		if strings.Contains(output, secret) {
			t.Errorf("%s shows the token: %s", how, output)
		}
	}
}

func TestRevealedCredentials(t *testing.T) {
	object, err := example().Reveal()
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(object, &fields); err != nil {
		t.Fatal(err)
	}
	kubeconfig, _ := fields["kubeconfig"].(string)
	if !strings.Contains(kubeconfig, "current-context: cluster-a") || strings.Count(kubeconfig, "token: "+secret) != 2 {
		t.Error("the kubeconfig does not have both clusters, the first current")
	}
	delete(fields, "kubeconfig")
	want := map[string]any{
		"server": "https://a.example:6443", "namespace": "n", "token": secret, "certificate_authority": "CA",
		"clusters": []any{
			map[string]any{"name": "cluster-a", "server": "https://a.example:6443", "namespace": "n", "token": secret, "certificate_authority": "CA"},
			map[string]any{"name": "cluster-b", "server": "https://b.example", "namespace": "n", "token": secret, "certificate_authority": ""},
		},
	}
	if !reflect.DeepEqual(fields, want) {
		t.Errorf("got %v, want %v", fields, want)
	}
	if _, err := (Credentials{}).Reveal(); err == nil {
		t.Error("nothing was revealed without an error")
	}
}

func TestRevealedNodes(t *testing.T) {
	placement := func(cluster string, offloading *v1alpha1.Offloading) v1alpha1.Placement {
		return v1alpha1.Placement{Cluster: cluster, Peering: &v1alpha1.PlacementPeering{Consumer: "a", Node: cluster + "-node", Offloading: offloading}}
	}
	for _, test := range []struct {
		name       string
		offloading *v1alpha1.Offloading
		want       string
	}{
		{"nodes", nil, `{"cluster":"a","nodes":[{"name":"b-node","cluster":"b"},{"name":"c-node","cluster":"c"}],"clusters":[]}`},
		{"nodes and a namespace", &v1alpha1.Offloading{}, `{"cluster":"a","namespace":"sluice-1","nodes":[{"name":"b-node","cluster":"b"},{"name":"c-node","cluster":"c"}],"clusters":[]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := nodesFor("si-1", []v1alpha1.Placement{placement("b", test.offloading), placement("c", test.offloading)}).reveal()
			if err != nil || string(got) != test.want {
				t.Errorf("got %s and error %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestServerEndpoints(t *testing.T) {
	for _, test := range []struct {
		name    string
		servers []string
		want    []v1alpha1.Endpoint
	}{
		{"a port in the URL", []string{"https://a.example:6443"}, []v1alpha1.Endpoint{{Host: "a.example", Ports: []string{"6443"}, Protocol: "tcp"}}},
		{"the port of https", []string{"https://a.example/path"}, []v1alpha1.Endpoint{{Host: "a.example", Ports: []string{"443"}, Protocol: "tcp"}}},
		{"an IPv6 address", []string{"https://[2001:db8::1]:6443"}, []v1alpha1.Endpoint{{Host: "2001:db8::1", Ports: []string{"6443"}, Protocol: "tcp"}}},
		{"one entry a host", []string{"https://a.example:1", "https://b.example:1", "https://a.example:2", "https://a.example:1"}, []v1alpha1.Endpoint{
			{Host: "a.example", Ports: []string{"1", "2"}, Protocol: "tcp"}, {Host: "b.example", Ports: []string{"1"}, Protocol: "tcp"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			sockets, err := serverSockets(test.servers)
			if got := endpointsOf(sockets); err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v and error %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestRenewBefore(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name           string
		lifetime, want time.Duration
	}{
		{"the policy's time before the expiry", time.Hour, 50 * time.Minute},
		{"half-way when the cluster has shortened the lifetime", 8 * time.Minute, 4 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := renewBefore(now, now.Add(test.lifetime), v1alpha1.CredentialsPolicy{RenewBeforeSeconds: 600}).Sub(now)
			if got != test.want {
				t.Errorf("renew after %s, want %s", got, test.want)
			}
		})
	}
	if got := renewBefore(now, now.Add(time.Hour), v1alpha1.CredentialsPolicy{}).Sub(now); got != 48*time.Minute {
		t.Errorf("without a policy: renew after %s, want a fifth of the lifetime before its end", got)
	}
}
