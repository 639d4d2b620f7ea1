//go:build faults

package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// volumesOffering sells a workload whose volume can be backed up. Its hooks copy nothing: simulated kubelets run them.
const volumesOffering = `
apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata:
  name: volumes
spec:
  id: volumes
  name: volumes
  description: A workload with a volume
  plans:
  - id: volume
    name: volume
    description: One component
    kind: workload
    resources: {storage: {fast: 1Mi}}
    workload:
      components:
      - name: db
        container:
          image: sluice.dev/db:1
          volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Mi}]
          backup: {image: "sluice.dev/tool:1", command: ["true"], env: {TO: "${target.url}/${backup.id}"}, resources: {cpu: 10m, memory: 16Mi}}
          restore: {image: "sluice.dev/tool:1", command: ["true"], env: {FROM: "${target.url}/${backup.id}"}, resources: {cpu: 10m, memory: 16Mi}}
          resources: {cpu: 20m, memory: 16Mi}
`

// TestVolumesFollow moves a workload with its volume, and restores a backup of it, where it is and elsewhere, while
// Sluice is killed after each of its writes.
func TestVolumesFollow(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	b := newBed(ctx, t, stop, "eu-1")
	v := &volume{instance: b.instance("volume")}
	v.service, v.plan = "volumes", "volume"
	b.tell(ctx, t, []story{{"a volume", func(*bed) []step {
		return []step{
			{"sell it", v.sell, spared},
			{"provision", v.provision, spared},
			{"move with the volume", v.move, killed},
			{"restore where it is", v.restoreHere, killed},
			{"restore on the other cluster", v.restoreElsewhere, killed},
			{"deprovision", v.deprovision, spared},
		}
	}}})
	if kills := len(b.deaths); kills < 30 {
		t.Errorf("killed %d times, want at least ten times in each step", kills)
	}
}

// volume is an instance that runs a workload with a volume.
type volume struct {
	*instance
	on     string // the cluster that it is on
	backup string // the one that was made of it
}

