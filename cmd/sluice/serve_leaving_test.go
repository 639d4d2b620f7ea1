package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/market"
)

// TestMovesOffAClusterThatIsNotReadYet: a cluster that is on the hub may not be in this replica's cache yet. That is said,
// and is no failure of Sluice.
func TestMovesOffAClusterThatIsNotReadYet(t *testing.T) {
	d, _ := shared(t)
	if moves, untried, err := d.moves(t.Context(), "acme-de", true); err != nil || len(moves) == 0 || untried != 0 {
		t.Errorf("off a cluster that is read: %v, %d untried: %v", moves, untried, err)
	}
	_, _, err := d.moves(t.Context(), "new", false)
	if said := (*market.Error)(nil); !errors.As(err, &said) || said.Status != http.StatusNotFound || !strings.Contains(said.Description, "has not read the cluster new yet") {
		t.Errorf("off another one: %v", err)
	}
}
