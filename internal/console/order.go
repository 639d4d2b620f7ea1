package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// ownPlace is the organization and the space of orders that name none, as of the command order.
const ownPlace = "default"

// orderData is the data of the page of an offer, with the form of an order.
type orderData struct {
	*offer
	Form form
}

// form is a form with parameters.
type form struct {
	// Name that was given, and the inputs.
	Name   string
	Fields []field
	// Refused is the reason against the form; empty if it was not sent.
	Refused string
}

// planFor returns the plan that a request names, if the caller's platform may order it.
func (s *server) planFor(c *call) (*offer, error) {
	snapshot := s.Catalog.Snapshot()
	plan, err := snapshot.Plan(c.FormValue("service"), c.FormValue("plan"))
	if err != nil || plan.Offering.Retired || plan.Withdrawn || !plan.VisibleTo(c.caller.Name) {
		return nil, &Error{Status: http.StatusNotFound, Title: "This plan is not offered", Description: "It may have been withdrawn since. The market has all that are."}
	}
	return newOffer(snapshot, plan), nil
}

func (s *server) orderPage(c *call) (*page, error) {
	of, err := s.planFor(c)
	if err != nil {
		return nil, err
	}
	return of.page(nil, ""), nil
}

// page returns the page of an offer, with what was entered and why it was refused.
func (o *offer) page(given url.Values, refused string) *page {
	create, _, _ := o.Schemas()
	p := &page{Title: o.Service + " " + o.Title, template: "order", Data: orderData{o, form{Name: given.Get("name"), Fields: formOf(create, given), Refused: refused}}}
	if refused != "" {
		p.status = http.StatusUnprocessableEntity
	}
	return p
}

// order orders an instance. Its name is its OSB instance id, as of the command order, so that the same form sent twice
// orders once.
func (s *server) order(c *call) (*page, error) {
	if c.ParseForm() != nil {
		return nil, errForm
	}
	of, err := s.planFor(c)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSpace(c.PostForm.Get("name"))
	if name == "" {
		return of.page(c.PostForm, "Name: choose a name for the instance."), nil
	}
	create, _, _ := of.Schemas()
	parameters, err := parametersOf(formOf(create, c.PostForm), c.PostForm)
	if err != nil {
		return of.page(c.PostForm, err.Error()), nil
	}
	client, err := s.osb(c)
	if err != nil {
		return nil, err
	}
	order := osbclient.Order{ServiceID: of.Offering.ID, PlanID: of.ID, OrganizationGUID: ownPlace, SpaceGUID: ownPlace, Parameters: parameters, MaintenanceInfo: maintenance(of.Plan)}
	if _, err := client.Provision(c.Context(), name, order); err != nil {
		if text, ok := refusal(err); ok {
			return of.page(c.PostForm, text), nil
		}
		return nil, err
	}
	return c.seeOther(minePath(v1alpha1.InstanceName(c.caller.Name, name)))
}

func maintenance(p *catalog.Plan) *osbclient.MaintenanceInfo {
	if p.MaintenanceInfo == nil {
		return nil
	}
	return &osbclient.MaintenanceInfo{Version: p.MaintenanceInfo.Version}
}

func minePath(name string) string { return Root + "mine/" + name }

// pretty indents JSON, and returns "" for none.
func pretty(document json.RawMessage) string {
	if len(document) == 0 || string(document) == "null" || string(document) == "{}" {
		return ""
	}
	text := &strings.Builder{}
	out := json.NewEncoder(text)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	var value any
	if decodeLoosely(document, &value) != nil || out.Encode(value) != nil {
		return string(document)
	}
	return strings.TrimSuffix(text.String(), "\n")
}
