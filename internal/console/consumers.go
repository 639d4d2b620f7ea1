package console

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// consumerRow is a consumer, and what it has proven.
type consumerRow struct {
	*v1alpha1.Consumer
	State state
	// Orders are whose orders are the consumer's own.
	Orders []string
	// Credentials that it has presented.
	Credentials []credentialRow
}

// consumersPage shows who has proven what, those who have not first.
func (s *server) consumersPage(c *call) (*page, error) {
	var all v1alpha1.ConsumerList
	var credentials v1alpha1.SelfDescriptionList
	if err := s.list(c.Context(), &all); err != nil {
		return nil, err
	}
	if err := s.list(c.Context(), &credentials); err != nil {
		return nil, err
	}
	rows := make([]*consumerRow, len(all.Items))
	for i := range all.Items {
		rows[i] = consumerRowOf(&all.Items[i])
	}
	slices.SortFunc(rows, func(a, b *consumerRow) int {
		return cmp.Or(rankOf(a.State)-rankOf(b.State), strings.Compare(a.Name, b.Name))
	})
	shown, pages := paged(c, rows)
	byName := map[string]*consumerRow{}
	for _, row := range shown {
		byName[row.Name] = row
	}
	for i := range credentials.Items {
		d := &credentials.Items[i]
		if of := byName[d.Spec.Consumer]; of != nil {
			of.Credentials = append(of.Credentials, credentialRowOf(d))
		}
	}
	for _, row := range shown {
		sortCredentials(row.Credentials)
	}
	return &page{Title: "Consumers", template: "consumers", Data: struct {
		Consumers []*consumerRow
		Pages     pager
	}{shown, pages}}, nil
}

func consumerRowOf(of *v1alpha1.Consumer) *consumerRow {
	row := &consumerRow{Consumer: of, State: stateBy(v1alpha1.ConditionProven, of.Status.Conditions, v1alpha1.CreatedOf(of))}
	switch row.State.Kind {
	case "good":
		row.State.Word = "Proven"
	case "bad":
		row.State.Word = "Not proven"
	}
	for _, orders := range of.Spec.Orders {
		text := "platform " + orders.Platform
		if orders.Organization != "" {
			text += ", organization " + orders.Organization
		}
		if orders.Space != "" {
			text += ", space " + orders.Space
		}
		row.Orders = append(row.Orders, text)
	}
	return row
}
