package console

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// sell serves the catalog of what the hub has.
func (c *consoleOf) sell() {
	c.Helper()
	var offerings v1alpha1.ServiceOfferingList
	var clusters v1alpha1.MemberClusterList
	for _, list := range []client.ObjectList{&offerings, &clusters} {
		if err := c.List(c.Context(), list, client.InNamespace(c.namespace)); err != nil {
			c.Fatal(err)
		}
	}
	snapshot, err := catalog.Build(offerings.Items, clusters.Items, nil, nil)
	if err != nil {
		c.Fatal(err)
	}
	c.catalog.Replace(snapshot)
}

// offering with some plans, which the catalog serves.
func offering(id, description string, plans ...v1alpha1.Plan) *v1alpha1.ServiceOffering {
	o := &v1alpha1.ServiceOffering{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       v1alpha1.ServiceOfferingSpec{ID: id, Name: id, Description: description, Bindable: true, PlanUpdateable: true, Plans: plans},
	}
	o.Status = v1alpha1.ServiceOfferingStatus{Accepted: o.Spec.DeepCopy(), Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, true, "Accepted", "the catalog serves it", time.Hour)}}
	return o
}

// plan of resources.
func plan(id, description, cpu, memory, price string) v1alpha1.Plan {
	p := v1alpha1.Plan{
		ID: id, Name: id, Description: description, Kind: v1alpha1.PlanKindResources,
		Resources: &v1alpha1.ResourcesPlan{Limits: resources(cpu, memory)},
	}
	if price != "" {
		p.Costs = []v1alpha1.Cost{{Amount: map[string]resource.Quantity{"eur": resource.MustParse(price)}, Unit: "MONTHLY"}}
	}
	return p
}

