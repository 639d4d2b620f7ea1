package kube_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// aSetIsUndone: the pod of an update that does not get ready is replaced by one of the former template, or of one that is
// better. The set's other pods stay.
func aSetIsUndone(t *testing.T, f *fixture) {
	for _, name := range []string{"a", "b"} {
		f.volumeOf(t, "undone-"+name, "undone")
	}
	plan := strings.NewReplacer("default: 3", "default: 2", "storageClassName: members", "storageClassName: undone").Replace(members)
	first := withWorkload(t, plan, "")
	first.Former = first.Workload
	f.runs(t, first)
	uids := func() map[string]types.UID {
		t.Helper()
		var pods corev1.PodList
		f.must(t, f.admin.List(t.Context(), &pods, client.InNamespace(namespaceOf(first))))
		uids := map[string]types.UID{}
		for i := range pods.Items {
			uids[pods.Items[i].Name] = pods.Items[i].UID
		}
		return uids
	}
	before := uids()

	worse := running(t, first, strings.Replace(plan, "cpu: 10m", "cpu: 1000", 1), "")
	worse = f.pendingOn(t, worse, "db: 1 of 2 pods ready: Unschedulable")
	bad := uids()
	f.runs(t, first)
	undone := uids()
	if undone["db-0"] != before["db-0"] || undone["db-1"] == bad["db-1"] {
		t.Errorf("the pods were %v, then %v, and are %v", before, bad, undone)
	}

	worse.Applied = ""
	f.pendingOn(t, worse, "db: 1 of 2 pods ready: Unschedulable")
	better := running(t, first, strings.Replace(plan, "cpu: 10m", "cpu: 20m", 1), "")
	f.runs(t, better)
	eventually(t, "all pods are of the last version", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := f.admin.List(ctx, &pods, client.InNamespace(namespaceOf(first)))
		for i := range pods.Items {
			if cpu := pods.Items[i].Spec.Containers[0].Resources.Limits.Cpu(); cpu.String() != "20m" {
				return false, err
			}
		}
		return len(pods.Items) == 2, err
	})
}
