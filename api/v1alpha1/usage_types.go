package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UsagePeriod is a time during which a service instance had the same on one cluster: the reservation that was
// delivered, at the price at which it was decided. It is written together with the change that begins or ends it.
// A cluster and From identify it among the periods of its instance; those on one cluster do not overlap.
type UsagePeriod struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Provider of the cluster, when the period began.
	Provider string `json:"provider,omitempty"`
	// From is when it began, by the clock of Sluice.
	From metav1.Time `json:"from"`
	// To is when it ended; absent if it goes on. The other fields below are then those of the delivered
	// decision, and are absent, too.
	To *metav1.Time `json:"to,omitempty"`
	// PlanID of the instance's plan.
	PlanID string `json:"planID,omitempty"`
	// Reserved on the cluster.
	Reserved corev1.ResourceList `json:"reserved,omitempty"`
	// PricePerHour of the reservation when it was decided, if the cluster had a price list.
	PricePerHour *resource.Quantity `json:"pricePerHour,omitempty"`
	// Currency of PricePerHour.
	Currency string `json:"currency,omitempty"`
}

// IsOpen reports whether the period goes on.
func (p *UsagePeriod) IsOpen() bool { return p.To == nil }

// MostUsagePeriods is the number of ended periods beyond which a status' older ones move to the instance's journal,
// and MostJournalPeriods the number beyond which the older half of a journal's moves to one of their own.
const (
	MostUsagePeriods   = 8
	MostJournalPeriods = 512
)

// JournalPage is the part of a journal's name that follows the UID, if it keeps nothing but older usage.
const JournalPage = ".usage-"

// MergeUsage returns periods with later ones added to them: of two of the same cluster from the same time on, only the
// later one. The arguments are not changed.
func MergeUsage(periods, later []UsagePeriod) []UsagePeriod {
	merged := make([]UsagePeriod, 0, len(periods)+len(later))
	for _, p := range periods {
		if !slices.ContainsFunc(later, p.isSame) {
			merged = append(merged, p)
		}
	}
	return append(merged, later...)
}

// LastUsageChange returns when a period was last begun or ended; zero if there is none.
func LastUsageChange(periods []UsagePeriod) (last metav1.Time) {
	for i := range periods {
		for _, boundary := range []*metav1.Time{&periods[i].From, periods[i].To} {
			if last.Before(boundary) {
				last = *boundary
			}
		}
	}
	return last
}

// isSame reports whether two periods of an instance are the same one.
func (p *UsagePeriod) isSame(other UsagePeriod) bool {
	return p.Cluster == other.Cluster && p.From.Equal(&other.From)
}
