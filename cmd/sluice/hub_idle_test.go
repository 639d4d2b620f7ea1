package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

// TestMoveLooksWhetherTheLeaseIsRenewed: whatever the clocks say, a Sluice runs if the Lease is renewed, and none does if
// it is not. A Lease that was left behind is waited for once, one that was released not at all. The doctor looks likewise.
func TestMoveLooksWhetherTheLeaseIsRenewed(t *testing.T) {
	t.Setenv("SLUICE_TEST_HUB", "kube")
	h := hubtest.Start(t)
	leases := kubernetes.NewForConfigOrDie(h.Config).CoordinationV1().Leases(h.Namespace)
	waited := 0
	isIdle, err := idle(h.Config, h.Namespace, func(string, ...any) { waited++ })
	if err != nil {
		t.Fatal(err)
	}
	says := func(when, want string, waits int) {
		t.Helper()
		err := isIdle(t.Context())
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", when, err, want)
		}
		if waited != waits {
			t.Errorf("%s: it has waited %d times, want %d", when, waited, waits)
		}
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	doctor := &examination{cmd: cmd, ctx: t.Context(), hub: &hubFlags{kubeconfig: "one", namespace: h.Namespace}, config: h.Config}
	finds := func(when, want string) {
		t.Helper()
		found, err := doctor.leader()
		if text := fmt.Sprint(found, err); !strings.Contains(text, want) {
			t.Errorf("%s: the doctor finds %s, want %q", when, text, want)
		}
	}
	says("without a Lease", "", 0)
	finds("without a Lease", "no replica has led yet")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("sluice-0"), LeaseDurationSeconds: ptr.To[int32](1), RenewTime: ptr.To(metav1.NowMicro()),
	}}
	lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(time.Hour) // as of a machine whose clock is ahead
	if lease, err = leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	says("after a kill", "", 1)
	says("after a kill, again", "", 1)
	finds("after a kill", "sluice-0 led last, has not renewed its Lease for 3s")

	renew := func(after time.Duration) (err error) {
		lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(after)
		lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	}
	if err := renew(-2 * time.Hour); err != nil { // as of a machine whose clock is behind
		t.Fatal(err)
	}
	renewing, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		pace := time.NewTicker(100 * time.Millisecond)
		defer pace.Stop()
		var err error
		for renewing.Err() == nil && err == nil {
			<-pace.C
			err = renew(100 * time.Millisecond)
		}
		ended <- err
	}()
	says("while it is renewed", "a Sluice runs on that cluster (sluice-0 leads)", 2)
	finds("while it is renewed", "sluice-0 leads")
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	lease.Spec.HolderIdentity = ptr.To("")
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	says("after a clean stop", "", 2)
	finds("after a clean stop", "nobody leads")
}
