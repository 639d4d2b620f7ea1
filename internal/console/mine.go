package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

func (s *server) minePage(c *call) (*page, error) {
	all, err := s.listed(c.Context())
	if err != nil {
		return nil, err
	}
	by := filterOf(c, "state", "text")
	shown, pages := paged(c, slices.DeleteFunc(slices.Clone(all), func(r *instanceRow) bool {
		return r.Platform != c.caller.Name || !by.is("state", r.State.Kind) || !by.has(r.ID, r.Service+"/"+r.Plan)
	}))
	for n, row := range shown { // consumers read what they can act on
		own := *row
		own.State.Reason, own.State.Message = "", row.summary
		shown[n] = &own
	}
	return &page{Title: "My instances", template: "mine", Live: Root + "live", Data: instancesData{Filter: by, Instances: shown, Pages: pages}}, nil
}

// summary returns the text for consumers on the operation of an instance that is not ready; "" if it is.
func summary(i *v1alpha1.ServiceInstance) string {
	if op := i.Status.Operation; op != nil && op.State != v1alpha1.StateSucceeded {
		return op.Summary
	}
	return ""
}

// ownData is the data of a consumer's page of an instance.
type ownData struct {
	Name, ID, Service, Plan, Title string
	Description                    string
	State                          state
	Last                           *v1alpha1.Operation
	// Attributes of the OSB API, which say where it is.
	Attributes []attribute
	Parameters string
	Dashboard  string
	Prices     []string
	Cost       string
	Bindable   bool
	Bindings   []ownBinding
	Bind       form
	Events     []eventRow
	// Ask is set on the page that asks before the instance is deleted.
	Ask bool
}

// attribute is something that the broker says of an instance.
type attribute struct{ Name, Value string }

// ownBinding is a binding as its consumer sees it.
type ownBinding struct {
	bindingRow
	Endpoints []string
	Missing   string
}

// own returns an instance of the caller's platform, and its plan; nil if it is not offered any more.
func (s *server) own(c *call) (*v1alpha1.ServiceInstance, *catalog.Plan, error) {
	name := c.PathValue("name")
	i := &v1alpha1.ServiceInstance{}
	if err := s.get(c.Context(), name, i); err != nil {
		return nil, nil, orNoSuch(err, "instance", name)
	}
	if i.Spec.Platform != c.caller.Name {
		return nil, nil, noSuch("instance", name)
	}
	plan, _ := s.Catalog.Snapshot().Plan(i.Spec.ServiceID, i.Spec.Desired.PlanID)
	return i, plan, nil
}

func (s *server) ownPage(c *call) (*page, error) { return s.showOwn(c, "", false) }

func (s *server) deletePage(c *call) (*page, error) { return s.showOwn(c, "", true) }

// showOwn returns the page of an instance, and why a form of it was refused.
func (s *server) showOwn(c *call, refused string, ask bool) (*page, error) {
	i, plan, err := s.own(c)
	if err != nil {
		return nil, err
	}
	data := ownData{Name: i.Name, ID: i.Spec.InstanceID, State: instanceState(i), Last: i.Status.Operation, Ask: ask, Bindable: plan != nil && plan.IsBindable()}
	data.State.Message = summary(i)
	data.Service, data.Plan = s.planOf(i)
	data.Cost = costOf(i)
	if plan != nil {
		data.Prices, data.Description = prices(plan.Costs), plan.Description
		_, _, bind := plan.Schemas()
		data.Bind = form{Name: c.PostForm.Get("binding"), Fields: formOf(bind, c.PostForm), Refused: refused}
	} else {
		data.Bind.Refused = refused
	}
	if err := s.describeOwn(c, i, &data); err != nil {
		return nil, err
	}
	if data.Bindings, err = s.ownBindings(c, i); err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(i.Status.Events) {
		row := newEventRow(e)
		row.Clusters, row.Message = nil, "" // for operators
		data.Events = append(data.Events, row)
	}
	p := &page{Title: i.Spec.InstanceID, template: "own", Live: Root + "live?instance=" + i.Name, Data: data}
	if refused != "" {
		p.status = http.StatusUnprocessableEntity
	}
	return p, nil
}

// describeOwn adds what the OSB API says of an instance; while an operation is under way, it says nothing.
func (s *server) describeOwn(c *call, i *v1alpha1.ServiceInstance, data *ownData) error {
	client, err := s.osb(c)
	if err != nil {
		return err
	}
	fetched, err := client.FetchInstance(c.Context(), i.Spec.InstanceID, i.Spec.ServiceID, i.Spec.Desired.PlanID)
	if err != nil {
		if _, ok := refusal(err); ok {
			return nil
		}
		return err
	}
	data.Parameters, data.Dashboard = pretty(fetched.Parameters), fetched.DashboardURL
	for _, name := range slices.Sorted(maps.Keys(fetched.Metadata.Attributes)) {
		data.Attributes = append(data.Attributes, attribute{name, fmt.Sprint(fetched.Metadata.Attributes[name])})
	}
	return nil
}

