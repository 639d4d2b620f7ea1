package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// storedOffer is an offering of a provider, as the market has it.
type storedOffer struct {
	ID     string          `json:"id"`
	ETag   string          `json:"etag"`
	Spec   json.RawMessage `json:"spec"`
	Status struct {
		State, Message string
	} `json:"status"`
}

// offerRow is an offering of a provider in a list.
type offerRow struct {
	ID, Name, Description string
	State                 state
	Plans                 []offeredPlan
}

// offeredPlan is a plan, its prices, and how many instances of it there are.
type offeredPlan struct {
	Name, Description string
	Prices            []string
	Sold              int
}

// offerStates are the states that the market tells, as they are shown.
var offerStates = map[string]state{
	"served": {Kind: "good", Word: "On sale"}, "refused": {Kind: "bad", Word: "Refused"}, "pending": {Kind: "busy", Word: "Being checked"}, "deleting": {Kind: "off", Word: "Ending"},
}

// offersPage shows a provider its offerings.
func (s *server) offersPage(c *call) (*page, error) {
	var stored struct{ Offerings []storedOffer }
	if refused, err := s.market(c, http.MethodGet, "offerings", nil, &stored); err != nil || refused != "" {
		return nil, orRefused(err, "Your offers cannot be read", refused)
	}
	instances, err := s.instances(c.Context(), func(*v1alpha1.ServiceInstance) bool { return true })
	if err != nil {
		return nil, err
	}
	sold := map[[2]string]int{} // by the ids of service and plan
	for _, i := range instances {
		sold[[2]string{i.Spec.ServiceID, i.Spec.Desired.PlanID}]++
	}
	rows := make([]offerRow, len(stored.Offerings))
	for i, o := range stored.Offerings {
		var spec v1alpha1.ServiceOfferingSpec
		if err := json.Unmarshal(o.Spec, &spec); err != nil {
			return nil, err
		}
		rows[i] = offerRow{ID: o.ID, Name: spec.Name, Description: spec.Description, State: offerStates[o.Status.State]}
		rows[i].State.Message = o.Status.Message
		for _, p := range spec.Plans {
			rows[i].Plans = append(rows[i].Plans, offeredPlan{p.Name, p.Description, prices(p.Costs), sold[[2]string{spec.ID, p.ID}]})
		}
	}
	shown, pages := paged(c, rows)
	return &page{Title: "My offers", template: "offers", Data: struct {
		Offers []offerRow
		Pages  pager
	}{shown, pages}}, nil
}

// offerData is the data of the page on which a provider writes an offering.
type offerData struct {
	// ID of what is changed, and its ETag; empty for a new offering.
	ID, ETag string
	// Text is the spec, as YAML.
	Text string
	// Refused says why nothing was done.
	Refused string
}

// exampleOffer is the text with which the form of a new offering of a provider begins.
const exampleOffer = `# By the id, platforms know it for ever; the name is what they
# show. Both are yours alone in this market.
id: PROVIDER-namespaces
name: PROVIDER-namespaces
description: A namespace with a quota on a cluster of PROVIDER.
plans:
- id: PROVIDER-namespaces-small
  name: small
  description: Two cores and 4 GiB of memory.
  kind: resources
  costs:
  - {amount: {eur: "9.50"}, unit: MONTHLY}
  resources:
    limits: {cpu: "2", memory: 4Gi}
`

// offerPage shows the form of an offering: a new one, or the one that the address names.
func (s *server) offerPage(c *call) (*page, error) {
	id := c.URL.Query().Get("offer")
	if id == "" {
		return offerPageOf(offerData{Text: strings.ReplaceAll(exampleOffer, "PROVIDER", c.caller.Name)}), nil
	}
	var stored storedOffer
	if refused, err := s.market(c, http.MethodGet, offerPath(id), nil, &stored); err != nil || refused != "" {
		return nil, orRefused(err, "There is no such offer of yours", refused)
	}
	text, err := yaml.JSONToYAML(stored.Spec)
	if err != nil {
		return nil, err
	}
	return offerPageOf(offerData{ID: id, ETag: stored.ETag, Text: string(text)}), nil
}

func offerPath(id string) string { return "offerings/" + url.PathEscape(id) }

func offerPageOf(data offerData) *page {
	shown := &page{Title: "Write an offer", template: "offer", Data: data}
	if data.ID != "" {
		shown.Title = "Offer " + data.ID
	}
	if data.Refused != "" {
		shown.status = http.StatusUnprocessableEntity
	}
	return shown
}

// writeOffer saves what was written.
func (s *server) writeOffer(c *call) (*page, error) {
	if c.ParseForm() != nil {
		return nil, errForm
	}
	data := offerData{ID: c.PostForm.Get("offer"), ETag: c.PostForm.Get("etag"), Text: strings.ReplaceAll(c.PostForm.Get("text"), "\r\n", "\n")}
	var spec v1alpha1.ServiceOfferingSpec
	switch err := strictjson.DecodeYAML([]byte(data.Text), &spec); {
	case err != nil:
		data.Refused = err.Error() + "."
	case spec.ID == "":
		data.Refused = "id: choose one; it never changes."
	case data.ID != "" && spec.ID != data.ID:
		data.Refused = "id: want " + data.ID + "; another id is another offer."
	default:
		asWritten, err := yaml.YAMLToJSON([]byte(data.Text)) // what is left out has the market's defaults
		if err != nil {
			return nil, err
		}
		if data.Refused, err = s.marketIf(c, data.ETag, http.MethodPut, offerPath(spec.ID), json.RawMessage(asWritten), nil); err != nil {
			return nil, err
		}
	}
	if data.Refused != "" {
		return offerPageOf(data), nil
	}
	return c.seeOther(Root + "offers")
}

// removeOffer ends an offering.
func (s *server) removeOffer(c *call) (*page, error) {
	return s.removeOwn(c, "offer", offerPath, "The offer was not ended", "offers")
}

// removeOwn removes what a field of the form names, by its path in the market, if it has the ETag of the form, and shows a
// section afterwards.
func (s *server) removeOwn(c *call, field string, path func(string) string, refusal, section string) (*page, error) {
	if c.ParseForm() != nil {
		return nil, errForm
	}
	refused, err := s.marketIf(c, c.PostForm.Get("etag"), http.MethodDelete, path(c.PostForm.Get(field)), nil, nil)
	if err != nil {
		return nil, err
	}
	if refused != "" {
		return nil, &Error{Status: http.StatusConflict, Title: refusal, Description: refused}
	}
	return c.seeOther(Root + section)
}

// orRefused is an error, or a page that says what the market has refused.
func orRefused(err error, title, refused string) error {
	if err != nil {
		return err
	}
	return &Error{Status: http.StatusNotFound, Title: title, Description: refused}
}
