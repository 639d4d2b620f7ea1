package console

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// supplyData is the data of a provider's page of its clusters.
type supplyData struct {
	All      groupRow
	Earns    []string
	Clusters []*clusterRow
	Pages    pager
	// Joining clusters, on which nothing is sold yet; May says whether the provider may invite more.
	Joining []joinRow
	May     bool
}

// supplyPage shows a provider its clusters.
func (s *server) supplyPage(c *call) (*page, error) {
	f, err := s.fleet(c.Context())
	if err != nil {
		return nil, err
	}
	var data supplyData
	var own []*clusterRow
	earned := earnings{}
	for _, row := range f.clusters {
		if row.Provider == c.caller.Name {
			own = append(own, row)
			data.All.add(row)
			earned.addAll(row.earned)
		}
	}
	if data.Joining, data.May, err = s.joining(c, own); err != nil {
		return nil, err
	}
	data.Earns = earned.texts()
	data.Clusters, data.Pages = paged(c, own)
	return &page{Title: "My clusters", template: "supply", Live: Root + "live", Data: data}, nil
}

// heldRow describes the part of an instance on a cluster for the cluster's provider: the namespace by which to find it
// there, and nothing of its owner.
type heldRow struct {
	Namespace, Service, Plan string
	Reserved                 []string
	Price                    string
	Since                    any
}

// heldOn returns what the instances on a cluster have there, until they are removed there.
func (s *server) heldOn(cluster string, instances []*v1alpha1.ServiceInstance) (rows []heldRow) {
	for _, i := range instances {
		for _, p := range i.Status.Everywhere() {
			if p.Cluster == cluster {
				row := heldRow{Namespace: v1alpha1.MemberNamespace(i.Name), Reserved: amounts(p.Reserved), Price: perHour(p.PricePerHour, p.Currency), Since: v1alpha1.CreatedOf(i)}
				row.Service, row.Plan = s.planOf(i)
				rows = append(rows, row)
				break
			}
		}
	}
	return rows
}

// credentialRow is a credential, and how its verification went.
type credentialRow struct {
	*v1alpha1.SelfDescription
	State state
	Steps []v1alpha1.VerificationStep
}

func credentialRowOf(d *v1alpha1.SelfDescription) credentialRow {
	row := credentialRow{SelfDescription: d, State: stateOf(d.Status.Conditions, v1alpha1.CreatedOf(d)), Steps: d.Status.Report}
	if d.Status.State != "" {
		row.State.Word = strings.ToUpper(string(d.Status.State[:1])) + string(d.Status.State[1:])
	}
	return row
}

// sortCredentials puts those that do not hold first.
func sortCredentials(rows []credentialRow) {
	slices.SortFunc(rows, func(a, b credentialRow) int {
		return cmp.Or(rankOf(a.State)-rankOf(b.State), strings.Compare(a.Status.Type+a.Name, b.Status.Type+b.Name))
	})
}

// credentialsPage shows a provider its credentials, those that do not hold first.
func (s *server) credentialsPage(c *call) (*page, error) {
	var all v1alpha1.SelfDescriptionList
	if err := s.list(c.Context(), &all); err != nil {
		return nil, err
	}
	var rows []credentialRow
	for i := range all.Items {
		d := &all.Items[i]
		if d.Spec.Provider != c.caller.Name {
			continue
		}
		rows = append(rows, credentialRowOf(d))
	}
	sortCredentials(rows)
	shown, pages := paged(c, rows)
	return &page{Title: "Credentials", template: "papers", Data: struct {
		Credentials []credentialRow
		Pages       pager
	}{shown, pages}}, nil
}

// owns reports whether the caller may see what belongs to a provider.
func (c *call) owns(provider string) bool {
	return c.caller.Role == access.Operator || c.caller.Role == access.Provider && provider == c.caller.Name
}
