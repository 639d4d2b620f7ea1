//go:build faults

package crash

import (
	"context"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/liqo/liqotest"
)

// withLiqo leaves on a cluster what an installation of Liqo leaves there, as far as Sluice reads it.
func withLiqo(ctx context.Context, t *testing.T, config *rest.Config, id string) liqotest.Cluster {
	t.Helper()
	known := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(known))
	for kind := range liqo.Scheme.AllKnownTypes() {
		if o, err := liqo.Scheme.New(kind); err == nil {
			known.AddKnownTypeWithName(kind, o)
		}
	}
	admin, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	liqotest.Install(t, admin, liqotest.Definitions...)
	if err := admin.Create(ctx, liqotest.RemoteControlPlane(t)); err != nil {
		t.Fatal(err)
	}
	end := liqotest.Cluster{Admin: admin, ID: id}
	end.Identify(t, liqo.DefaultNamespace)
	return end
}

// connect does what Liqo's controllers do for the network between two clusters, until ctx ends.
func connect(ctx context.Context, one, other liqotest.Cluster) {
	var wires liqotest.Network
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		wires.Pass(ctx, one, other)
		wires.Pass(ctx, other, one)
	}, 200*time.Millisecond)
}
