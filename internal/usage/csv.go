package usage

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// columns of each dimension.
var columns = map[Dimension][]struct {
	title string
	value func(*Sum) string
}{
	ByPlatform:     {{"platform", func(s *Sum) string { return s.Platform }}},
	ByOrganization: {{"organization", func(s *Sum) string { return s.OrganizationGUID }}},
	BySpace:        {{"space", func(s *Sum) string { return s.SpaceGUID }}},
	ByPlan:         {{"service", func(s *Sum) string { return s.Service }}, {"plan", func(s *Sum) string { return s.Plan }}},
	ByInstance:     {{"instance", func(s *Sum) string { return s.InstanceID }}},
	ByProvider:     {{"provider", func(s *Sum) string { return s.Provider }}},
	ByCluster:      {{"cluster", func(s *Sum) string { return s.Cluster }}},
}

// Titles returns the titles of the columns of dimensions. Of instances it includes their platform.
func Titles(by []Dimension) (titles []string) {
	for _, d := range withPlatform(by) {
		for _, column := range columns[d] {
			titles = append(titles, column.title)
		}
	}
	return titles
}

// Values returns the values of these columns.
func (s *Sum) Values(by []Dimension) (values []string) {
	for _, d := range withPlatform(by) {
		for _, column := range columns[d] {
			values = append(values, column.value(s))
		}
	}
	return values
}

// withPlatform adds the platform to instances, whose ids are unique within it only.
func withPlatform(by []Dimension) []Dimension {
	if at := slices.Index(by, ByInstance); at >= 0 && !slices.Contains(by, ByPlatform) {
		return slices.Insert(slices.Clone(by), at, ByPlatform)
	}
	return by
}

// Resources returns the names of all resources in sums, sorted.
func Resources(sums []*Sum) (names []corev1.ResourceName) {
	for _, s := range sums {
		for name := range s.Reserved {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// WriteCSV writes sums with a line of titles. Amounts of resources are multiplied by seconds.
func WriteCSV(w io.Writer, sums []*Sum, by []Dimension) error {
	out := csv.NewWriter(w)
	resources := Resources(sums)
	titles := append([]string{"from", "to"}, Titles(by)...)
	titles = append(titles, "seconds")
	for _, name := range resources {
		titles = append(titles, string(name)+" seconds")
	}
	if err := out.Write(append(titles, "cost", "currency")); err != nil {
		return err
	}
	for _, s := range sums {
		row := append([]string{s.From.Format(time.RFC3339), s.To.Format(time.RFC3339)}, s.Values(by)...)
		row = append(row, strconv.FormatInt(s.Seconds, 10))
		for _, name := range resources {
			row = append(row, s.Reserved[name].String())
		}
		if err := out.Write(append(row, s.Cost.String(), s.Currency)); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
