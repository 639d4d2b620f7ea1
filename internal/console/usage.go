package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/internal/usage"
)

// usageData is the data of the page of usage.
type usageData struct {
	// Month as YYYY-MM, and those that can be chosen, the present one first.
	Month  string
	Months []string
	Sums   []usageRow
	Totals []string
	Pages  pager
}

// usageRow is the usage of an instance in a month, in one currency.
type usageRow struct {
	Service, Plan, Instance string
	// Time that it was there: of an instance on two clusters, both count.
	Time, Cost string
}

// monthsShown is how many months can be chosen.
const monthsShown = 13

// usagePage shows what the OSB API answers at GET /usage.
func (s *server) usagePage(c *call) (*page, error) {
	now := s.Clock.Now().UTC()
	data := usageData{Month: now.Format("2006-01")}
	for n := range monthsShown {
		data.Months = append(data.Months, time.Date(now.Year(), now.Month()-time.Month(n), 1, 0, 0, 0, 0, time.UTC).Format("2006-01"))
	}
	if asked := c.URL.Query().Get("month"); slices.Contains(data.Months, asked) {
		data.Month = asked
	}
	query := url.Values{"month": {data.Month}, "by": {string(usage.ByPlan) + "," + string(usage.ByInstance)}}
	answer, err := c.ask(s.OSB, http.MethodGet, "/usage?"+query.Encode(), nil, http.Header{"X-Broker-Api-Version": {"2.17"}})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // it is in memory
	var said struct {
		Description string `json:"description"`
		Usage       []struct {
			Service, Plan, Instance, Cost, Currency string
			Seconds                                 int64
		} `json:"usage"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the usage: %s %s: %w", answer.Status, said.Description, err)
	}
	rows := make([]usageRow, len(said.Usage))
	for i, u := range said.Usage {
		rows[i] = usageRow{Service: u.Service, Plan: u.Plan, Instance: u.Instance, Time: long(time.Duration(u.Seconds) * time.Second)}
		if u.Currency != "" {
			rows[i].Cost = u.Cost + " " + u.Currency
		}
	}
	slices.SortStableFunc(rows, func(a, b usageRow) int { return strings.Compare(a.Instance, b.Instance) })
	data.Totals = totals(said.Usage, func(i int) (string, string) { return said.Usage[i].Cost, said.Usage[i].Currency })
	data.Sums, data.Pages = paged(c, rows)
	return &page{Title: "Usage", template: "usage", Data: data}, nil
}