// sell gives the clusters volumes, and the catalog the offering.
func (v *volume) sell(ctx context.Context) error {
	err := v.each(func(name string, m *member) error {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "kubernetes.io/no-provisioner"}
		if _, err := m.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return err
		}
		for n := range 4 { // nobody makes one that was used usable again
			_, err := m.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("volume-%d", n)},
				Spec: corev1.PersistentVolumeSpec{
					StorageClassName: class.Name, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
					AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: fmt.Sprintf("/tmp/%s-%d", name, n)}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// An order that needs a class which no cluster is known to have fails at once.
	err = v.withHub(ctx, func(hub client.Client) error {
		var clusters v1alpha1.MemberClusterList
		if err := hub.List(ctx, &clusters, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, cluster := range clusters.Items {
			if !slices.Contains(cluster.Status.StorageClasses, "fast") {
				return fmt.Errorf("%s is known to have the storage classes %v, not fast", cluster.Name, cluster.Status.StorageClasses)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	file := v.server.path("volumes.yaml")
	if err := os.WriteFile(file, []byte(volumesOffering), 0o600); err != nil {
		return err
	}
	if err := v.operate(ctx, "catalog", "apply", "-f", file); err != nil {
		return err
	}
	return until(ctx, func(ctx context.Context) error { return v.sells(ctx, "volumes", true) })
}

func (v *volume) provision(ctx context.Context) error {
	body := map[string]any{"service_id": v.service, "plan_id": v.plan, "organization_guid": "organization", "space_guid": "space"}
	if err := v.succeed(ctx, http.MethodPut, v.path(), async, body); err != nil {
		return err
	}
	seen, err := v.inHub(ctx)
	if err != nil {
		return err
	}
	v.on = seen.Status.Delivered.Decision.Placements[0].Cluster
	return v.runs(ctx)
}

// move has the instance leave its cluster.
func (v *volume) move(ctx context.Context) error {
	from := v.on
	err := v.ask(ctx, v1alpha1.AnnotationLeave, from, func(seen *v1alpha1.ServiceInstance) error {
		if on := seen.Status.Delivered.Decision.Placements[0].Cluster; on == from {
			return fmt.Errorf("it is still on %s", on)
		}
		return nil
	})
	if err != nil {
		return err
	}
	seen, err := v.inHub(ctx)
	if err != nil {
		return err
	}
	complete := seen.Status.CompleteBackups()
	if len(complete) != 1 || complete[0].Cluster != from {
		return fmt.Errorf("the move has left the backups %+v, want one of %s", complete, from)
	}
	v.backup, v.on = complete[0].ID, seen.Status.Delivered.Decision.Placements[0].Cluster
	return v.runs(ctx)
}

func (v *volume) restoreHere(ctx context.Context) error { return v.restore(ctx, v.on) }

func (v *volume) restoreElsewhere(ctx context.Context) error {
	for _, name := range memberNames {
		if name != v.on {
			return v.restore(ctx, name)
		}
	}
	return errors.New("there is no other cluster")
}

// restore puts the backup in the place of what the instance has, on a cluster.
func (v *volume) restore(ctx context.Context, on string) error {
	request := v1alpha1.RestoreRequest{Backup: v.backup, Cluster: on, At: time.Now()}
	err := v.ask(ctx, v1alpha1.AnnotationRestore, request.String(), func(seen *v1alpha1.ServiceInstance) error {
		if r := seen.Status.Restored; r == nil || r.Request != request.String() || r.At == nil {
			return fmt.Errorf("backup %s is not restored on %s: %+v", v.backup, on, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	v.on = on
	return v.runs(ctx)
}

// ask annotates the instance, and waits until what it asks for is done and nothing is under way.
func (v *volume) ask(ctx context.Context, annotation, value string, done func(*v1alpha1.ServiceInstance) error) error {
	err := until(ctx, func(ctx context.Context) error {
		return v.withHub(ctx, func(c client.Client) error {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
			instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.name}}
			return c.Patch(ctx, instance, client.RawPatch(types.MergePatchType, patch))
		})
	})
	if err != nil {
		return err
	}
	return until(ctx, func(ctx context.Context) error {
		seen, err := v.inHub(ctx)
		if err != nil {
			return err
		}
		if err := done(seen); err != nil {
			return err
		}
		if !seen.Status.IsFinished() || seen.Status.IsMoving() || len(seen.Status.Left) > 0 {
			return fmt.Errorf("%s is not settled, and has left %d clusters", v.id, len(seen.Status.Left))
		}
		return nil
	})
}

// runs checks that the component runs with its volume on the cluster that it is on, and that nothing of it, and of no
// hook, is anywhere else.
func (v *volume) runs(ctx context.Context) error {
	if err := v.delivered(ctx, 1); err != nil {
		return err
	}
	return until(ctx, func(ctx context.Context) error {
		return v.each(func(name string, m *member) error {
			namespaces, err := m.namespacesOf(ctx, v.name)
			if err != nil {
				return err
			}
			jobs, err := m.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if len(jobs.Items) > 0 {
				return fmt.Errorf("%d Jobs are left", len(jobs.Items))
			}
			if name != v.on {
				return none("namespace", v.name)(namespaces, nil)
			}
			if len(namespaces) != 1 {
				return fmt.Errorf("it has %d namespaces", len(namespaces))
			}
			set, err := m.AppsV1().StatefulSets(namespaces[0]).Get(ctx, "db", metav1.GetOptions{})
			if err != nil {
				return err
			}
			claims, err := m.CoreV1().PersistentVolumeClaims(namespaces[0]).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if set.Status.ReadyReplicas != 1 || len(claims.Items) != 1 || claims.Items[0].Status.Phase != corev1.ClaimBound {
				return fmt.Errorf("%d pods are ready, with the claims %+v", set.Status.ReadyReplicas, claims.Items)
			}
			return nil
		})
	})
}