// costOf returns the price of what is delivered; "" if there is none, or in several currencies.
func costOf(i *v1alpha1.ServiceInstance) string {
	d := i.Status.DeliveredDecision()
	if d == nil {
		return ""
	}
	var sum resource.Quantity
	currency := ""
	for _, p := range d.Placements {
		if p.PricePerHour == nil || currency != "" && p.Currency != currency {
			return ""
		}
		currency = p.Currency
		sum.Add(*p.PricePerHour)
	}
	if currency == "" {
		return ""
	}
	return money(sum, currency) + " an hour"
}

func (s *server) ownBindings(c *call, i *v1alpha1.ServiceInstance) (shown []ownBinding, err error) {
	rows, err := s.bindingsOf(c, i)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		one := ownBinding{bindingRow: row, Missing: row.of.Status.EndpointsAbsent}
		one.State.Message = ""
		if op := row.of.Status.Operation; op != nil && op.State != v1alpha1.StateSucceeded {
			one.State.Message = op.Description
		}
		for _, e := range row.of.Status.Endpoints {
			one.Endpoints = append(one.Endpoints, fmt.Sprintf("%s:%s %s", e.Host, strings.Join(e.Ports, ","), e.Protocol))
		}
		shown = append(shown, one)
	}
	return shown, nil
}

// act does something with an instance by the OSB API, and then shows the page that leads from it, by default its own.
func (s *server) act(c *call, then string, do func(client *osbclient.Client, i *v1alpha1.ServiceInstance, plan *catalog.Plan) error) (*page, error) {
	if c.ParseForm() != nil {
		return nil, errForm
	}
	i, plan, err := s.own(c)
	if err != nil {
		return nil, err
	}
	client, err := s.osb(c)
	if err != nil {
		return nil, err
	}
	err = do(client, i, plan)
	if text, ok := refusal(err); ok {
		return s.showOwn(c, text, false)
	}
	if malformed := (*formError)(nil); errors.As(err, &malformed) {
		return s.showOwn(c, malformed.text, false)
	}
	if err != nil {
		return nil, err
	}
	return c.seeOther(cmp.Or(then, minePath(i.Name)))
}

// formError is something that a form lacks.
type formError struct{ text string }

func (e *formError) Error() string { return e.text }

func (s *server) bind(c *call) (*page, error) {
	return s.act(c, "", func(client *osbclient.Client, i *v1alpha1.ServiceInstance, plan *catalog.Plan) error {
		id := strings.TrimSpace(c.PostForm.Get("binding"))
		if id == "" || plan == nil {
			return &formError{"Name: choose a name for the binding."}
		}
		_, _, schema := plan.Schemas()
		parameters, err := parametersOf(formOf(schema, c.PostForm), c.PostForm)
		if err != nil {
			return &formError{err.Error()}
		}
		_, _, err = client.Bind(c.Context(), i.Spec.InstanceID, id, osbclient.BindOrder{ServiceID: i.Spec.ServiceID, PlanID: plan.ID, Parameters: parameters}, true)
		return err
	})
}

func (s *server) unbind(c *call) (*page, error) {
	return s.act(c, "", func(client *osbclient.Client, i *v1alpha1.ServiceInstance, _ *catalog.Plan) error {
		_, err := client.Unbind(c.Context(), i.Spec.InstanceID, c.PostForm.Get("binding"), i.Spec.ServiceID, i.Spec.Desired.PlanID, nil, true)
		return err
	})
}

func (s *server) remove(c *call) (*page, error) {
	return s.act(c, Root+"mine", func(client *osbclient.Client, i *v1alpha1.ServiceInstance, _ *catalog.Plan) error {
		_, err := client.Deprovision(c.Context(), i.Spec.InstanceID, i.Spec.ServiceID, i.Spec.Desired.PlanID, nil)
		return err
	})
}

// credentialsData is the data of the page that shows the credentials of a binding.
type credentialsData struct {
	Name, ID, Binding string
	Credentials       []attribute
}

// credentials shows what a binding gives to an application, on demand: it answers a form, so no address leads to it.
func (s *server) credentials(c *call) (*page, error) {
	var shown *page
	answered, err := s.act(c, "", func(client *osbclient.Client, i *v1alpha1.ServiceInstance, _ *catalog.Plan) error {
		id := c.PostForm.Get("binding")
		bound, err := client.FetchBinding(c.Context(), i.Spec.InstanceID, id, i.Spec.ServiceID, i.Spec.Desired.PlanID)
		if err != nil {
			return err
		}
		var values map[string]json.RawMessage
		if err := json.Unmarshal(bound.Credentials.Reveal(), &values); err != nil && len(bound.Credentials.Reveal()) > 0 {
			return fmt.Errorf("read the credentials: %w", err)
		}
		data := credentialsData{Name: i.Name, ID: i.Spec.InstanceID, Binding: id}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			text := plainText(values[name])
			if text == string(values[name]) {
				text = pretty(values[name])
			}
			data.Credentials = append(data.Credentials, attribute{name, text})
		}
		shown = &page{Title: "Credentials of " + id, template: "credentials", Data: data}
		return errShown
	})
	if shown != nil {
		return shown, nil
	}
	return answered, err
}

// errShown ends an act that shows a page of its own.
var errShown = errors.New("a page of its own is shown")
