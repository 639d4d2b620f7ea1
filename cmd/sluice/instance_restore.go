package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// restoration holds the arguments of `sluice instance restore`.
type restoration struct {
	instance, platform, backup, cluster string
}

func newInstanceRestoreCommand(hub *hubFlags) *cobra.Command {
	var r restoration
	var patience time.Duration
	var confirmed confirmation
	cmd := &cobra.Command{
		Use:   "restore INSTANCE --from BACKUP",
		Short: "Restore a backup of an instance's volumes, where they are or on another cluster",
		Long: `Restore a backup of an instance's volumes; ` + "`sluice instance describe`" + ` lists them. The instance is given by
its OSB instance id or by the name of its ServiceInstance.

While its cluster answers, the instance stays there: its workload is stopped, the backup replaces what the
volumes contain, and the workload starts again. If that fails, it stays stopped until another restore succeeds.

If its cluster does not answer, or with --cluster, the instance moves to another cluster and starts there with
the data of the backup. If that fails, it stays where it was. What the former cluster has of it is deleted, or
will be when that answers again.

The bind hooks of its bindings run again. On a terminal, it asks first. To interrupt the command stops only the waiting.`,
		Example: `  sluice instance restore 5f1a2b3c --from b01234567
  sluice instance restore 5f1a2b3c --from b01234567 --cluster us-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.instance = args[0]; r.backup == "" {
				return errors.New("--from: name a backup; `sluice instance describe " + r.instance + "` lists them")
			}
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			if !confirmed.given(cmd, "Replace the data of instance %s by backup %s?", r.instance, r.backup) {
				return errors.New("nothing is restored")
			}
			instance, request, err := r.ask(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "instance %s: backup %s is being restored %s\n", r.instance, r.backup, whereTo(request.Cluster))
			if patience == 0 {
				return nil
			}
			return awaitRestored(cmd.Context(), cmd.OutOrStdout(), c, instance, patience)
		},
	}
	cmd.Flags().StringVar(&r.backup, "from", "", "ID of the backup")
	cmd.Flags().StringVar(&r.cluster, "cluster", "", "member cluster to restore it on (default: where the instance is, or any other if that cluster does not answer)")
	cmd.Flags().DurationVar(&patience, "wait", time.Hour, "how long to wait until the workload runs with the data; 0 does not wait")
	bindPlatform(cmd, &r.platform)
	confirmed.bind(cmd)
	return cmd
}

func whereTo(cluster string) string {
	if cluster == v1alpha1.ElsewhereCluster {
		return "on another cluster"
	}
	return "on " + cluster
}

// ask writes the request to the instance, and returns both. It refuses what cannot be done, and changes
// nothing then.
func (r *restoration) ask(ctx context.Context, c client.Client, namespace string) (instance *v1alpha1.ServiceInstance, request *v1alpha1.RestoreRequest, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if instance, err = findInstance(ctx, c, namespace, r.platform, r.instance); err != nil {
			return err
		}
		if request, err = r.request(ctx, c, instance); err != nil {
			return fmt.Errorf("instance %s: %w", r.instance, err)
		}
		metav1.SetMetaDataAnnotation(&instance.ObjectMeta, v1alpha1.AnnotationRestore, request.String())
		return c.Update(ctx, instance, client.FieldOwner(fieldOwner))
	})
	return instance, request, err
}

// request returns the request for an instance as it is.
func (r *restoration) request(ctx context.Context, c client.Client, instance *v1alpha1.ServiceInstance) (*v1alpha1.RestoreRequest, error) {
	status := &instance.Status
	on, err := restsOn(instance)
	switch {
	case err != nil:
		return nil, err
	case status.CarriesFrom() == "":
		return nil, errors.New("its plan has no backups of its volumes")
	case !status.CanRestore(r.backup):
		return nil, fmt.Errorf("there is no complete backup %s; it has %s", r.backup, orDash(listBackups(status.CompleteBackups())))
	}
	to := r.cluster
	if to == "" {
		to = on[0]
	}
	var cluster v1alpha1.MemberCluster
	err = c.Get(ctx, client.ObjectKey{Namespace: instance.Namespace, Name: to}, &cluster)
	answers := err == nil && meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read cluster %s: %w", to, err)
	case r.cluster == "" && !answers:
		to = v1alpha1.ElsewhereCluster
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("--cluster: there is no member cluster %s; `sluice cluster list` shows them all", to)
	case !answers:
		return nil, fmt.Errorf("--cluster: %s does not answer", to)
	}
	return &v1alpha1.RestoreRequest{Backup: r.backup, Cluster: to, At: time.Now()}, nil
}

// listBackups names backups and their age, the newest first.
func listBackups(complete []v1alpha1.Backup) string {
	var named []string
	for _, b := range slices.Backward(complete) {
		named = append(named, fmt.Sprintf("%s (%s ago)", b.ID, age(*b.At)))
	}
	return strings.Join(named, ", ")
}

// awaitRestored reports what a restore waits for, whenever that changes, until it has ended.
func awaitRestored(ctx context.Context, out io.Writer, c client.Client, instance *v1alpha1.ServiceInstance, patience time.Duration) error {
	asked, said := instance.Annotations[v1alpha1.AnnotationRestore], ""
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(instance), instance); err != nil {
			return false, err
		}
		if instance.Annotations[v1alpha1.AnnotationRestore] != asked {
			return false, errors.New("something else is restored now")
		}
		if instance.RestoreAsked() == "" {
			return true, nil
		}
		if state := progressOf(instance); state != said {
			fmt.Fprintf(out, "instance %s: %s\n", instance.Spec.InstanceID, state)
			said = state
		}
		return false, nil
	})
	switch ended := instance.Status.Restored; {
	case wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("instance %s: not restored after %s; it goes on: %s", instance.Spec.InstanceID, patience, said)
	case err != nil:
		return err
	case ended.At == nil:
		return fmt.Errorf("instance %s: not restored: %s", instance.Spec.InstanceID, ended.Failure)
	default:
		_, err := fmt.Fprintf(out, "instance %s: runs on %s with the data of backup %s\n", instance.Spec.InstanceID, ended.Cluster, ended.Backup)
		return err
	}
}

// progressOf describes what a restore waits for.
func progressOf(instance *v1alpha1.ServiceInstance) string {
	about := v1alpha1.ConditionReady
	switch status := &instance.Status; {
	case status.IsStranded():
		about = v1alpha1.ConditionPlaced
	case status.IsMoving():
		about = v1alpha1.ConditionDelivered
	}
	if found := meta.FindStatusCondition(instance.Status.Conditions, about); found != nil {
		return found.Message
	}
	return "waiting"
}
