package catalog

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const provenUntil = "2027-02-01T00:00:00Z"

// proven returns an admitted cluster in a country, with its own provider, and with claims
// about country and label that rest on the given credentials.
func proven(name, country, label string, rests ...v1alpha1.SelfDescription) v1alpha1.MemberCluster {
	c := v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Region, c.Spec.Provider = country, name
	c.Spec.Trust = &v1alpha1.TrustRequirements{Offering: "https://" + name + ".example/offering"}
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAdmitted, Status: metav1.ConditionTrue}}
	values := map[string]string{v1alpha1.ClaimDatacenterCountry: country, v1alpha1.ClaimLabel: label}
	for _, claim := range []string{v1alpha1.ClaimDatacenterCountry, v1alpha1.ClaimLabel} {
		for _, credential := range rests {
			if values[claim] != "" {
				c.Status.Claims = append(c.Status.Claims, v1alpha1.Claim{Name: claim, Value: values[claim], Credential: digestSRI(&credential)})
			}
		}
	}
	return c
}

// credential of a provider in the hub.
func credential(n byte, subjectType, subject, provider string, state v1alpha1.CredentialState) v1alpha1.SelfDescription {
	until, err := time.Parse(time.RFC3339, provenUntil)
	if err != nil {
		panic(err)
	}
	c := v1alpha1.SelfDescription{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SelfDescriptionName([32]byte{n})}}
	c.Spec.Provider = provider
	c.Status = v1alpha1.SelfDescriptionStatus{
		Type: subjectType, Subject: subject, Issuer: "did:web:" + provider + ".example", State: state, ValidUntil: &metav1.Time{Time: until},
	}
	return c
}

func offeringOf(n byte, provider string) v1alpha1.SelfDescription {
	return credential(n, "ComputeServiceOffering", "https://"+provider+".example/offering", provider, v1alpha1.CredentialVerified)
}

func TestFactsLinkTheOfferingAndWhatItsClaimsRestOn(t *testing.T) {
	center := credential(2, "Datacenter", "https://rhein.example/datacenter", "rhein", v1alpha1.CredentialVerified)
	center.Status.Countries = []string{"DE"}
	e := newEvidence([]v1alpha1.MemberCluster{proven("rhein", "DE", "L1", center)}, []v1alpha1.SelfDescription{
		center, offeringOf(1, "rhein"),
		credential(3, "LegalPerson", "https://rhein.example/person", "rhein", v1alpha1.CredentialVerified),              // no claim rests on it
		credential(4, "ComputeServiceOffering", "https://rhein.example/offering", "thief", v1alpha1.CredentialVerified), // another provider's credential
		credential(5, "ComputeServiceOffering", "https://rhein.example/offering", "rhein", v1alpha1.CredentialExpired),  // expired
	})
	want := &Facts{
		EveryCluster: true, Countries: []string{"DE"}, LabelLevels: []string{"L1"},
		SelfDescriptions: []SelfDescription{
			{
				Type: "ComputeServiceOffering", Href: "/selfdescriptions/" + hexDigest(1), MediaType: "application/vc+jwt",
				DigestSRI: digestSRI(ptr(offeringOf(1, "rhein"))), Issuer: "did:web:rhein.example", ValidUntil: provenUntil,
				Verification: "verified", Countries: []string{"DE"}, LabelLevel: "L1",
			},
			{
				Type: "Datacenter", Href: "/selfdescriptions/" + hexDigest(2), MediaType: "application/vc+jwt",
				DigestSRI: digestSRI(&center), Issuer: "did:web:rhein.example", ValidUntil: provenUntil, Verification: "verified", Countries: []string{"DE"},
			},
		},
	}
	if diff := cmp.Diff(want, e.facts(firstPlan(t))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFactsShowTheRangeOfThePlansClusters(t *testing.T) {
	credentials := []v1alpha1.SelfDescription{offeringOf(1, "rhein"), offeringOf(2, "liberty"), offeringOf(3, "pending")}
	out := proven("pending", "FR", "")
	out.Status.Conditions[0].Status = metav1.ConditionFalse
	clusters := []v1alpha1.MemberCluster{
		proven("rhein", "DE", "L1", credentials[0]), proven("liberty", "US", "SC", credentials[1]), out,
		{ObjectMeta: metav1.ObjectMeta{Name: "of-nobody"}, Spec: v1alpha1.MemberClusterSpec{Region: "of-nobody"}},
	}
	// No instance is ever on these: management clusters, brokers, consumers' own, and what is being removed.
	for _, never := range []func(*v1alpha1.MemberCluster){
		func(c *v1alpha1.MemberCluster) { c.Spec.Driver = v1alpha1.DriverCAPI }, func(c *v1alpha1.MemberCluster) { c.Spec.Driver = v1alpha1.DriverOSB },
		func(c *v1alpha1.MemberCluster) { c.Spec.Consumers = []v1alpha1.ConsumerReference{{Platform: "cf"}} },
		func(c *v1alpha1.MemberCluster) { c.DeletionTimestamp = &metav1.Time{} },
	} {
		c := proven("never", "JP", "L3", credentials[0])
		c.Spec.Region = "DE"
		never(&c)
		clusters = append(clusters, c)
	}
	e := newEvidence(clusters, credentials)
	for _, row := range []struct {
		regions           []string
		every             bool
		countries, labels []string
	}{
		{nil, false, []string{"DE", "US"}, []string{"L1", "SC"}},
		{[]string{"DE", "US"}, true, []string{"DE", "US"}, []string{"L1", "SC"}},
		{[]string{"DE", "of-nobody"}, false, []string{"DE"}, []string{"L1"}},
		{[]string{"DE", "FR"}, false, []string{"DE"}, []string{"L1"}},
	} {
		t.Run(fmt.Sprint(row.regions), func(t *testing.T) {
			f := e.facts(firstPlan(t, inRegions(row.regions...)))
			if f.EveryCluster != row.every || !slices.Equal(f.Countries, row.countries) || !slices.Equal(f.LabelLevels, row.labels) {
				t.Errorf("every cluster %v, countries %v, labels %v", f.EveryCluster, f.Countries, f.LabelLevels)
			}
		})
	}
	for _, regions := range [][]string{{"of-nobody"}, {"FR"}, {"nowhere"}} {
		if f := e.facts(firstPlan(t, inRegions(regions...))); f != nil {
			t.Errorf("in %v nothing is proven, got %+v", regions, f)
		}
	}
}

func inRegions(regions ...string) edit {
	return func(o *v1alpha1.ServiceOffering) {
		if len(regions) > 0 {
			o.Spec.Plans[0].Resources.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: v1alpha1.LabelRegion, Operator: metav1.LabelSelectorOpIn, Values: regions},
			}}
		}
	}
}

