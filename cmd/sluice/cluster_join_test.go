package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// vendor is a provider with a cluster of its own, and no access to the hub.
type vendor struct {
	*served
	name, folder, token string
	kubeconfig          string
}

// admit makes a provider known, who may add clusters: the operator does so before the story begins.
func (s *served) admit(t *testing.T, name string) *vendor {
	t.Helper()
	there := controlplane.Start(t, controlplane.Options{Name: name, Nodes: []controlplane.Node{{Name: "node", CPU: "4", Memory: "8Gi", Pods: "50"}}})
	v := &vendor{served: s, name: name, folder: filepath.Join(t.TempDir(), name), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(v.kubeconfig, there.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	mustSluice(t, "sd", "init", "--dir", v.folder, "--did", "did:web:"+name+".example", "--name", name, "--country", "DE", "--registration", "vatID=DE123456789",
		"--accept-gaia-x-terms", "--terms-url", "https://"+name+".example/terms", "--terms-sha256", strings.Repeat("8a", 32), "--cluster", "eu="+v.kubeconfig)
	s.must("provider", "add", name, "--did", "did:web:"+name+".example", "--keys", filepath.Join(v.folder, "jwks.json"), "--clusters", "2", "--proven")
	return v
}

// brokerFlags name the broker for a command of a provider.
func (v *vendor) brokerFlags() []string {
	return []string{"--dir", v.folder, "--to", v.url, "--audience", "did:web:broker.example"}
}

// calls sends a request to the market, with a body in JSON, and returns the answer.
func calls(ctx context.Context, token, method, url, body, match string) (status int, answer map[string]any, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if match != "" {
		r.Header.Set("If-Match", match)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &answer)
	}
	return response.StatusCode, answer, err
}

// sends is calls with the provider's token, or a fatal error unless the answer has the status.
func (v *vendor) sends(t *testing.T, method, path, body, match string, want int) map[string]any {
	t.Helper()
	status, answer, err := calls(t.Context(), v.token, method, v.url+"/market/v1/"+path, body, match)
	if err != nil || status != want {
		t.Fatalf("%s %s is answered %d, %v, %v; want %d", method, path, status, answer, err, want)
	}
	return answer
}

// invites invites a cluster, and returns the file with the invitation.
func (v *vendor) invites(t *testing.T, cluster, price string) (file string) {
	t.Helper()
	answer := v.sends(t, http.MethodPost, "invitations", fmt.Sprintf(`{"cluster": %q, "region": "eu-de", "offering": "https://%s.example/selfdescription/offering-eu#subject",
		"prices": {"currency": "EUR", "perHour": {"cpu": %q}}}`, cluster, v.name, price), "", http.StatusCreated)
	file = filepath.Join(t.TempDir(), "invitation")
	if err := os.WriteFile(file, []byte(answer["token"].(string)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// joins runs the command of the cluster's owner.
func (v *vendor) joins(t *testing.T, invitation string, more ...string) (string, error) {
	t.Helper()
	return sluice(t, append([]string{"cluster", "join", invitation, "--to", v.url, "--from-kubeconfig", v.kubeconfig}, more...)...)
}

// joinsByHand runs the commands of docs/market.md for an owner without Sluice's program.
func (v *vendor) joinsByHand(t *testing.T, invitation string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "market.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "with `kubectl` and `curl`:\n\n```\n")
	commands, _, found := strings.Cut(rest, "```")
	binaries, err := controlplane.Binaries(t.Context())
	if err != nil || !found {
		t.Fatalf("the page has the commands %q: %v", commands, err)
	}
	run := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(commands, "https://broker.example", v.url))
	run.Dir = filepath.Dir(invitation)
	run.Env = append(os.Environ(), "PATH="+binaries+":"+os.Getenv("PATH"), "KUBECONFIG="+v.kubeconfig)
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), `"name":"cheap-1"`) {
		t.Fatalf("join: %v\n%s", err, out)
	}
}

// cluster returns the provider's view of its cluster; nil if it has none of that name.
func (v *vendor) cluster(ctx context.Context, name string) (map[string]any, error) {
	_, answer, err := calls(ctx, v.token, http.MethodGet, v.url+"/market/v1/clusters", "", "")
	if err != nil {
		return nil, err
	}
	all, _ := answer["clusters"].([]any)
	for _, one := range all {
		if c, ok := one.(map[string]any); ok && c["name"] == name {
			return c, nil
		}
	}
	return nil, nil
}

// awaits waits until the cluster is as wanted, for its provider.
func (v *vendor) awaits(name, field string, want any) {
	v.Helper()
	v.until(name+" has "+field, func(ctx context.Context) error {
		c, err := v.cluster(ctx, name)
		if err == nil && c[field] != want {
			err = fmt.Errorf("it is %v", c)
		}
		return err
	})
}

// sells publishes an offering of one core on the provider's clusters.
func (v *vendor) sells(t *testing.T) {
	t.Helper()
	v.sends(t, http.MethodPut, "offerings/"+v.name, fmt.Sprintf(`{"id": %[1]q, "name": %[1]q, "description": "A core",
		"plans": [{"id": "%[1]s-small", "name": "small", "description": "A core", "kind": "resources", "resources": {"limits": {"cpu": "1", "memory": "1Gi", "pods": "5"}}}]}`, v.name), "", http.StatusCreated)
}

// TestProvidersSellByThemselves: after the start no operator does anything. Two providers add their clusters by
// invitation, prove what they are and sell; a consumer finds the cheapest that is proven, buys and cancels; a provider
// removes its cluster.
func TestProvidersSellByThemselves(t *testing.T) {
	t.Parallel()
	s := serveAnother(t, "sluice", "--public-url", "https://broker.example", "--join-allow-addresses", "127.0.0.0/8")
	dear, cheap := s.admit(t, "dear"), s.admit(t, "cheap")
	for _, v := range []*vendor{dear, cheap} {
		v.token = strings.TrimSpace(mustSluice(t, append([]string{"sd", "login"}, v.brokerFlags()...)...))
	}

	first := dear.invites(t, "dear-1", "0.04")
	t.Run("who joins wrongly", func(t *testing.T) { joinsWrongly(t, dear, cheap, first) })
	for range 2 { // as often as its owner runs the command
		if out, err := dear.joins(t, first); err != nil || out != "cluster dear-1: has joined; its provider sees when it is ready\n" {
			t.Fatalf("join: %v\n%s", err, out)
		}
	}
	if out, err := cheap.joins(t, first); err == nil || !strings.Contains(err.Error(), "has been used") {
		t.Errorf("an invitation works twice: %v\n%s", err, out)
	}
	if out, err := dear.joins(t, dear.invites(t, "dear-2", "0.04")); err == nil || !strings.Contains(err.Error(), "registered already") {
		t.Errorf("a cluster joins twice: %v\n%s", err, out)
	}
	dear.sends(t, http.MethodDelete, "invitations/dear-2", "", "", http.StatusNoContent)
	cheap.joinsByHand(t, cheap.invites(t, "cheap-1", "0.01"))
	for _, v := range []*vendor{dear, cheap} {
		v.awaits(v.name+"-1", "ready", true)
		v.awaits(v.name+"-1", "admitted", false)
		v.sells(t)
	}
	present := func(v *vendor) {
		t.Helper()
		mustSluice(t, "sd", "sign", "--dir", v.folder)
		mustSluice(t, append([]string{"sd", "present"}, v.brokerFlags()...)...)
		v.awaits(v.name+"-1", "admitted", true)
	}

	present(dear)
	if got := s.cheapest(t, "dear-small"); got != "dear-small" {
		t.Errorf("the only proven plan is %s", got)
	}
	present(cheap)
	s.cheapest(t, "cheap-small")
	saysWhoMayBuy(t, s, cheap)
	saysWhatItAccepts(t, s)
	managesItsPolicies(t, s, cheap)
	buys := &seen{served: s}
	buys.ends(t, http.MethodPut, "a", "cheap", "cheap-small", "succeeded")
	movesWhereItMay(t, buys)
	removes := func(want int) {
		t.Helper()
		c, err := cheap.cluster(t.Context(), "cheap-1")
		if err != nil {
			t.Fatal(err)
		}
		cheap.sends(t, http.MethodDelete, "clusters/cheap-1", "", c["etag"].(string), want)
	}
	removes(http.StatusConflict)
	buys.ends(t, http.MethodDelete, "a", "cheap", "cheap-small", "gone")
	removes(http.StatusNoContent)
	s.until("the cluster has left", func(ctx context.Context) error {
		c, err := cheap.cluster(ctx, "cheap-1")
		if err == nil && c != nil {
			err = fmt.Errorf("it is %v", c)
		}
		return err
	})
	if left := mustSluice(t, "cluster", "list", "--data-dir", s.dir); strings.Contains(left, "cheap-1") || !strings.Contains(left, "dear-1") {
		t.Errorf("left are\n%s", left)
	}
	if out, err := sluice(t, "collect", "--data-dir", s.dir); err == nil || !strings.Contains(err.Error(), "address 127.0.0.1 is not public") {
		t.Errorf("a command reaches a provider's address: %v\n%s", err, out)
	}
	mustSluice(t, "collect", "--data-dir", s.dir, "--join-allow-addresses", "127.0.0.0/8")
	followsBySocket(t, s, cheap.token)
}

// movesWhereItMay: an operator moves an instance of a plan of their own to the other provider's cluster; that of a
// provider's plan stays on the provider's.
func movesWhereItMay(t *testing.T, s *seen) {
	t.Helper()
	if out, err := s.sluice("instance", "move", "a", "--to", "dear-1"); err == nil || !strings.Contains(err.Error()+out, "instance a: it stays on cheap-1: none of 2 clusters fits: ") {
		t.Errorf("a provider's plan moves away: %v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "compute.yaml")
	if err := os.WriteFile(file, []byte(compute), 0o600); err != nil {
		t.Fatal(err)
	}
	s.offers(file, "compute-small")
	s.ends(t, http.MethodPut, "b", "compute", "small", "succeeded")
	if out := s.must("instance", "move", "b", "--to", "dear-1", "--dry-run"); out != "instance b: it would move from cheap-1 to dear-1\n" {
		t.Errorf("a dry run says %s", out)
	}
	if out := s.must("instance", "move", "b", "--to", "dear-1"); out != "instance b: moving from cheap-1\ninstance b: it is on dear-1\n" {
		t.Errorf("a move says %s", out)
	}
	s.ends(t, http.MethodDelete, "b", "compute", "small", "gone")
}

// saysWhoMayBuy: a provider checks a policy that refuses the consumer, makes it, and removes it. It holds on the provider's
// own clusters only, at once.
func saysWhoMayBuy(t *testing.T, s *served, v *vendor) {
	t.Helper()
	const policy = `{"require": [{"name": "friends", "expression": "consumer.platform != 'first'"}]}`
	status, found, err := calls(t.Context(), v.token, http.MethodPost, s.url+"/market/v1/policies/cheap.friends/check", `{"spec": `+policy+`, "consumer": {"platform": "first"}}`, "")
	unserved, _ := found["unserved"].([]any)
	if err != nil || status != http.StatusOK || len(unserved) != 1 || unserved[0].(map[string]any)["cluster"] != "cheap-1" || unserved[0].(map[string]any)["plan"] != "small" {
		t.Errorf("a check is answered %d, %v, %v", status, found, err)
	}
	v.sends(t, http.MethodPut, "policies/cheap.friends", policy, "", http.StatusCreated)
	s.cheapest(t, "dear-small")
	v.sends(t, http.MethodDelete, "policies/cheap.friends", "", "*", http.StatusNoContent)
	s.cheapest(t, "cheap-small")
}

// cheapest waits until the cheapest plan that fits an order is the wanted one, as a consumer sees it.
func (s *served) cheapest(t *testing.T, want string) (id string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/market/v1/tokens", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("first", "first-password")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var issued struct{ Token string }
	if err := json.NewDecoder(response.Body).Decode(&issued); err != nil || issued.Token == "" {
		t.Fatalf("no token: %v", err)
	}
	s.until(want+" is the cheapest plan", func(ctx context.Context) error {
		_, answer, err := calls(ctx, issued.Token, http.MethodGet, s.url+"/market/v1/plans?order=price&where=orders+%3E+0", "", "")
		if err != nil {
			return err
		}
		all, _ := answer["plans"].([]any)
		if len(all) == 0 {
			return fmt.Errorf("the answer is %v", answer)
		}
		if id, _ = all[0].(map[string]any)["id"].(string); id != want {
			return fmt.Errorf("it is %s", id)
		}
		return nil
	})
	return id
}

// joinsWrongly tries to join as nobody may. The invitation stays open.
func joinsWrongly(t *testing.T, v, other *vendor, invitation string) {
	text, err := os.ReadFile(invitation)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(v.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := member.Config(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(other.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := member.Config(foreign)
	if err != nil {
		t.Fatal(err)
	}
	port := admin.Host[strings.LastIndex(admin.Host, ":"):]
	body := func(server string, ca []byte, token string) string {
		raw, err := json.Marshal(map[string]string{"server": server, "ca": string(ca), "token": token})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	token := strings.TrimSpace(string(text))
	for name, wrong := range map[string]struct {
		with, body string
		status     int
		why        string
	}{
		"a provider's token":         {v.token, body(admin.Host, admin.CAData, "t"), http.StatusUnauthorized, "its type"},
		"a token that is not known":  {token, body(admin.Host, admin.CAData, "t"), http.StatusUnprocessableEntity, "accept token"},
		"another cluster's CA":       {token, body(admin.Host, stranger.CAData, "t"), http.StatusUnprocessableEntity, "certificate"},
		"no CA":                      {token, body(admin.Host, nil, "t"), http.StatusUnprocessableEntity, "certificate"},
		"a CA that is none":          {token, body(admin.Host, []byte("x"), "t"), http.StatusUnprocessableEntity, "holds no certificate"},
		"the administrator":          {token, body(admin.Host, admin.CAData, almighty(t, admin)), http.StatusUnprocessableEntity, "token:"},
		"a forbidden network":        {token, body("https://169.254.169.254", admin.CAData, "t"), http.StatusUnprocessableEntity, "169.254.169.254 is not public"},
		"a network that is private":  {token, body("https://[fd00::1]"+port, admin.CAData, "t"), http.StatusUnprocessableEntity, "fd00::1 is not public"},
		"credentials in the address": {token, body("https://u:p@127.0.0.1"+port, admin.CAData, "t"), http.StatusUnprocessableEntity, "credentials in the URL"},
		"a body without end":         {token, `{"ca": "` + string(bytes.Repeat([]byte("a"), 70<<10)), http.StatusRequestEntityTooLarge, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer, err := calls(t.Context(), wrong.with, http.MethodPost, v.url+"/market/v1/clusters", wrong.body, "")
			if why, _ := answer["description"].(string); err != nil || status != wrong.status || !strings.Contains(why, wrong.why) {
				t.Errorf("answered %d, %v, %v; want %d, %q", status, answer, err, wrong.status, wrong.why)
			}
		})
	}
	if c, err := v.cluster(t.Context(), "dear-1"); err != nil || c != nil {
		t.Errorf("it has joined as %v, %v", c, err)
	}
}

// almighty returns the token of a service account that may do everything on a cluster.
func almighty(t *testing.T, admin *rest.Config) string {
	t.Helper()
	c, err := client.New(admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "almighty"}}
	asked := &authenticationv1.TokenRequest{}
	for _, write := range []func() error{
		func() error { return c.Create(t.Context(), account) },
		func() error {
			return c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: account.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
			})
		},
		func() error { return c.SubResource("token").Create(t.Context(), account, asked) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	return asked.Status.Token
}
