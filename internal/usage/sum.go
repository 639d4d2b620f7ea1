package usage

import (
	"cmp"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Dimension is a property by which usage is added up.
type Dimension string

// Dimensions.
const (
	ByPlatform     Dimension = "platform"
	ByOrganization Dimension = "organization"
	BySpace        Dimension = "space"
	ByPlan         Dimension = "plan"
	ByInstance     Dimension = "instance"
	ByProvider     Dimension = "provider"
	ByCluster      Dimension = "cluster"
)

// Dimensions are all of them.
var Dimensions = []Dimension{ByPlatform, ByOrganization, BySpace, ByPlan, ByInstance, ByProvider, ByCluster}

// ForConsumers are the dimensions that a platform may ask for: where its instances are is the operator's.
var ForConsumers = Dimensions[:5]

// Step is the length of the parts into which a window is divided.
type Step string

// Steps, in UTC.
const (
	PerMonth Step = "month"
	PerDay   Step = "day"
	PerHour  Step = "hour"
)

// Steps are all of them.
var Steps = []Step{PerMonth, PerDay, PerHour}

// next returns the end of the part that begins at a time.
func (s Step) next(from time.Time) time.Time {
	switch s {
	case PerHour:
		return from.Truncate(time.Hour).Add(time.Hour)
	case PerDay:
		return time.Date(from.Year(), from.Month(), from.Day()+1, 0, 0, 0, 0, time.UTC)
	default:
		return Month(from).To
	}
}

// Names returns the names of a service offering and of one of its plans, or their ids if it does not know them.
type Names func(serviceID, planID string) (service, plan string)

// IDs are the Names of a caller that knows none.
func IDs(serviceID, planID string) (service, plan string) { return serviceID, planID }

// Query selects and divides usage.
type Query struct {
	Window
	// Provider of the clusters, and Platform that owns the instances; empty means any.
	Provider, Platform string
	By                 []Dimension
	// Per is the length of the parts; empty means a month.
	Per Step
	// Most is the greatest number of sums; zero means any number.
	Most int
	// Names of offerings and plans.
	Names Names
}

// Sum is the usage of one combination of values of the dimensions, in one part of the window, in one currency.
type Sum struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Those of these that are asked for.
	Platform         string `json:"platform,omitempty"`
	OrganizationGUID string `json:"organization,omitempty"`
	SpaceGUID        string `json:"space,omitempty"`
	ServiceID        string `json:"serviceID,omitempty"`
	PlanID           string `json:"planID,omitempty"`
	Service          string `json:"service,omitempty"`
	Plan             string `json:"plan,omitempty"`
	InstanceID       string `json:"instance,omitempty"`
	Provider         string `json:"provider,omitempty"`
	Cluster          string `json:"cluster,omitempty"`
	// Seconds on clusters: of an instance on two clusters, both count.
	Seconds int64 `json:"seconds"`
	// Reserved amounts multiplied by seconds, exact.
	Reserved map[corev1.ResourceName]Decimal `json:"reservedSeconds"`
	// Cost in Currency; "" and zero if there was no price list.
	Cost     Decimal `json:"cost"`
	Currency string  `json:"currency,omitempty"`
}

// key identifies a sum.
type key struct {
	from                                                                 int64
	platform, organization, space, service, plan, instance, where, owner string
	currency                                                             string
}

// has reports whether a query selects a period of an instance, whenever that was.
func (q Query) has(of *v1alpha1.EventSubject, p *v1alpha1.UsagePeriod) bool {
	return (q.Provider == "" || p.Provider == q.Provider) && (q.Platform == "" || of.Platform == q.Platform)
}

// Sums adds up usage, ordered by time, then by the dimensions. The error contains ErrTooMany.
func Sums(all []Metered, q Query) ([]*Sum, error) {
	by := map[Dimension]bool{}
	for _, d := range q.By {
		by[d] = true
	}
	sums := map[key]*Sum{}
	for i := range all {
		for n := range all[i].Periods {
			p := &all[i].Periods[n]
			for part := range q.parts(&all[i], p) {
				sum := &Sum{Currency: p.Currency}
				sum.From, sum.To = q.around(part.From)
				sum.name(by, q.Names, &all[i], p)
				k := sum.key()
				known, found := sums[k]
				if !found {
					if q.Most > 0 && len(sums) == q.Most {
						return nil, fmt.Errorf("%w, more than %d: ask for longer steps, or for fewer dimensions", ErrTooMany, q.Most)
					}
					known, sums[k] = sum, sum
					known.Reserved = map[corev1.ResourceName]Decimal{}
				}
				known.add(p, part.To.Unix()-part.From.Unix())
			}
		}
	}
	sorted := make([]*Sum, 0, len(sums))
	for _, sum := range sums {
		sorted = append(sorted, sum)
	}
	slices.SortFunc(sorted, compare)
	return sorted, nil
}

