package selfdescription

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEveryAlgorithmGoesRound(t *testing.T) {
	for _, algorithm := range Algorithms() {
		t.Run(algorithm, func(t *testing.T) {
			w := newWorld(t)
			w.keys[provider] = newKey(t, algorithm, provider)
			doc := document(offering("https://provider.example/k8s"))
			doc.ID = "https://provider.example/vc/k8s"
			compact, err := w.signer(t, provider).Credential(doc)
			if err != nil {
				t.Fatal(err)
			}
			c, report := w.verifier().Credential(context.Background(), compact)
			if !report.OK() || report.State != Verified {
				t.Fatalf("credential:\n%s", &report)
			}
			if c.Type != TypeComputeServiceOffering || c.Subject != "https://provider.example/k8s" || c.Issuer != provider ||
				c.ID != doc.ID || c.Algorithm != algorithm || c.KeyID != provider+"#key-1" || c.Digest != DigestOf(compact) ||
				!c.ValidFrom.Equal(doc.ValidFrom) || !c.ValidUntil.Equal(doc.ValidUntil) {
				t.Errorf("read something else: %+v", c)
			}
			want := []StepName{StepParse, StepAlgorithm, StepKey, StepSignature, StepWindow, StepStatus, StepShape, StepIssuer}
			if got := names(report); !slices.Equal(got, want) {
				t.Errorf("steps %s, want %s", got, want)
			}

			expect := Expect{Audience: broker, Nonce: "n-1"}
			presentation, err := w.signer(t, provider).Presentation([]string{compact}, expect, at)
			if err != nil {
				t.Fatal(err)
			}
			p, report := w.verifier().Presentation(context.Background(), presentation, expect)
			if !report.OK() {
				t.Fatalf("presentation:\n%s", &report)
			}
			if got := names(report); !slices.Equal(got, want[:5]) {
				t.Errorf("steps %s, want %s", got, want[:5])
			}
			if p.Holder != provider || !slices.Equal(p.Credentials, []string{compact}) || !p.IssuedAt.Equal(at) || !p.ExpiresAt.Equal(at.Add(PresentationLifetime)) {
				t.Errorf("read something else: %+v", p)
			}
		})
	}
}

func names(r Report) (names []StepName) {
	for _, s := range r.Steps {
		names = append(names, s.Name)
	}
	return names
}

// The forms that issuers of earlier generations of Gaia-X send.
func TestEarlierGenerationsVerify(t *testing.T) {
	for name, change := range map[string]func(*forgery){
		"ICAM 24.07": func(f *forgery) {
			f.header["typ"], f.header["cty"] = "vc+ld+json+jwt", "vc+ld+json"
			f.header["iat"], f.header["exp"] = at.Unix(), at.Add(time.Hour).Unix()
		},
		"milliseconds in the header": func(f *forgery) {
			f.header["typ"], f.header["cty"] = "vc+ld+jwt", "vc+ld"
			f.header["iat"], f.header["exp"] = at.UnixMilli(), at.Add(time.Hour).UnixMilli()
		},
		"an issuer with a name": func(f *forgery) { f.payload["issuer"] = object{"id": provider, "name": "Provider"} },
		"no registered claims":  func(f *forgery) { delete(f.payload, "iss"); delete(f.payload, "iat"); delete(f.payload, "exp") },
		"prefixed terms, typed literals": func(f *forgery) {
			s := f.subject()
			s["type"] = []string{"gx:ComputeServiceOffering"}
			s["gx:providedBy"] = s["providedBy"]
			delete(s, "providedBy")
			s["gx:serviceOfferingTermsAndConditions"] = object{
				"@type": "gx:TermsAndConditions", "gx:hash": "8acc",
				"gx:url": object{"@value": "https://provider.example/tc.pdf", "@type": "xsd:anyURI"},
			}
			delete(s, "serviceOfferingTermsAndConditions")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			f := w.forge(t, w.issue(t, provider, document(offering("https://provider.example/k8s"))).Compact)
			change(f)
			c, report := w.verifier().Credential(context.Background(), f.compact(t))
			if !report.OK() {
				t.Fatalf("\n%s", &report)
			}
			if ids := references(c.Claims["providedBy"]); !slices.Equal(ids, []string{"https://provider.example/lp"}) {
				t.Errorf("providedBy is %v", c.Claims["providedBy"])
			}
			if strings.HasPrefix(c.Type, "gx:") {
				t.Errorf("type is %s", c.Type)
			}
		})
	}
}

// Verifier documents its zero values: the time is that of the clock, and clocks differ by DefaultSkew at most.
func TestAVerifierWithoutAClockTakesTheTimeOfDay(t *testing.T) {
	w := newWorld(t)
	v := w.verifier()
	v.Now = nil
	for _, row := range []struct {
		from time.Duration // now
		want bool
	}{{-time.Hour, true}, {time.Hour, false}} {
		compact, err := w.signer(t, provider).Credential(Document{Subject: vat(), ValidFrom: time.Now().Add(row.from)})
		if err != nil {
			t.Fatal(err)
		}
		if _, report := v.Credential(context.Background(), compact); report.OK() != row.want {
			t.Errorf("valid from %s on:\n%s", row.from, &report)
		}
	}
}

func TestAReportOfNothingIsNotOK(t *testing.T) {
	if r := (Report{State: Verified}); r.OK() {
		t.Error("nothing was checked")
	}
}