func TestFactsAreBoundedOfferingsFirst(t *testing.T) {
	var clusters []v1alpha1.MemberCluster
	var credentials []v1alpha1.SelfDescription
	for i := range byte(MaxSelfDescriptions) {
		name := fmt.Sprintf("p%d", i)
		center := credential(100+i, "Datacenter", "https://"+name+".example/datacenter", name, v1alpha1.CredentialVerified)
		clusters = append(clusters, proven(name, "DE", "", center))
		credentials = append(credentials, center, offeringOf(i+1, name))
	}
	f := newEvidence(clusters, credentials).facts(firstPlan(t))
	if len(f.SelfDescriptions) != MaxSelfDescriptions {
		t.Errorf("%d self-descriptions", len(f.SelfDescriptions))
	}
	for _, d := range f.SelfDescriptions {
		if d.Type != "ComputeServiceOffering" {
			t.Errorf("a %s is linked while offerings are left out", d.Type)
		}
	}
}

func TestRevisionChangesWithTheFactsAlone(t *testing.T) {
	plain, same, other := build(t, nil, offering("a", served)), build(t, nil, offering("a", served)), build(t, nil, offering("a", served))
	prove := func(s *Snapshot, country string) {
		t.Helper()
		o := offeringOf(1, "rhein")
		if err := s.prove(newEvidence([]v1alpha1.MemberCluster{proven("rhein", country, "", o)}, []v1alpha1.SelfDescription{o})); err != nil {
			t.Fatal(err)
		}
	}
	prove(same, "DE")
	prove(other, "FR")
	if plain.Revision() == same.Revision() || same.Revision() == other.Revision() {
		t.Errorf("revisions %s, %s, %s", plain.Revision(), same.Revision(), other.Revision())
	}
	again := build(t, same, offering("a", served))
	prove(again, "DE")
	if again.Revision() != same.Revision() {
		t.Error("the same facts make another revision")
	}
	nothing := build(t, nil, offering("a", served))
	if err := nothing.prove(newEvidence(nil, nil)); err != nil || nothing.Revision() != plain.Revision() || nothing.Facts("a-small") != nil {
		t.Errorf("no facts make another revision: %v", err)
	}
}

func hexDigest(n byte) string { return hex.EncodeToString(append([]byte{n}, make([]byte, 31)...)) }

func ptr[T any](v T) *T { return &v }

// TestUnions: a plan is in a union if every cluster is proven to be.
func TestUnions(t *testing.T) {
	plan := &Plan{Plan: v1alpha1.Plan{Resources: &v1alpha1.ResourcesPlan{}}}
	paper := credential(1, "gx:ServiceOffering", "https://a.example/offering", "a", v1alpha1.CredentialVerified)
	for name, row := range map[string]struct {
		countries []string // of the clusters; "" is one whose country is not proven
		bare      bool     // beside them is a cluster of which nothing is proven
		want      []string
	}{
		"in the Union":                    {countries: []string{"DE", "PL"}, want: []string{"EU", "EEA"}},
		"in the Economic Area":            {countries: []string{"DE", "NO"}, want: []string{"EEA"}},
		"one is elsewhere":                {countries: []string{"DE", "US"}},
		"of one, nobody knows where":      {countries: []string{"DE", ""}},
		"of one, nothing is proven":       {countries: []string{"DE"}, bare: true},
		"nobody knows where any of it is": {countries: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			var clusters []v1alpha1.MemberCluster
			for i, country := range row.countries {
				clusters = append(clusters, proven(fmt.Sprint("c", i), country, "L1", paper))
			}
			if row.bare {
				clusters = append(clusters, v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "bare"}})
			}
			facts := newEvidence(clusters, []v1alpha1.SelfDescription{paper}).facts(plan)
			if facts == nil {
				t.Fatal("there are no facts")
			}
			if got := facts.Unions(); !slices.Equal(got, row.want) {
				t.Errorf("it is in %v, want %v", got, row.want)
			}
		})
	}
}
