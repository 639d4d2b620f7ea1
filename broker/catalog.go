package broker

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pivotal-cf/brokerapi/v10/domain"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// getCatalog answers GET /v2/catalog. The body depends on the platform, the API version and
// the catalog's revision; it is encoded once for each combination.
func (s *server) getCatalog(c *call) (*reply, error) {
	document, err := s.catalogs.get(s.Catalog.Snapshot(), s.Hub, c.platform.Name, c.version, s.Clock.Now)
	if err != nil {
		return nil, err
	}
	header := http.Header{
		"Etag":          {document.tag},
		"Last-Modified": {document.modified},
		"Cache-Control": {"private, no-cache"},
		"Vary":          {"Authorization, " + headerVersion},
	}
	if document.isFresh(c.Request) {
		return &reply{status: http.StatusNotModified, header: header}, nil
	}
	return &reply{status: http.StatusOK, document: document.body, header: header}, nil
}

// catalogDocuments are the encoded bodies of one revision of the catalog.
type catalogDocuments struct {
	mu        sync.RWMutex
	revision  string
	modified  time.Time
	documents map[catalogKey]*catalogDocument
}

type catalogKey struct {
	platform string
	version  version
}

// catalogDocument is one encoded body.
type catalogDocument struct {
	body     []byte
	tag      string // a strong ETag: the digest of the body
	modified string
}

func (d *catalogDocuments) get(snapshot *catalog.Snapshot, hub, platform string, v version, now func() time.Time) (*catalogDocument, error) {
	key := catalogKey{platform, v}
	d.mu.RLock()
	document := d.documents[key]
	current := d.revision == snapshot.Revision()
	d.mu.RUnlock()
	if current && document != nil {
		return document, nil
	}
	body, err := json.Marshal(catalogResponse(snapshot, hub, platform, v))
	if err != nil {
		return nil, fmt.Errorf("encode the catalog: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.documents == nil || d.revision != snapshot.Revision() {
		d.revision, d.documents = snapshot.Revision(), map[catalogKey]*catalogDocument{}
		// Two revisions never have the same second, because HTTP dates have no fractions.
		d.modified = maxTime(now().Truncate(time.Second), d.modified.Add(time.Second))
	}
	sum := sha256.Sum256(body)
	document = &catalogDocument{
		body: body, tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`,
		modified: d.modified.UTC().Format(http.TimeFormat),
	}
	d.documents[key] = document
	return document, nil
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// isFresh reports whether the client already has the document (RFC 9110, section 13.2.2).
// If-Modified-Since counts only if it equals the date that was sent. Replicas learn of a
// revision at different times, so dates do not order revisions.
func (d *catalogDocument) isFresh(r *http.Request) bool {
	if tags := r.Header.Values("If-None-Match"); len(tags) > 0 {
		for tag := range strings.SplitSeq(strings.Join(tags, ","), ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == d.tag {
				return true
			}
		}
		return false
	}
	return r.Header.Get("If-Modified-Since") == d.modified
}

func catalogResponse(snapshot *catalog.Snapshot, hub, platform string, v version) catalogBody {
	body := catalogBody{Services: []serviceBody{}}
	for _, o := range snapshot.Offerings(platform) {
		service := serviceBody{
			Service: domain.Service{
				ID: o.ID, Name: o.Name, Description: o.Description, Tags: o.Tags,
				Bindable: o.Bindable, PlanUpdatable: o.PlanUpdateable,
				InstancesRetrievable: v >= v14, BindingsRetrievable: v >= v14,
				AllowContextUpdates: v >= v15 && o.AllowContextUpdates,
			},
			Metadata: rawOf(o.Metadata),
		}
		for _, permission := range o.Requires {
			service.Requires = append(service.Requires, domain.RequiredPermission(permission))
		}
		if d := o.DashboardClient; d != nil {
			service.DashboardClient = &domain.ServiceDashboardClient{ID: d.ID, Secret: d.Secret, RedirectURI: d.RedirectURI}
		}
		for _, p := range o.Plans {
			service.Plans = append(service.Plans, planResponse(p, snapshot.Facts(p.ID), hub, v))
		}
		body.Services = append(body.Services, service)
	}
	return body
}

func planResponse(p *catalog.Plan, facts *catalog.Facts, hub string, v version) planBody {
	plan := planBody{
		ServicePlan: domain.ServicePlan{
			ID: p.ID, Name: p.Name, Description: p.Description, Free: p.Free, Bindable: p.Bindable,
			PlanUpdatable: since(v15, v, ptr.To(p.IsPlanUpdateable())),
		},
		BindingRotatable: since(v17, v, ptr.To(p.IsBindable() && p.IsBindingRotatable())),
		Metadata:         planMetadata(p, facts, hub),
	}
	if seconds := int(p.MaximumPollingDurationSeconds); v >= v15 && seconds > 0 {
		plan.MaximumPollingDuration = &seconds
	}
	if m := p.MaintenanceInfo; v >= v15 && m != nil {
		plan.MaintenanceInfo = &domain.MaintenanceInfo{Version: m.Version, Description: m.Description}
	}
	create, update, bind := p.Schemas()
	plan.Schemas = &schemasBody{Instance: instanceSchemasBody{Create: schemaBody{create}, Update: schemaBody{update}}}
	if p.IsBindable() {
		plan.Schemas.Binding = &bindingSchemasBody{Create: schemaBody{bind}}
	}
	return plan
}

// planMetadata joins three sources: what only the broker may state, the plan's own fields in the
// form that marketplaces show, and the operator's metadata. If they conflict, the first of these
// wins. hub is the id of the broker's.
func planMetadata(p *catalog.Plan, facts *catalog.Facts, hub string) any {
	metadata := map[string]any{}
	for name, value := range p.OwnMetadata() {
		metadata[name] = value
	}
	if p.DisplayName != "" {
		metadata["displayName"] = p.DisplayName
	}
	if len(p.Bullets) > 0 {
		metadata["bullets"] = p.Bullets
	}
	if len(p.Costs) > 0 {
		metadata["costs"] = costs(p.Costs)
	}
	if p.Withdrawn {
		metadata[v1alpha1.MetadataWithdrawn] = true
	}
	if facts != nil {
		metadata[v1alpha1.MetadataSelfDescriptions] = facts.SelfDescriptions
		metadata[v1alpha1.MetadataProven] = provenBody{facts.EveryCluster, facts.Countries, facts.LabelLevels}
	}
	metadata[v1alpha1.MetadataSluice] = osbclient.Chain{Hub: hub, Behind: p.Behind.Hubs, Depth: p.Behind.Depth + 1}
	return metadata
}

// provenBody sums up the proven facts about the clusters that a plan can use.
type provenBody struct {
	EveryCluster bool     `json:"everyCluster"`
	Countries    []string `json:"countries,omitempty"`
	LabelLevels  []string `json:"labelLevels,omitempty"`
}

func costs(in []v1alpha1.Cost) []domain.ServicePlanCost {
	var out []domain.ServicePlanCost
	for _, cost := range in {
		amount := map[string]float64{}
		for currency, quantity := range cost.Amount {
			amount[currency] = quantity.AsApproximateFloat64()
		}
		out = append(out, domain.ServicePlanCost{Amount: amount, Unit: cost.Unit})
	}
	return out
}
