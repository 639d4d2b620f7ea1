package controller

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
)

// guards is whether a member cluster enforces rules for pods (Options.Unguarded). One that was registered by an older
// version of Sluice may not.
type guards struct {
	enforced bool
	// problem is the cause if they are not enforced; nil until the cluster has said so.
	problem error
	checked time.Time
}

// look asks the cluster as often as the access is checked, and with every probe while rules are not enforced. Without an
// answer, the one before holds.
func (g *guards) look(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster, c clients, now time.Time) {
	if !cluster.RunsPods() || g.enforced && now.Sub(g.checked) < accessEvery {
		return
	}
	missing, err := r.Unguarded(ctx, cluster, c.connection)
	if err != nil {
		return
	}
	*g = guards{enforced: missing == "", checked: now}
	if !g.enforced {
		g.problem = &member.Error{
			Cluster: cluster.Name, Step: "see that it enforces rules for pods", Err: errors.New(missing),
			Remedy: "run `sluice cluster renew` for it; until then it gets no orders with such rules",
		}
	}
}
