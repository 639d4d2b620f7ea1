package selfdescription

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestForgedPresentationsAreRefused(t *testing.T) {
	expect := Expect{Audience: broker, Nonce: "n-1"}
	for _, row := range []struct {
		name  string
		forge func(*world, *forgery)
		step  StepName
		want  string
	}{
		{"replayed with another nonce", func(_ *world, f *forgery) { f.payload["nonce"] = "n-0" }, StepWindow, "/nonce"},
		{"nonce that begins like it", func(_ *world, f *forgery) { f.payload["nonce"] = "n-11" }, StepWindow, "/nonce"},
		{"no nonce", func(_ *world, f *forgery) { delete(f.payload, "nonce") }, StepWindow, "/nonce"},
		{"made for somebody else", func(_ *world, f *forgery) { f.payload["aud"] = rival }, StepWindow, "/aud"},
		{"made for others too", func(_ *world, f *forgery) { f.payload["aud"] = []string{broker, rival} }, StepWindow, "/aud"},
		{"no audience", func(_ *world, f *forgery) { delete(f.payload, "aud") }, StepWindow, "/aud"},
		{"usable for more than ten minutes", func(_ *world, f *forgery) { f.payload["exp"] = at.Add(10*time.Minute + time.Second).Unix() }, StepParse, "/exp"},
		{"ten minutes and over", func(_ *world, f *forgery) {
			delete(f.payload, "exp")
			f.payload["iat"] = at.Add(-11 * time.Minute).Unix()
		}, StepWindow, "ended"},
		{"from the future", func(_ *world, f *forgery) {
			f.payload["iat"], f.payload["exp"] = at.Add(2*time.Minute).Unix(), at.Add(3*time.Minute).Unix()
		}, StepWindow, "not before"},
		{"no time of signature", func(_ *world, f *forgery) { delete(f.payload, "iat") }, StepParse, "/iat"},
		{"holder other than the key's", func(_ *world, f *forgery) { f.payload["holder"] = rival }, StepParse, "/holder"},
		{"issuer other than the key's", func(_ *world, f *forgery) { f.payload["issuer"] = rival }, StepParse, "/issuer"},
		{"iss other than the key's", func(_ *world, f *forgery) { f.payload["iss"] = rival }, StepParse, "/iss"},
		{"kid of somebody else", func(_ *world, f *forgery) {
			f.header["kid"], f.header["iss"], f.payload["iss"], f.payload["holder"] = rival+"#key-1", rival, rival, rival
		}, StepSignature, "not what"},
		{"algorithm none", func(_ *world, f *forgery) { f.header["alg"] = "none" }, StepAlgorithm, `"none"`},
		{"header jwk", func(_ *world, f *forgery) { f.header["jwk"] = f.key.Public() }, StepParse, "/jwk"},
		{"typ of a credential", func(_ *world, f *forgery) { f.header["typ"], f.header["cty"] = "vc+jwt", "vc" }, StepParse, "/typ"},
		{"claim vp", func(_ *world, f *forgery) { f.payload["vp"] = object{} }, StepParse, "/vp"},
		{"unknown context", func(_ *world, f *forgery) {
			f.payload["@context"] = []string{ContextCredentials, "https://rival.example"}
		}, StepParse, "/@context/1"},
		{"no VerifiablePresentation", func(_ *world, f *forgery) { f.payload["type"] = "Presentation" }, StepParse, "/type"},
		{"credential that is not enveloped", func(_ *world, f *forgery) {
			f.payload["verifiableCredential"] = []any{object{"type": "VerifiableCredential"}}
		}, StepParse, "/verifiableCredential/0/type"},
		{"credential that is a string", func(_ *world, f *forgery) { f.payload["verifiableCredential"] = "eyJ" }, StepParse, "/verifiableCredential/0/type"},
		{"credential at a URL", func(_ *world, f *forgery) { f.envelope()["id"] = "https://rival.example/vc" }, StepParse, "/verifiableCredential/0/id"},
		{"envelope with a context of its own", func(_ *world, f *forgery) { f.envelope()["@context"] = object{} }, StepParse, "/@context/0"},
		{"too many credentials", func(_ *world, f *forgery) {
			var list []any
			for i := range MaxCredentials + 1 {
				list = append(list, object{"type": "EnvelopedVerifiableCredential", "id": "data:application/vc+jwt," + strconv.Itoa(i)})
			}
			f.payload["verifiableCredential"] = list
		}, StepParse, "/verifiableCredential"},
		{"too large", func(_ *world, f *forgery) { f.payload["x"] = strings.Repeat("x", MaxPresentation) }, StepParse, "longer than"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			f := w.forge(t, w.present(t, expect))
			row.forge(w, f)
			p, report := w.verifier().Presentation(context.Background(), f.compact(t), expect)
			refused(t, report, row.step, row.want)
			if p != nil {
				t.Error("a presentation was returned")
			}
			if s := report.String(); strings.Contains(s, expect.Nonce) {
				t.Errorf("the report tells the nonce:\n%s", s)
			}
		})
	}
}

