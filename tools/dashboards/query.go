package main

import (
	"fmt"
	"strings"
)

// by returns the clause that groups an aggregation by labels; without any, its result is one value.
func by(labels string) string {
	if labels == "" {
		return ""
	}
	return " by (" + labels + ") "
}

// latest returns a gauge that is the same on every replica.
func latest(labels, metric string) string { return fmt.Sprintf("max%s(%s)", by(labels), metric) }

// total returns the sum of such a gauge, which has the labels in of.
func total(labels, of, metric string) string {
	return fmt.Sprintf("sum%s(%s)", by(labels), latest(of, metric))
}

// perMinute returns the rate of a counter in a minute, on all replicas together.
func perMinute(labels, metric string) string {
	return fmt.Sprintf("60 * sum%s(rate(%s[$__rate_interval]))", by(labels), metric)
}

// inRange returns the increase of a counter in the time that the board shows. A series begins with the first count, which
// increase() does not see.
func inRange(labels, metric string) string {
	return fmt.Sprintf("sum%[1]s((increase(%[2]s[$__range]) + (min_over_time(%[2]s[$__range]) unless %[2]s offset $__range)) or increase(%[2]s[$__range]))", by(labels), metric)
}

// quantile returns a quantile of a histogram, whose name is without _bucket, with matchers.
func quantile(q float64, labels, histogram, matchers string) string {
	if labels != "" {
		labels += ", "
	}
	return fmt.Sprintf("histogram_quantile(%v, sum%s(rate(%s_bucket%s[$__rate_interval])))", q, by(labels+"le"), histogram, matchers)
}

// halfAndMost returns the median and the 95th percentile of a histogram, with a legend for its labels.
func halfAndMost(labels, histogram, matchers, legend string) []query {
	return []query{
		{quantile(.5, labels, histogram, matchers), strings.TrimSpace(legend + " median")},
		{quantile(.95, labels, histogram, matchers), strings.TrimSpace(legend + " 95 %")},
	}
}
