package workload

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

func TestHook(t *testing.T) {
	o, err := order(t, "testdata/hook/bind.yaml").For(&v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: "sb-1", UID: "u"}}, nil, Secrets{"password": seal.Redact([]byte("the-binding's"))})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := o.Hook(HookBind, "sluice-si-1", APIServer{Addresses: []string{"10.96.0.1/32", "192.0.2.7/32"}, Ports: []int32{443, 6443}})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, object := range objects {
		got += "---\n" + yamlOf(t, object.Object)
	}
	matchesGolden(t, "testdata/hook/bind.golden", got)
}

// What the bind hook returned is in credentials and in the unbind hook, where it is empty if there is none.
func TestResults(t *testing.T) {
	before := Secrets{"password": seal.Redact([]byte("p")), resultPrefix + "old": seal.Redact([]byte("o"))}
	after := before.WithResults(map[string]string{"token": "hush"})
	if _, old := after[resultPrefix+"old"]; old || len(after) != 2 || len(before) != 2 {
		t.Errorf("%d secrets, %d before", len(after), len(before))
	}
	for _, row := range []struct {
		secrets Secrets
		want    string
	}{{after, `{"token":"hush"}`}, {Secrets{}, `{"token":""}`}} {
		o, err := order(t, "testdata/hook/bind.yaml").For(&v1alpha1.ServiceBinding{}, nil, row.secrets)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := o.Credentials(nil, nil); err != nil || string(got) != row.want {
			t.Errorf("got %s (%v), want %s", got, err, row.want)
		}
	}
}

// A failure says why in words for end users; what the hook wrote is for operators, without secrets.
func TestHookFailure(t *testing.T) {
	job := func(reason, message string) *batchv1.Job {
		return &batchv1.Job{
			Spec: batchv1.JobSpec{ActiveDeadlineSeconds: ptr.To[int64](60)},
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
				{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue},
				{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: reason, Message: message},
			}},
		}
	}
	pod := func(code int32, said string) []corev1.Pod {
		ended := &corev1.ContainerStateTerminated{ExitCode: code, Message: said}
		return []corev1.Pod{{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: ended}}}}}}
	}
	o, err := order(t, "testdata/hook/bind.yaml").For(&v1alpha1.ServiceBinding{}, nil, Secrets{"password": seal.Redact([]byte("hush"))})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name           string
		job            *batchv1.Job
		pods           []corev1.Pod
		reason, detail string
	}{
		{"an exit code", job(batchv1.JobReasonBackoffLimitExceeded, "Job has reached"), pod(3, "user bob, hush, at the target\n"), "exit code 3", "user bob, ***, at the ***"},
		{"a deadline", job(batchv1.JobReasonDeadlineExceeded, "Job was active"), pod(137, ""), "it did not end within 60 s", ""},
		{"no pod", job(batchv1.JobReasonBackoffLimitExceeded, "Job has reached"), nil, "its pod no longer exists", "Job has reached"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if reason, detail := o.HookFailure(row.job, row.pods, "", "target"); reason != row.reason || detail != row.detail {
				t.Errorf("got %q and %q, want %q and %q", reason, detail, row.reason, row.detail)
			}
		})
	}
}

// The catalog refuses what uses results that are not declared, or not there yet.
func TestResultsRefused(t *testing.T) {
	const plan = `
components: [{name: a, container: {image: i, resources: {cpu: 1, memory: 1Gi}}}]
bindings:
  results: [token]
  bind: {image: i, args: ["BIND"], resources: {cpu: 1, memory: 1Gi}}
  unbind: {image: i, args: ["UNBIND"], resources: {cpu: 1, memory: 1Gi}}
credentials: {token: "CREDENTIALS"}
`
	for _, row := range []struct{ name, where, expression, because string }{
		{"fitting", "CREDENTIALS", "${binding.results.token}", ""},
		{"fitting, when it is revoked", "UNBIND", "${binding.results.token}", ""},
		{"not declared", "CREDENTIALS", "${binding.results.id}", "credentials.token: ${binding.results.id}: no such key: id"},
		{"not declared, when it is revoked", "UNBIND", "${binding.results.id}", "bindings.unbind.args[0]: ${binding.results.id}: no such key: id"},
		{"not there yet", "BIND", "${binding.results.token}", "bindings.bind.args[0]: ${binding.results.token}: no such key: token"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := planOf(t, strings.Replace(plan, `"`+row.where+`"`, `"`+row.expression+`"`, 1))
			_, err := FootprintOf(p, nil, nil, 0)
			err = errors.Join(err, CheckCredentials(p, json.RawMessage(`{}`), false))
			if got := errorText(err); got != row.because {
				t.Errorf("got  %s\nwant %s", got, row.because)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