// parts yields the parts of the window in which a period of an instance is, with only what is in the period; none of a
// period that the query does not select.
func (q Query) parts(of *Metered, p *v1alpha1.UsagePeriod) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		if !q.has(&of.EventSubject, p) {
			return
		}
		for from, to := q.clip(p); from.Before(to); {
			part := Window{from, q.Per.next(from)}
			if to.Before(part.To) {
				part.To = to
			}
			if !yield(part) {
				return
			}
			from = part.To
		}
	}
}

// around returns the part of the window in which a time is.
func (q Query) around(at time.Time) (from, to time.Time) {
	switch q.Per {
	case PerHour:
		from = at.Truncate(time.Hour)
	case PerDay:
		from = at.Truncate(24 * time.Hour)
	default:
		from = Month(at).From
	}
	if to = q.Per.next(from); q.To.Before(to) {
		to = q.To
	}
	if from.Before(q.From) {
		from = q.From
	}
	return from, to
}

// name gives the sum the values of the dimensions.
func (s *Sum) name(by map[Dimension]bool, names Names, of *Metered, p *v1alpha1.UsagePeriod) {
	if by[ByPlatform] || by[ByInstance] {
		s.Platform = of.Platform // ids of instances are unique within their platform only
	}
	if by[ByOrganization] {
		s.OrganizationGUID = of.OrganizationGUID
	}
	if by[BySpace] {
		s.SpaceGUID = of.SpaceGUID
	}
	if by[ByPlan] {
		s.ServiceID, s.PlanID = of.ServiceID, p.PlanID
		s.Service, s.Plan = names(of.ServiceID, p.PlanID)
	}
	if by[ByInstance] {
		s.InstanceID = of.InstanceID
	}
	if by[ByProvider] {
		s.Provider = p.Provider
	}
	if by[ByCluster] {
		s.Cluster = p.Cluster
	}
}

func (s *Sum) key() key {
	return key{s.From.Unix(), s.Platform, s.OrganizationGUID, s.SpaceGUID, s.ServiceID, s.PlanID, s.InstanceID, s.Cluster, s.Provider, s.Currency}
}

func compare(a, b *Sum) int {
	return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Platform, b.Platform), cmp.Compare(a.OrganizationGUID, b.OrganizationGUID),
		cmp.Compare(a.SpaceGUID, b.SpaceGUID), cmp.Compare(a.ServiceID, b.ServiceID), cmp.Compare(a.PlanID, b.PlanID), cmp.Compare(a.InstanceID, b.InstanceID),
		cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Currency, b.Currency))
}

// add adds so many seconds of a period.
func (s *Sum) add(p *v1alpha1.UsagePeriod, seconds int64) {
	s.Seconds += seconds
	for name, amount := range p.Reserved {
		scale := scaleOf(name)
		s.Reserved[name] = s.Reserved[name].plus(amount.ScaledValue(scale), seconds, -int(scale))
	}
	if p.PricePerHour != nil {
		s.Cost = s.Cost.plus(p.PricePerHour.ScaledValue(resource.Nano), seconds, 9)
		s.Cost.per = secondsPerHour
	}
}

const secondsPerHour = 3600

// scaleOf returns the unit in which amounts of a resource are counted, as in the ledger.
func scaleOf(name corev1.ResourceName) resource.Scale {
	if name == corev1.ResourceCPU {
		return resource.Milli
	}
	return 0
}

// Decimal is an exact sum: an integer of units of ten to the power of -digits, over a divisor. Its text has at most
// nine digits after the point, rounded half up. The zero value is zero.
type Decimal struct {
	units  *big.Int
	digits int
	per    int64
}

// plus returns the sum of d, which has the same digits, and units times seconds.
func (d Decimal) plus(units, seconds int64, digits int) Decimal {
	if d.units == nil {
		d.units = new(big.Int)
	}
	d.units.Add(d.units, new(big.Int).Mul(big.NewInt(units), big.NewInt(seconds)))
	d.digits = digits
	return d
}

// Rat returns the exact value.
func (d Decimal) Rat() *big.Rat {
	if d.units == nil {
		return new(big.Rat)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.digits)), nil)
	return new(big.Rat).SetFrac(d.units, unit.Mul(unit, big.NewInt(max(d.per, 1))))
}

// String formats the value without needless zeros.
func (d Decimal) String() string { return Text(d.Rat(), 9) }

// MarshalJSON encodes the value as a string, which keeps all digits.
func (d Decimal) MarshalJSON() ([]byte, error) { return []byte(`"` + d.String() + `"`), nil }

// Text formats a number with at most so many digits after the point, without needless zeros.
func Text(r *big.Rat, digits int) string {
	text := r.FloatString(digits)
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// Claims are the claims of a statement about the sums of a query.
func Claims(q Query, sums []*Sum) map[string]any {
	claims := map[string]any{"from": q.From, "to": q.To, "by": q.By, "usage": sums}
	if q.Provider != "" {
		claims["provider"] = q.Provider
	}
	if q.Platform != "" {
		claims["platform"] = q.Platform
	}
	return claims
}
