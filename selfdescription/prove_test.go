package selfdescription

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWhatAConsumerProves: a consumer proves its country and numbers by a LegalPerson that is its own, and what others
// certify of that one.
func TestWhatAConsumerProves(t *testing.T) {
	w := newWorld(t)
	own := w.issue(t, provider, document(person("https://provider.example/lp")))
	number := w.issue(t, notary, document(vat()))
	moved := person("https://provider.example/lp")
	moved["headquartersAddress"] = object{"type": "Address", "countryCode": "DE"}
	certificate := certification("https://provider.example/lp", own)
	self := []string{"consumer.country=FR self"}
	for name, row := range map[string]struct {
		set    []*Credential
		claims []string
		failed string // the step and a part of its message
	}{
		"by its own word":                 {set: []*Credential{own}, claims: self},
		"by a notary's number":            {set: []*Credential{own, number}, claims: append(self, "consumer.registration=vatID:FR40303265045 notary")},
		"by a notary's LegalPerson":       {set: []*Credential{own, w.issue(t, notary, document(moved))}, claims: []string{"consumer.country=DE notary"}},
		"by an auditor":                   {set: []*Credential{own, w.issue(t, auditor, document(certificate))}, claims: []string{"certification=ISO/IEC 27001 certified", "consumer.country=FR certified"}},
		"a rival's certificate is none":   {set: []*Credential{own, w.issue(t, rival, document(certificate))}, claims: self},
		"an offering is not looked at":    {set: []*Credential{own, w.issue(t, provider, document(offering(offeringID)))}, claims: self},
		"nothing":                         {failed: "references: no LegalPerson of did:web:provider.example"},
		"another's LegalPerson":           {set: []*Credential{w.issue(t, rival, document(person("https://rival.example/lp")))}, failed: "references: no LegalPerson"},
		"its id, by a rival":              {set: []*Credential{w.issue(t, rival, document(person("https://provider.example/lp")))}, failed: "references: no LegalPerson"},
		"another's LegalPerson, notary's": {set: []*Credential{w.issue(t, notary, document(person("https://rival.example/lp")))}, failed: "references: no LegalPerson"},
	} {
		t.Run(name, func(t *testing.T) {
			claims, report := Prove(row.set, provider, worth, at)
			var got []string
			for _, c := range claims {
				got = append(got, c.Name+"="+c.Value+" "+string(c.Assurance))
			}
			if diff := cmp.Diff(row.claims, got); diff != "" {
				t.Errorf("claims:\n%s", diff)
			}
			failed := ""
			if step := report.Failed(); step != nil {
				failed = string(step.Name) + ": " + step.Message
			}
			if (failed != "") != (row.failed != "") || !strings.Contains(failed, row.failed) {
				t.Errorf("refused at %q, want %q", failed, row.failed)
			}
		})
	}
}

// Claims end with the credentials that they rest on, and a LegalPerson that has ended proves nothing.
func TestWhatAConsumerProvesEnds(t *testing.T) {
	w := newWorld(t)
	own := *w.issue(t, provider, document(person("https://provider.example/lp")))
	own.ValidUntil = at.AddDate(0, 0, 7)
	claims, _ := Prove([]*Credential{&own}, provider, worth, at)
	if len(claims) != 1 || !claims[0].Expires.Equal(own.ValidUntil) {
		t.Errorf("claims %v, want one that ends %s", claims, own.ValidUntil)
	}
	if claims, report := Prove([]*Credential{&own}, provider, worth, own.ValidUntil); claims != nil || report.OK() {
		t.Errorf("at its end it still proves %v", claims)
	}
}
