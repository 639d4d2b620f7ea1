package placement

import (
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestDistancesAreThoseOfTheGlobe(t *testing.T) {
	berlin, paris := Location{52.52, 13.405}, Location{48.8566, 2.3522}
	for _, row := range []struct {
		name     string
		from, to Location
		want     int
	}{
		{"Berlin to Paris", berlin, paris, 877},
		{"and back", paris, berlin, 877},
		{"nowhere", berlin, berlin, 0},
		{"across the date line", Location{0, 179}, Location{0, -179}, 222},
		{"to the antipodes", Location{0, 0}, Location{0, 180}, 20015},
		{"from pole to pole", Location{90, 0}, Location{-90, 123}, 20015},
	} {
		if got := row.from.Kilometers(row.to); got != row.want {
			t.Errorf("%s: %d km, want %d", row.name, got, row.want)
		}
	}
}

func TestLocationsThatAreNoneAreRefused(t *testing.T) {
	for _, from := range []v1alpha1.Location{{Latitude: "91", Longitude: "0"}, {Latitude: "0", Longitude: "-181"}, {Latitude: "north", Longitude: "0"}, {Latitude: "NaN", Longitude: "0"}} {
		if at, err := LocationOf(&from); err == nil {
			t.Errorf("%+v is taken as %+v", from, at)
		}
	}
}
