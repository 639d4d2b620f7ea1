//go:build faults

package crash

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// account is Sluice's own on a member cluster, as `sluice cluster add` makes it.
const account = "system:serviceaccount:sluice-system:sluice"

// TestUncoveredWrite makes a write as Sluice that has not passed package crashpoint. The audit
// log of the cluster must tell.
func TestUncoveredWrite(t *testing.T) {
	t.Parallel()
	m := &member{}
	m.start(t, "alone")
	if t.Failed() {
		return
	}
	config := m.config(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:masters"}}
	past := kubernetes.NewForConfigOrDie(config)
	_, err := past.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writes, err := m.writes()
	if err != nil {
		t.Fatal(err)
	}
	if got := uncovered(writes, []string{"cluster create secrets"}); !slices.Equal(got, []string{"cluster create namespaces"}) {
		t.Errorf("uncovered are %v, want the namespace that was created", got)
	}
	if got := uncovered(writes, []string{"cluster create namespaces: annotations"}); len(got) > 0 {
		t.Errorf("uncovered are %v, want none", got)
	}
}

// record holds the actions of the beds of a test: the writes of Sluice's account that the audit logs of
// their member clusters have, and those after which it was killed.
type record struct {
	mu             sync.Mutex
	writes, killed []string
}

// add adds a bed whose clusters still run.
func (r *record) add(t *testing.T, b *bed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = append(r.killed, b.deaths...)
	err := b.each(func(_ string, m *member) error {
		writes, err := m.writes()
		if err == nil && len(writes) < 5 {
			err = fmt.Errorf("the audit log has only the writes %v", writes)
		}
		r.writes = append(r.writes, writes...)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// wantEveryWriteKilled fails the test for writes that Sluice has made on a member cluster and has
// not been killed at.
func (r *record) wantEveryWriteKilled(t *testing.T) {
	if missed := uncovered(different(r.writes), r.killed); len(missed) > 0 {
		t.Errorf("never killed at these writes: %s", strings.Join(missed, ", "))
	}
	t.Logf("killed %d times, after %d different writes", len(r.killed), len(different(r.killed)))
}

// writes returns the different writes that Sluice has made on the cluster, by verb and resource.
func (m *member) writes() ([]string, error) {
	file, err := os.Open(m.auditLog)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, RequestURI       string
			User, ImpersonatedUser *struct{ Username string }
			ObjectRef              *struct{ Resource, Subresource string }
			ResponseStatus         *struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		who := event.User
		if event.ImpersonatedUser != nil {
			who = event.ImpersonatedUser
		}
		switch o := event.ObjectRef; {
		case who == nil || who.Username != account || o == nil:
		case event.ResponseStatus == nil || event.ResponseStatus.Code >= 300, strings.Contains(event.RequestURI, "dryRun="):
		case strings.HasSuffix(o.Resource, "reviews"): // questions
		default:
			resource := o.Resource
			if o.Subresource != "" {
				resource += "/" + o.Subresource
			}
			found["cluster "+event.Verb+" "+resource] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), lines.Err()
}

// uncovered returns the writes after which there was no kill.
func uncovered(writes, killed []string) (missed []string) {
	for _, write := range writes {
		if !slices.ContainsFunc(killed, func(at string) bool {
			name, _, _ := strings.Cut(at, ":")
			return name == write
		}) {
			missed = append(missed, write)
		}
	}
	return missed
}

// different returns writes without repetitions.
func different(writes []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(writes)))
}

// config returns the credentials of the cluster's administrator.
func (m *member) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
