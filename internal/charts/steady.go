package charts

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

// instants are the times of the two renderings that are compared. They differ in every part of a time that a template can
// write.
var instants = [2]time.Time{
	time.Date(2001, time.February, 3, 4, 5, 6, 111_111_111, time.UTC),
	time.Date(2012, time.November, 9, 20, 7, 11, 222_222_222, time.UTC),
}

// steady returns functions of templates that depend on their arguments and a time alone. Helm's own may give the same in
// two renderings, and something else later: the day, a small random number, a list in the order of Go's maps.
func steady(at time.Time) template.FuncMap {
	moment := func(date any) time.Time {
		switch date := date.(type) {
		case time.Time:
			return date
		case *time.Time:
			return *date
		case int64:
			return time.Unix(date, 0)
		case int:
			return time.Unix(int64(date), 0)
		case int32:
			return time.Unix(int64(date), 0)
		}
		return at
	}
	in := func(layout string, date any, zone string) string { return dateInZone(layout, moment(date), zone) }
	const day, local = "2006-01-02", "Local"
	same := func(count int) string { return strings.Repeat(strconv.Itoa(at.Second()%10), count) } // 6, and 1
	return template.FuncMap{
		"now":            func() time.Time { return at },
		"date":           func(layout string, date any) string { return in(layout, date, local) },
		"dateInZone":     in,
		"date_in_zone":   in,
		"htmlDate":       func(date any) string { return in(day, date, local) },
		"htmlDateInZone": func(date any, zone string) string { return in(day, date, zone) },
		"ago":            func(date any) string { return at.Sub(moment(date)).Round(time.Second).String() },
		"durationRound": func(duration any) string {
			if since, ok := duration.(time.Time); ok {
				duration = int64(at.Sub(since))
			}
			return durationRound(duration)
		},
		"randAlphaNum": same, "randNumeric": same, "randAscii": same,
		"randAlpha": func(count int) string { return strings.Repeat(string(rune('a'+at.Second()%26)), count) },
		"shuffle": func(text string) string { // another text, unless all characters are the same
			characters := []rune(text)
			n := min(len(characters), at.Second()%2)
			return string(characters[n:]) + string(characters[:n])
		},
		"randInt": func(least, end int) int { return least + int(at.Unix())%(end-least) },
		"keys": func(dicts ...map[string]any) []string {
			all := []string{}
			for _, dict := range dicts {
				all = append(all, slices.Sorted(maps.Keys(dict))...)
			}
			return all
		},
		"values": func(dict map[string]any) []any {
			all := []any{}
			for _, key := range slices.Sorted(maps.Keys(dict)) {
				all = append(all, dict[key])
			}
			return all
		},
	}
}

var (
	dateInZone    = sprig.FuncMap()["dateInZone"].(func(layout string, date any, zone string) string)
	durationRound = sprig.FuncMap()["durationRound"].(func(duration any) string)
)
