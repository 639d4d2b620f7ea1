package console

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// amount formats an amount of a resource with its unit, for instance "3.5 cores" or "16 GiB memory".
func amount(name corev1.ResourceName, q resource.Quantity) string {
	switch {
	case name == corev1.ResourceCPU:
		return cores(q.MilliValue())
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return binary(q.Value()) + " " + string(name)
	case v1alpha1.IsStorage(name):
		class, _, _ := strings.Cut(string(name), ".storageclass.")
		return binary(q.Value()) + " of storage class " + class
	}
	return grouped(q.Value()) + " " + string(name)
}

// amounts formats a list of resources, cores and memory first.
func amounts(list corev1.ResourceList) []string {
	names := slices.DeleteFunc(sorted(list), func(name corev1.ResourceName) bool { q := list[name]; return q.IsZero() })
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = amount(name, list[name])
	}
	return texts
}

// cores formats thousandths of a core.
func cores(milli int64) string {
	if milli == 1000 {
		return "1 core"
	}
	if milli >= 10_000 || milli <= -10_000 {
		return grouped(int64(math.Round(float64(milli)/1000))) + " cores"
	}
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) + " cores"
}

// binary formats bytes in the largest binary unit that leaves at least one, with three digits at most.
func binary(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(bytes), 0
	for math.Abs(value) >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	digits := 0
	if math.Abs(value) < 10 && unit > 0 {
		digits = 1
	}
	text := strconv.FormatFloat(value, 'f', digits, 64)
	return strings.TrimSuffix(text, ".0") + " " + units[unit]
}

// grouped formats a number with a thin space between groups of three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "−", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return sign + text
}

// counted formats a number of things, for instance "1 cluster" or "2 clusters".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "y") {
		noun = strings.TrimSuffix(noun, "y") + "ie"
	}
	return grouped(int64(n)) + " " + noun + "s"
}

// money formats an amount of money, exact to a billionth, for instance "89.50 EUR".
func money(q resource.Quantity, currency string) string {
	text := strconv.FormatFloat(float64(q.ScaledValue(resource.Nano))/1e9, 'f', -1, 64)
	if _, fraction, found := strings.Cut(text, "."); found && len(fraction) == 1 {
		text += "0"
	}
	return text + " " + currency
}

// perHour formats a price for an hour.
func perHour(q *resource.Quantity, currency string) string {
	if q == nil {
		return ""
	}
	return money(*q, currency) + " an hour"
}

// moment is a time as people read it.
type moment struct{ at, now time.Time }

// ISO is the time as machines read it.
func (m moment) ISO() string { return m.at.UTC().Format(time.RFC3339) }

// Exact is the time to the second.
func (m moment) Exact() string { return m.at.UTC().Format("2006-01-02 15:04:05 UTC") }

// About is the time relative to now, for instance "3 min ago" or "in 2 days".
func (m moment) About() string {
	d := m.now.Sub(m.at)
	switch {
	case d.Abs() < 5*time.Second:
		return "just now"
	case d < 0:
		return "in " + long(-d)
	}
	return long(d) + " ago"
}

// long formats a duration in its largest unit.
func long(d time.Duration) string {
	const day = 24 * time.Hour
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{365 * day, "year"}, {30 * day, "month"}, {day, "day"}} {
		if d >= 2*u.unit {
			return fmt.Sprintf("%d %ss", d/u.unit, u.name)
		}
	}
	switch {
	case d >= 100*time.Minute:
		return fmt.Sprintf("%d h", d.Round(time.Hour)/time.Hour)
	case d >= time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d >= time.Second:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// spaced puts a space before each capital of a word such as InsufficientCPU, which then reads "insufficient CPU".
func spaced(word string) string {
	var b strings.Builder
	runes := []rune(word)
	isUpper := func(i int) bool { return i >= 0 && i < len(runes) && runes[i] >= 'A' && runes[i] <= 'Z' }
	for i, r := range runes {
		if isUpper(i) && i > 0 && (!isUpper(i-1) || i+1 < len(runes) && !isUpper(i+1)) {
			b.WriteByte(' ')
		}
		if isUpper(i) && !isUpper(i+1) && !isUpper(i-1) {
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	text := b.String()
	if text == "" {
		return ""
	}
	first, rest := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[rest:]
}
