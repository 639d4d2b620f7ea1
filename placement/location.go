package placement

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Location is a place on earth in decimal degrees (WGS 84).
type Location struct {
	Latitude, Longitude float64
	// unit is the vector of length 1 from the centre of the earth.
	unit [3]float64
}

// LocationAt returns the place at a latitude and longitude.
func LocationAt(latitude, longitude float64) *Location {
	const radian = math.Pi / 180
	across, polar := math.Cos(latitude*radian), math.Sin(latitude*radian)
	return &Location{latitude, longitude, [3]float64{across * math.Cos(longitude*radian), across * math.Sin(longitude*radian), polar}}
}

// locationOf reads a location of the API; nil stays nil.
func locationOf(from *v1alpha1.Location) (*Location, error) {
	if from == nil {
		return nil, nil
	}
	latitude, err := strconv.ParseFloat(from.Latitude, 64)
	if err != nil || !(math.Abs(latitude) <= 90) { // excludes NaN too
		return nil, fmt.Errorf("latitude: %q is not a number from -90 to 90", from.Latitude)
	}
	longitude, err := strconv.ParseFloat(from.Longitude, 64)
	if err != nil || !(math.Abs(longitude) <= 180) {
		return nil, fmt.Errorf("longitude: %q is not a number from -180 to 180", from.Longitude)
	}
	return LocationAt(latitude, longitude), nil
}

// earthRadius is the mean radius in kilometres (IUGG).
const earthRadius = 6371.0088

// kilometers returns the great-circle distance, rounded to a whole kilometre (from the chord, as the haversine
// formula; the earth is taken as a sphere, an error of at most 0.6 %).
func (l *Location) kilometers(other *Location) int {
	var square float64 // of the chord
	for i := range l.unit {
		d := l.unit[i] - other.unit[i]
		square += float64(d * d) // rounded, or other processors would add unrounded products
	}
	return int(math.Round(2 * earthRadius * math.Asin(min(math.Sqrt(square)/2, 1))))
}

// tooFar rejects clusters that are farther from the consumer than the plan allows.
func tooFar(from *Location, most int) filter {
	return filter{reason: ReasonTooFar,
		rejects: func(p *page, among set) set {
			return among.where(func(row int) bool {
				at := p.clusters[row].Location
				return from == nil || at == nil || from.kilometers(at) > most
			})
		},
		message: func(p *page, row int) string {
			switch at := p.clusters[row].Location; {
			case from == nil:
				return fmt.Sprintf("at most %d km from the consumer allowed, whose location is unknown", most)
			case at == nil:
				return fmt.Sprintf("at most %d km from the consumer allowed, and its location is unknown", most)
			default:
				return fmt.Sprintf("is %d km from the consumer, at most %d km allowed", from.kilometers(at), most)
			}
		},
	}
}

// locality is 100 · 500 km / (500 km + distance); unknown scores 0.
func (sc *scorer) locality(at position) int32 {
	const half = 500
	if sc.near == nil || at.cluster().Location == nil {
		return 0
	}
	return int32(100 * half / (half + sc.near.kilometers(at.cluster().Location))) // at most 100
}

// Measured is a round-trip time and when it was measured.
type Measured struct {
	Median time.Duration
	At     time.Time
	// Observed means measured by Liqo; a reported latency takes precedence.
	Observed bool
}

// Holds reports whether the time still counts at an instant: one that Liqo has measured expires.
func (m Measured) Holds(now time.Time) bool {
	return !m.Observed || now.Sub(m.At) <= v1alpha1.ObservedLatencyTTL
}

// latenciesOf returns the latencies of a member cluster by the place of measurement, except
// those that have expired.
func latenciesOf(mc *v1alpha1.MemberCluster, now time.Time) map[string]Measured {
	if len(mc.Spec.Latencies)+len(mc.Status.Latencies) == 0 {
		return nil
	}
	all := map[string]Measured{}
	for _, m := range mc.Status.Latencies {
		if seen := (Measured{Median: m.Median.Duration, At: m.MeasuredAt.Time, Observed: true}); seen.Holds(now) {
			all[m.From] = seen
		}
	}
	for _, m := range mc.Spec.Latencies {
		all[m.From] = Measured{Median: m.Median.Duration, At: m.MeasuredAt.Time}
	}
	return all
}

// latencyOf returns the latency of a cluster from a vantage, Sluice's own if that is empty;
// false if it was not measured, or too long ago.
func latencyOf(c *Cluster, bound *v1alpha1.LatencyBound, now time.Time) (time.Duration, bool) {
	if bound == nil || bound.From == "" {
		return c.Latency, c.Latency > 0
	}
	measured, ok := c.Latencies[bound.From]
	if !ok || bound.MaxAgeSeconds > 0 && now.Sub(measured.At) > time.Duration(bound.MaxAgeSeconds)*time.Second {
		return 0, false
	}
	return measured.Median, true
}

// tooSlow rejects clusters with a higher latency from a vantage than the plan allows.
func tooSlow(bound *v1alpha1.LatencyBound, now time.Time) filter {
	most := time.Duration(bound.Milliseconds) * time.Millisecond
	return filter{reason: ReasonTooSlow, entry: true, passing: true,
		rejects: func(p *page, among set) set {
			return among.where(func(row int) bool {
				latency, known := latencyOf(p.clusters[row], bound, now)
				return !known || latency > most
			})
		},
		message: func(p *page, row int) string {
			from := "Sluice"
			if bound.From != "" {
				from = bound.From
			}
			if latency, known := latencyOf(p.clusters[row], bound, now); known {
				return fmt.Sprintf("is %s from %s, at most %s allowed", latency, from, most)
			}
			if measured, old := p.clusters[row].Latencies[bound.From]; old {
				return fmt.Sprintf("was last measured from %s %s ago, at most %s allowed", from,
					now.Sub(measured.At).Round(time.Second), time.Duration(bound.MaxAgeSeconds)*time.Second)
			}
			return fmt.Sprintf("at most %s from %s allowed, and not measured from there", most, from)
		},
	}
}

// latency is the round-trip time between two clusters, from the measurements of either from the
// other: the shortest reported one or, if there is none, the shortest observed one. It returns
// false if there is no measurement.
func latency(a, b *Cluster) (between time.Duration, measured bool) {
	var best Measured
	for _, pair := range [][2]*Cluster{{a, b}, {b, a}} {
		m, ok := pair[0].Latencies[pair[1].Name]
		switch {
		case !ok, measured && m.Observed && !best.Observed:
		case !measured, best.Observed && !m.Observed, m.Median < best.Median:
			best, measured = m, true
		}
	}
	return best.Median, measured
}
