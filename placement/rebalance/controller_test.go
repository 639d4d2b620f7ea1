package rebalance

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestAWindowIsOpenFromItsScheduleOn(t *testing.T) {
	of := &v1alpha1.Rebalance{Schedule: "30 1 * * 6", WindowSeconds: 7200} // Saturdays
	saturday := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for at, want := range map[time.Duration]bool{
		89 * time.Minute: false, 90 * time.Minute: true, 209 * time.Minute: true, 211 * time.Minute: false, 25 * time.Hour: false,
	} {
		_, open, err := Window(of, saturday.Add(at))
		if err != nil || open != want {
			t.Errorf("%s into Saturday it is open: %t, %v", at, open, err)
		}
	}
	if _, _, err := Window(&v1alpha1.Rebalance{Schedule: "every night"}, saturday); err == nil {
		t.Error("a schedule that is none was taken")
	}
}
