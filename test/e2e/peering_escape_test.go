//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/escape"
)

// escapes: a consumer extends a namespace of its own by hand, in which its cluster refuses
// nothing. A plain pod runs at the provider. Every attempt of the escape suite is refused there
// as a ShadowPod; and a privileged pod, which the virtual kubelet turns into one, does not run
// and says why.
func (w *peeringWorld) escapes(t *testing.T) {
	namespace := offloadByHand(t, peerConsumer)
	remote := namespace + "-" + peerConsumer
	provider := liqoClient(t, peerProvider)

	_, err := w.consumer.CoreV1().Pods(namespace).Create(t.Context(), pod("plain", "10m"), metav1.CreateOptions{})
	must(t, err)
	eventually(t, patience, "a plain pod runs at the provider", func(ctx context.Context) string {
		p, err := w.provider.CoreV1().Pods(remote).Get(ctx, "plain", metav1.GetOptions{})
		return unlessRunning(p, err)
	})

	shadow := func(row escape.Row) error {
		p := escape.Pod(remote, "escape", echoImage)
		row.Make(p)
		return provider.Create(t.Context(), &offloadingv1beta1.ShadowPod{
			ObjectMeta: p.ObjectMeta, Spec: offloadingv1beta1.ShadowPodSpec{Pod: p.Spec},
		}, client.DryRunAll)
	}
	for _, row := range escape.Pods() { // policies judge before Liqo's webhook does
		if err := shadow(row); err == nil || !strings.Contains(err.Error(), row.By) {
			t.Errorf("%s: %v, want a refusal with %q", row.Name, err, row.By)
		}
	}
	t.Logf("%d attempts by ShadowPods", len(escape.Pods()))

	yes := true
	privileged := pod("privileged", "10m")
	privileged.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	_, err = w.consumer.CoreV1().Pods(namespace).Create(t.Context(), privileged, metav1.CreateOptions{})
	must(t, err)
	eventually(t, patience, "the consumer learns that its privileged pod is refused", func(ctx context.Context) string {
		events, err := w.consumer.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=privileged"})
		if err != nil {
			return err.Error()
		}
		var said []string
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, "privileged containers are refused") {
				return ""
			}
			said = append(said, events.Items[i].Message)
		}
		return fmt.Sprint(said)
	})
	pods, err := w.provider.CoreV1().Pods(remote).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for i := range pods.Items {
		if pods.Items[i].Name != "plain" {
			t.Errorf("pod %s is at the provider", pods.Items[i].Name)
		}
	}
}
