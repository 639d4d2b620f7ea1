package databases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"code.cloudfoundry.org/lager/v3"
	"github.com/pivotal-cf/brokerapi/v10"
	"github.com/pivotal-cf/brokerapi/v10/domain"
	"github.com/pivotal-cf/brokerapi/v10/domain/apiresponses"
)

// usual is the number of connections of a login if an order gives none.
const usual = 4

// plans of the service, with the most connections of a login.
var plans = []struct {
	name string
	most int
}{{"small", 10}, {"large", 100}}

// broker sells databases on a server. One request after the other is carried out, and to its end, even if nobody waits
// for the answer any more.
type broker struct {
	*Server
	mu sync.Mutex
}

// NewBroker returns an OSB broker that sells databases on a server: one service, named as the engine, with the plans
// small and large. All operations are synchronous. The engine's Limit is the only parameter: the connections of each
// login, for bindings that are made after it is set.
func NewBroker(on *Server, username, password string) http.Handler {
	return brokerapi.New(&broker{Server: on}, lager.NewLogger(on.engine.Name), brokerapi.BrokerCredentials{Username: username, Password: password})
}

func (b *broker) Services(context.Context) ([]domain.Service, error) {
	service := domain.Service{
		ID: b.engine.Name, Name: b.engine.Name, Description: "A database of " + b.engine.Name, Bindable: true, InstancesRetrievable: true, PlanUpdatable: true,
	}
	for _, plan := range plans {
		takes := domain.Schema{Parameters: map[string]any{
			"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
			"properties": map[string]any{b.engine.Limit: map[string]any{"type": "integer", "minimum": 1, "maximum": plan.most, "default": usual}},
		}}
		service.Plans = append(service.Plans, domain.ServicePlan{
			ID: b.engine.Name + "-" + plan.name, Name: plan.name, Description: fmt.Sprint("At most ", plan.most, " connections a login"),
			Schemas: &domain.ServiceSchemas{Instance: domain.ServiceInstanceSchema{Create: takes, Update: takes}},
		})
	}
	return []domain.Service{service}, nil
}

// wanted returns the number of connections that an order asks for.
func (b *broker) wanted(service, plan string, parameters json.RawMessage) (int, error) {
	bad := func(format string, of ...any) error {
		return apiresponses.NewFailureResponse(fmt.Errorf(format, of...), http.StatusBadRequest, "bad-request")
	}
	for _, p := range plans {
		if service != b.engine.Name || plan != b.engine.Name+"-"+p.name {
			continue
		}
		given := map[string]int{b.engine.Limit: usual}
		if len(parameters) > 0 {
			if err := json.NewDecoder(bytes.NewReader(parameters)).Decode(&given); err != nil {
				return 0, bad("parameters: %w", err)
			}
		}
		connections := given[b.engine.Limit]
		if len(given) > 1 || connections < 1 || connections > p.most {
			return 0, bad("parameters: want %s from 1 to %d", b.engine.Limit, p.most)
		}
		return connections, nil
	}
	return 0, bad("service_id, plan_id: %s has no plan %s", service, plan)
}

func (b *broker) Provision(ctx context.Context, id string, order domain.ProvisionDetails, _ bool) (domain.ProvisionedServiceSpec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	said := domain.ProvisionedServiceSpec{DashboardURL: b.dashboard(id)}
	connections, err := b.wanted(order.ServiceID, order.PlanID, order.RawParameters)
	if err != nil {
		return said, err
	}
	login := Login{Database: DatabaseOf(id)}
	switch has, err := b.connections(ctx, login.Database); {
	case err != nil:
		return said, err
	case has == connections:
		said.AlreadyExists = true
		return said, nil
	case has > 0:
		return said, apiresponses.ErrInstanceAlreadyExists
	}
	if err := b.carryOut(ctx, false, b.engine.addDatabase, login, connections); err != nil {
		return said, errors.Join(err, b.carryOut(ctx, false, b.engine.dropDatabase, login, 0))
	}
	return said, nil
}

// dashboard returns the URL at which users would look at their database.
func (b *broker) dashboard(id string) string {
	return "https://" + b.engine.Name + ".example/databases/" + DatabaseOf(id)
}