// seed fills the hub with a marketplace in the middle of a working day.
func (c *consoleOf) seed() {
	c.Helper()
	for _, row := range []struct{ name, region, provider, cpu, memory string }{
		{"eu-central-1", "eu-de", "acme", "64", "256Gi"}, {"eu-central-2", "eu-de", "acme", "64", "256Gi"}, {"eu-central-3", "eu-de", "bitfarm", "128", "512Gi"},
		{"eu-west-1", "eu-fr", "nuage", "96", "384Gi"}, {"eu-west-2", "eu-fr", "nuage", "96", "384Gi"}, {"eu-south-1", "eu-it", "nuage", "32", "128Gi"},
		{"us-east-1", "us-va", "acme", "256", "1Ti"}, {"us-west-1", "us-or", "acme", "256", "1Ti"}, {"edge-berlin", "eu-de", "bitfarm", "8", "32Gi"},
	} {
		c.create(cluster(row.name, row.region, row.provider, row.cpu, row.memory))
	}
	lost := cluster("eu-north-2", "eu-se", "nuage", "64", "256Gi")
	lost.Status.Conditions[0] = condition(v1alpha1.ConditionReachable, false, "Unreachable", "Get \"https://eu-north-2.nuage.example:6443/readyz\": dial tcp 192.0.2.17:6443: i/o timeout; three probes in a row", 23*time.Minute)
	lost.Status.Conditions[3] = condition(v1alpha1.ConditionReady, false, "Unreachable", "its API server does not answer: dial tcp 192.0.2.17:6443: i/o timeout", 23*time.Minute)
	v1alpha1.AddEvent(&lost.Status.Events, v1alpha1.Event{At: metav1.NewMicroTime(time.Now().Add(-23 * time.Minute)), Type: v1alpha1.EventLost, Message: "has not answered three times in a row"})
	c.create(lost)
	cordoned := cluster("eu-north-1", "eu-se", "nuage", "64", "256Gi")
	cordoned.Spec.Unschedulable = true
	until := metav1.NewTime(time.Now().Add(5 * 24 * time.Hour))
	cordoned.Status.Claims = []v1alpha1.Claim{{Name: v1alpha1.ClaimDatacenterCountry, Value: "SE", Assurance: v1alpha1.AssuranceCertified, Issuer: "did:web:auditor.example", Credential: "sha256-abc", ExpiresAt: &until}}
	c.create(cordoned)

	large := plan("large", "For production: three replicas over two sites", "4", "16Gi", "89.50")
	large.Schemas = &v1alpha1.PlanSchemas{InstanceCreate: &runtime.RawExtension{Raw: []byte(schema)}}
	c.create(offering("postgresql", "PostgreSQL databases with daily backups", plan("small", "For development: one replica", "1", "4Gi", "19"), large))
	c.create(offering("kubernetes-resources", "A namespace with a quota, on the cluster that suits best", plan("team", "For a team", "16", "64Gi", "")))

	own := offering("acme-vms", "Virtual machines of acme", plan("acme-vms-small", "One core", "1", "2Gi", "4"))
	own.Spec.Provider = "acme"
	c.create(own)

	for n, row := range []struct{ platform, id, plan, on string }{
		{"cf-eu", "orders-db", "large", "eu-central-1"}, {"cf-eu", "billing-db", "large", "eu-central-1"}, {"cf-eu", "search-db", "small", "eu-west-1"},
		{"korifi", "telemetry", "large", "eu-central-3"}, {"korifi", "staging", "small", "eu-central-2"}, {"shop", "inventory", "large", "eu-west-1"},
	} {
		i := instanceOf(row.platform, row.id, row.plan, row.on)
		i.Status.Decision.Placements[0].Reserved = resources(fmt.Sprint(8+7*n), fmt.Sprintf("%dGi", 32+24*n))
		c.create(i)
	}
	waits := instanceOf("cf-eu", "warehouse", "large")
	waits.Status.Delivered = nil
	waits.Status.Decision = nil
	waits.Status.Operation.State, waits.Status.Operation.FinishedAt = v1alpha1.StateInProgress, nil
	waits.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionPlaced, false, v1alpha1.ReasonUnplaceable, "no cluster fits: 3 × InsufficientCPU (eu-south-1: needs 64 cpu, 1.5 free of 32), 2 × Policy (us-east-1: datacenter.country is US)", 11*time.Minute),
		condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonInProgress, "waits for room", 11*time.Minute),
	}
	c.create(waits)
	busy := instanceOf("shop", "sessions", "small", "eu-central-2")
	busy.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonInProgress, "delivering to eu-central-2", 9*time.Second)}
	c.create(busy)

	for _, row := range []struct {
		consumer, provider string
		took               time.Duration
		why                string
	}{
		{"edge-berlin", "eu-central-3", 1800 * time.Microsecond, ""}, {"edge-berlin", "eu-west-1", 21400 * time.Microsecond, ""}, {"us-east-1", "eu-west-1", 91 * time.Millisecond, ""},
		{"eu-central-3", "eu-west-1", 12300 * time.Microsecond, ""}, {"eu-central-3", "eu-south-1", 15 * time.Millisecond, ""}, {"us-east-1", "eu-north-2", 0, "the gateway on eu-north-2 does not answer"},
	} {
		c.peer(row.consumer, row.provider, row.took, row.why)
	}

	issued, ends := since(360*24*time.Hour), metav1.NewTime(time.Now().Add(4*24*time.Hour))
	c.create(&v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BindingName("cf-eu", "orders-db", "shopfront")},
		Spec:       v1alpha1.ServiceBindingSpec{Platform: "cf-eu", InstanceName: v1alpha1.InstanceName("cf-eu", "orders-db"), InstanceID: "orders-db", BindingID: "shopfront", ServiceID: "postgresql", PlanID: "large"},
		Status:     v1alpha1.ServiceBindingStatus{IssuedAt: &issued, ExpiresAt: &ends, Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonExpiring, "the credentials end soon: the platform should fetch the binding", time.Hour)}},
	})
	most := resource.MustParse("3500")
	c.create(&v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "eu-only"},
		Spec: v1alpha1.PlacementPolicySpec{
			Match:   v1alpha1.PolicyMatch{Platforms: []string{"cf-eu", "shop"}},
			Require: []v1alpha1.PolicyRule{{Name: "in-the-eu", Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"EU"}, Assurance: v1alpha1.AssuranceCertified}}},
			Prefer:  []v1alpha1.PolicyPreference{{PolicyRule: v1alpha1.PolicyRule{Name: "near", Expression: `cluster.region.startsWith("eu-de")`}, Weight: 20}},
			Quota:   &v1alpha1.Quota{Per: "organization", Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200")}, Budget: &v1alpha1.Price{Currency: "EUR", PerMonth: &most}},
		},
		Status: v1alpha1.PlacementPolicyStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "", time.Hour)}},
	})
	c.create(&v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "nuage.terms"},
		Spec: v1alpha1.PlacementPolicySpec{
			Provider: "nuage", Require: []v1alpha1.PolicyRule{{Name: "known-customers", Expression: `consumer.organization in ["default"] && regions.contains("eu")`}},
		},
		Status: v1alpha1.PlacementPolicyStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, false, "Invalid", "require[0] known-customers: undeclared reference to 'regions'", 3*time.Hour)}},
	})
	c.create(&v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "acme.terms"},
		Spec:       v1alpha1.PlacementPolicySpec{Provider: "acme", Require: []v1alpha1.PolicyRule{{Name: "friends", Expression: `consumer.organization == "friends"`}}},
		Status:     v1alpha1.PlacementPolicyStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "", time.Hour)}},
	})
	signed, valid := "a.b.c", metav1.NewTime(time.Now().Add(-2*time.Hour))
	c.create(&v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Name: "sd-1"}, Spec: v1alpha1.SelfDescriptionSpec{Credential: signed, Presenter: v1alpha1.Presenter{Provider: "nuage"}},
		Status: v1alpha1.SelfDescriptionStatus{State: v1alpha1.CredentialExpired, Type: "LabelCredential", Issuer: "did:web:compliance.example", ValidUntil: &valid, Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, false, "Expired", "it expired", 2*time.Hour)}},
	})
	soon := metav1.NewTime(time.Now().Add(73 * time.Hour))
	c.create(&v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Name: "sd-city"}, Spec: v1alpha1.SelfDescriptionSpec{Credential: signed, Presenter: v1alpha1.Presenter{Consumer: "city"}},
		Status: v1alpha1.SelfDescriptionStatus{State: v1alpha1.CredentialVerified, Type: "LegalPerson", Issuer: "did:web:city.example", ValidUntil: &soon, Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "", time.Hour)}},
	})
	c.create(&v1alpha1.Consumer{
		ObjectMeta: metav1.ObjectMeta{Name: "city"},
		Spec: v1alpha1.ConsumerSpec{
			Identified: v1alpha1.Identified{DID: "did:web:city.example"}, Orders: []v1alpha1.ConsumerReference{{Platform: "cf-eu", Organization: "city"}, {Platform: "shop"}},
		},
		Status: v1alpha1.ConsumerStatus{
			Claims: []v1alpha1.Claim{
				{Name: v1alpha1.ClaimConsumerCountry, Value: "DE", Assurance: v1alpha1.AssuranceNotary, Issuer: "did:web:notary.example", ExpiresAt: &soon},
				{Name: v1alpha1.ClaimConsumerRegistration, Value: "vatID:DE987654321", Assurance: v1alpha1.AssuranceNotary, Issuer: "did:web:notary.example", ExpiresAt: &soon},
			},
			Report: []v1alpha1.VerificationStep{
				{Step: "references", Result: "passed", Message: "https://city.example/#self"}, {Step: "issuer", Result: "passed", Message: "2 credentials, each by who may issue it"}, {Step: "admit", Result: "passed", Message: "2 claims"},
			},
			Conditions: []metav1.Condition{condition(v1alpha1.ConditionProven, true, v1alpha1.ReasonReady, "2 claims are proven", time.Hour)},
		},
	})
	c.create(&v1alpha1.Consumer{
		ObjectMeta: metav1.ObjectMeta{Name: "lab"}, Spec: v1alpha1.ConsumerSpec{Identified: v1alpha1.Identified{DID: "did:web:lab.example"}, Orders: []v1alpha1.ConsumerReference{{Platform: "korifi"}}},
		Status: v1alpha1.ConsumerStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionProven, false, "NotProven", "references: no LegalPerson of did:web:lab.example", time.Hour)}},
	})
	c.create(&v1alpha1.Journal{ObjectMeta: metav1.ObjectMeta{Name: "5f0a9c1e-1111-4222-8333-123456789abc"}, Spec: v1alpha1.JournalSpec{
		EventSubject: v1alpha1.EventSubject{Kind: v1alpha1.KindServiceInstance, Name: "si-gone", Platform: "cf-eu", InstanceID: "old-db", ServiceID: "postgresql"},
		Events:       []v1alpha1.Event{{Sequence: 9, At: metav1.NewMicroTime(time.Now().Add(-26 * time.Hour)), Type: v1alpha1.EventRemoved, Operation: v1alpha1.OperationDeprovision, PlanID: "small", Clusters: []string{"eu-west-2"}, After: &metav1.Duration{Duration: 12400 * time.Millisecond}}},
	}})
	c.sell()
}