func (w *world) present(tb testing.TB, expect Expect) string {
	tb.Helper()
	c := w.issue(tb, provider, document(offering("https://provider.example/k8s")))
	compact, err := w.signer(tb, provider).Presentation([]string{c.Compact}, expect, at)
	if err != nil {
		tb.Fatal(err)
	}
	return compact
}

func (f *forgery) envelope() object {
	return f.payload["verifiableCredential"].([]any)[0].(object)
}

func TestAPresentationThatNobodyAskedForIsRefused(t *testing.T) {
	w := newWorld(t)
	compact := w.present(t, Expect{Audience: broker, Nonce: "n-1"})
	for _, expect := range []Expect{{}, {Audience: broker}, {Nonce: "n-1"}} {
		_, report := w.verifier().Presentation(context.Background(), compact, expect)
		refused(t, report, StepWindow, "nothing was asked for")
	}
}

func TestAPresentationIsForTheOperationThatItNames(t *testing.T) {
	w := newWorld(t)
	for _, made := range []Operation{"", OperationPresent, OperationVerify, OperationRevoke} {
		compact := w.present(t, Expect{Audience: broker, Nonce: "n-1", Operation: made})
		for _, asked := range []Operation{"", OperationPresent, OperationVerify, OperationRevoke} {
			_, report := w.verifier().Presentation(context.Background(), compact, Expect{Audience: broker, Nonce: "n-1", Operation: asked})
			if made != asked {
				want := "none"
				if asked != "" {
					want = strconv.Quote(string(asked))
				}
				refused(t, report, StepWindow, "/operation: want "+want+", got ")
			} else if !report.OK() {
				t.Errorf("made for %q:\n%s", made, &report)
			}
		}
	}
}

func TestEarlierPresentationsVerify(t *testing.T) {
	expect := Expect{Audience: broker, Nonce: "n-1"}
	for name, change := range map[string]func(*forgery){
		"ICAM 24.07": func(f *forgery) {
			f.header["typ"], f.header["cty"] = "vp+ld+json+jwt", "vp+ld+json"
			f.envelope()["id"] = strings.Replace(f.envelope()["id"].(string), "vc+jwt,", "vc+ld+json+jwt;", 1)
		},
		"milliseconds in the header": func(f *forgery) {
			f.header["typ"], f.header["cty"] = "vp+ld+jwt", "vp+ld"
			f.header["iat"], f.header["exp"] = at.UnixMilli(), at.Add(time.Minute).UnixMilli()
		},
		"one credential, no list":    func(f *forgery) { f.payload["verifiableCredential"] = f.envelope() },
		"no context of the envelope": func(f *forgery) { delete(f.envelope(), "@context") },
		"one audience, in a list":    func(f *forgery) { f.payload["aud"] = []string{broker} },
		"neither holder nor issuer":  func(f *forgery) { delete(f.payload, "holder"); delete(f.payload, "iss") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			f := w.forge(t, w.present(t, expect))
			change(f)
			p, report := w.verifier().Presentation(context.Background(), f.compact(t), expect)
			if !report.OK() {
				t.Fatalf("\n%s", &report)
			}
			if p.Holder != provider || len(p.Credentials) != 1 {
				t.Errorf("read %+v", p)
			}
			if _, report := w.verifier().Credential(context.Background(), p.Credentials[0]); !report.OK() {
				t.Errorf("credential in it:\n%s", &report)
			}
		})
	}
}

// A presentation may have as many credentials as its signer accepts.
func TestAPresentationOfAsManyCredentialsAsFit(t *testing.T) {
	w, expect := newWorld(t), Expect{Audience: broker, Nonce: "n-1"}
	compact, err := w.signer(t, provider).Presentation(make([]string, MaxCredentials), expect, at)
	if err != nil {
		t.Fatal(err)
	}
	if p, report := w.verifier().Presentation(context.Background(), compact, expect); !report.OK() || len(p.Credentials) != MaxCredentials {
		t.Errorf("%+v\n%s", p, &report)
	}
}