// there returns the login of a binding of an instance, whether it is there or not, and the number of connections that
// it may have. The error is OSB's if there is no instance.
func (b *broker) there(ctx context.Context, instance, binding string) (Login, int, error) {
	login := b.login(DatabaseOf(instance), binding)
	connections, err := b.connections(ctx, login.Database)
	if err == nil && connections == 0 {
		err = apiresponses.ErrInstanceDoesNotExist
	}
	return login, connections, err
}

func (b *broker) Update(ctx context.Context, id string, change domain.UpdateDetails, _ bool) (domain.UpdateServiceSpec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	login, _, err := b.there(ctx, id, "")
	if err != nil {
		return domain.UpdateServiceSpec{}, err
	}
	if change.PlanID == "" {
		change.PlanID = change.PreviousValues.PlanID
	}
	connections, err := b.wanted(change.ServiceID, change.PlanID, change.RawParameters)
	if err != nil {
		return domain.UpdateServiceSpec{}, err
	}
	return domain.UpdateServiceSpec{DashboardURL: b.dashboard(id)}, b.carryOut(ctx, false, b.engine.setLimit, login, connections)
}

func (b *broker) Deprovision(ctx context.Context, id string, _ domain.DeprovisionDetails, _ bool) (domain.DeprovisionServiceSpec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	login, _, err := b.there(ctx, id, "")
	if err != nil {
		return domain.DeprovisionServiceSpec{}, err
	}
	return domain.DeprovisionServiceSpec{}, b.carryOut(ctx, false, b.engine.dropDatabase, login, 0)
}

func (b *broker) GetInstance(ctx context.Context, id string, _ domain.FetchInstanceDetails) (domain.GetInstanceDetailsSpec, error) {
	_, connections, err := b.there(ctx, id, "")
	if err != nil {
		return domain.GetInstanceDetailsSpec{}, apiresponses.NewFailureResponse(err, http.StatusNotFound, "get-instance")
	}
	return domain.GetInstanceDetailsSpec{
		ServiceID: b.engine.Name, DashboardURL: b.dashboard(id), Parameters: map[string]int{b.engine.Limit: connections},
	}, nil
}

func (b *broker) Bind(ctx context.Context, instance, binding string, _ domain.BindDetails, _ bool) (domain.Binding, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	login, connections, err := b.there(ctx, instance, binding)
	if err != nil {
		return domain.Binding{}, err
	}
	exists, err := b.hasLogin(ctx, login)
	if err != nil || exists {
		return domain.Binding{AlreadyExists: true, Credentials: login}, err
	}
	if err := b.carryOut(ctx, true, b.engine.addLogin, login, connections); err != nil {
		return domain.Binding{}, errors.Join(err, b.carryOut(ctx, true, b.engine.dropLogin, login, 0))
	}
	return domain.Binding{Credentials: login}, nil
}

func (b *broker) Unbind(ctx context.Context, instance, binding string, _ domain.UnbindDetails, _ bool) (domain.UnbindSpec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	login := b.login(DatabaseOf(instance), binding)
	exists, err := b.hasLogin(ctx, login)
	if err == nil && !exists {
		err = apiresponses.ErrBindingDoesNotExist
	}
	if err != nil {
		return domain.UnbindSpec{}, err
	}
	return domain.UnbindSpec{}, b.carryOut(ctx, true, b.engine.dropLogin, login, 0)
}

// errSynchronous answers requests for operations: there are none.
var errSynchronous = apiresponses.NewFailureResponse(errors.New("all operations are synchronous"), http.StatusNotFound, "last-operation")

func (b *broker) LastOperation(context.Context, string, domain.PollDetails) (domain.LastOperation, error) {
	return domain.LastOperation{}, errSynchronous
}

func (b *broker) LastBindingOperation(context.Context, string, string, domain.PollDetails) (domain.LastOperation, error) {
	return domain.LastOperation{}, errSynchronous
}

func (b *broker) GetBinding(context.Context, string, string, domain.FetchBindingDetails) (domain.GetBindingSpec, error) {
	return domain.GetBindingSpec{}, apiresponses.NewFailureResponse(errors.New("bindings cannot be fetched"), http.StatusNotFound, "get-binding")
}
