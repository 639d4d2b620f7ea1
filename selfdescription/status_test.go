package selfdescription

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/selfdescription/did"
)

const listURL = "https://provider.example/status/1"

// listed returns a credential with bit 7 of a list, and publishes the list.
func (w *world) listed(tb testing.TB, purpose StatusPurpose, set bool) *Credential {
	tb.Helper()
	w.publish(tb, provider, purpose, set)
	doc := document(offering("https://provider.example/k8s"))
	doc.Status = []StatusEntry{{Purpose: purpose, Index: 7, List: listURL}}
	compact, err := w.signer(tb, provider).Credential(doc)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := Parse(compact)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func (w *world) publish(tb testing.TB, issuer string, purpose StatusPurpose, set bool) {
	tb.Helper()
	list := NewStatusList(0)
	if err := list.Set(7, set); err != nil {
		tb.Fatal(err)
	}
	w.publishList(tb, issuer, purpose, list)
}

func (w *world) publishList(tb testing.TB, issuer string, purpose StatusPurpose, list *StatusList) {
	tb.Helper()
	doc := list.Document(listURL, purpose)
	doc.ValidFrom, doc.ValidUntil = at.Add(-time.Hour), at.Add(time.Hour)
	compact, err := w.signer(tb, issuer).Credential(doc)
	if err != nil {
		tb.Fatal(err)
	}
	w.lists[listURL] = compact
}

// TestTheReportSaysWhichListsWereLookedAt: the report names the lists that were checked, and
// those that were not.
func TestTheReportSaysWhichListsWereLookedAt(t *testing.T) {
	w := newWorld(t)
	f := w.forge(t, w.listed(t, PurposeRevocation, false).Compact)
	revocation := f.payload["credentialStatus"].([]any)[0].(object)
	message := object{"type": "BitstringStatusListEntry", "statusPurpose": "message", "statusListIndex": "1", "statusListCredential": "https://provider.example/messages"}
	for _, row := range []struct {
		entries []any
		result  Result
		says    string
	}{
		{nil, Skipped, "no credentialStatus"},
		{[]any{revocation}, Passed, "no revocation by " + listURL},
		{[]any{revocation, revocation, revocation, revocation}, Passed, "no revocation by " + listURL},
		{[]any{revocation, message}, Passed, "no revocation by " + listURL + `; not looked at: purpose "message"`},
		{[]any{message}, Skipped, `not looked at: purpose "message" of "https://provider.example/messages"`},
	} {
		f.payload["credentialStatus"] = row.entries
		_, report := w.verifier().Credential(context.Background(), f.compact(t))
		if step := report.Steps[5]; !report.OK() || step.Name != StepStatus || step.Result != row.result || !strings.HasPrefix(step.Message, row.says) {
			t.Errorf("want %s: %s, got\n%s", row.result, row.says, &report)
		}
	}
}

func TestABitOfTheStatusListDecides(t *testing.T) {
	for _, row := range []struct {
		name    string
		purpose StatusPurpose
		set     bool
		want    State
	}{
		{"revoked", PurposeRevocation, true, Revoked},
		{"not revoked", PurposeRevocation, false, Verified},
		{"suspended", PurposeSuspension, true, Suspended},
		{"not suspended", PurposeSuspension, false, Verified},
		{"a message is no revocation", "message", true, Verified},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			_, report := w.verifier().Credential(context.Background(), w.listed(t, row.purpose, row.set).Compact)
			if report.State != row.want || report.OK() != (row.want == Verified) {
				t.Errorf("want %s:\n%s", row.want, &report)
			}
			if report.Temporary {
				t.Error("temporary")
			}
		})
	}
}

func TestAStatusListThatProvesNothingRejects(t *testing.T) {
	// relist publishes another list that the provider signed.
	relist := func(change func(*forgery)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			f := w.forge(t, w.lists[listURL])
			change(f)
			w.lists[listURL] = f.compact(t)
		}
	}
	for _, row := range []struct {
		name   string
		change func(*testing.T, *world)
		want   string
	}{
		{"of another issuer", func(t *testing.T, w *world) { w.publish(t, rival, PurposeRevocation, false) }, "who keeps no lists for " + provider},
		{"another list of the issuer", relist(func(f *forgery) { f.payload["id"] = "https://provider.example/status/2" }), "is the list https://provider.example/status/2"},
		{"of another purpose", relist(func(f *forgery) { f.subject()["statusPurpose"] = "suspension" }), "/statusPurpose"},
		{"expired", relist(func(f *forgery) { f.payload["validUntil"] = "2026-11-20T11:30:00Z" }), "window: "},
		{"not signed by its key", relist(func(f *forgery) {
			f.after = func(s string) string { return s[:len(s)-4] + "AAAA" }
		}), "signature: "},
		{"algorithm none", relist(func(f *forgery) { f.header["alg"] = "none" }), "algorithm: "},
		{"a credential that is no list", func(t *testing.T, w *world) {
			w.lists[listURL] = w.issue(t, provider, document(offering("https://provider.example/k8s"))).Compact
		}, "want a BitstringStatusList"},
		{"on a list itself", relist(func(f *forgery) {
			f.payload["credentialStatus"] = object{"type": typeStatusListEntry, "statusPurpose": "revocation", "statusListIndex": "1", "statusListCredential": listURL}
		}), "credentialStatus of its own"},
		{"no bits", relist(func(f *forgery) { delete(f.subject(), "encodedList") }), "/encodedList: want a string"},
		{"of other purposes", relist(func(f *forgery) { f.subject()["statusPurpose"] = []string{"suspension", "message"} }), "/statusPurpose"},
		{"no base64", relist(func(f *forgery) { f.subject()["encodedList"] = "u!" }), "illegal base64"},
		{"fewer than 131072 bits", relist(func(f *forgery) { f.subject()["encodedList"] = encoded(MinStatusList/8-1, nil) }), "131064 bits, want 131072 at least"},
		{"gzip bomb", relist(func(f *forgery) { f.subject()["encodedList"] = encoded(100<<20, nil) }), "more than 8388608 bits"},
		{"bytes after the list", relist(func(f *forgery) { f.subject()["encodedList"] = encoded(MinStatusList/8, []byte("x")) }), "after the end"},
		{"a credential of another type", relist(func(f *forgery) { f.payload["type"] = []string{"VerifiableCredential"} }), "BitstringStatusListCredential"},
		{"other multibase", relist(func(f *forgery) { f.subject()["encodedList"] = "z" + encoded(MinStatusList/8, nil)[1:] }), "multibase"},
		{"no gzip", relist(func(f *forgery) { f.subject()["encodedList"] = "uAAAA" }), "expand"},
		{"gzip cut short", relist(func(f *forgery) {
			whole, _ := base64.RawURLEncoding.DecodeString(encoded(MinStatusList/8, nil)[1:])
			f.subject()["encodedList"] = "u" + base64.RawURLEncoding.EncodeToString(whole[:len(whole)-9])
		}), "expand"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.listed(t, PurposeRevocation, false)
			row.change(t, w)
			_, report := w.verifier().Credential(context.Background(), c.Compact)
			refused(t, report, StepStatus, row.want)
			if report.State != Rejected || report.Temporary {
				t.Errorf("state %s, temporary %t", report.State, report.Temporary)
			}
		})
	}
}

// encoded compresses zeros and adds a tail to the compressed bytes.
func encoded(zeros int, tail []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, zeros))
	_ = w.Close()
	return "u" + base64.RawURLEncoding.EncodeToString(append(b.Bytes(), tail...))
}

func TestAStatusEntryThatSaysNothingRejects(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(entry object)
		step   StepName
		want   string
	}{
		{"unknown type", func(e object) { e["type"] = "StatusList2021Entry" }, StepParse, "/credentialStatus/0/type"},
		{"two bits each", func(e object) { e["statusSize"] = 2 }, StepParse, "/statusSize"},
		{"no purpose", func(e object) { delete(e, "statusPurpose") }, StepParse, "/statusPurpose"},
		{"no list", func(e object) { delete(e, "statusListCredential") }, StepParse, "/statusListCredential"},
		{"negative index", func(e object) { e["statusListIndex"] = "-1" }, StepParse, "/statusListIndex"},
		{"index that is no number", func(e object) { e["statusListIndex"] = "7x" }, StepParse, "/statusListIndex"},
		{"index beyond numbers", func(e object) { e["statusListIndex"] = "99999999999999999999" }, StepParse, "/statusListIndex"},
		{"index with leading zeros", func(e object) { e["statusListIndex"] = "007" }, StepParse, "/statusListIndex"},
		{"id that is the list's", func(e object) { e["id"] = listURL }, StepParse, "/id"},
		{"a twin of the index", func(e object) { e[contextStatus+"statusListIndex"] = "7" }, StepParse, "want the term"},
		{"index outside the list", func(e object) { e["statusListIndex"] = "131072" }, StepStatus, "outside"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			f := w.forge(t, w.listed(t, PurposeRevocation, false).Compact)
			row.change(f.payload["credentialStatus"].([]any)[0].(object))
			_, report := w.verifier().Credential(context.Background(), f.compact(t))
			refused(t, report, row.step, row.want)
		})
	}
	t.Run("too many lists", func(t *testing.T) {
		w := newWorld(t)
		f := w.forge(t, w.listed(t, PurposeRevocation, false).Compact)
		entry := f.payload["credentialStatus"].([]any)[0]
		f.payload["credentialStatus"] = []any{entry, entry, entry, entry, entry}
		_, report := w.verifier().Credential(context.Background(), f.compact(t))
		refused(t, report, StepParse, "more than 4")
	})
	for _, one := range []json.Number{"1", "1.0", "10e-1"} {
		t.Run("statusSize "+one.String()+" is what there is anyway", func(t *testing.T) {
			w := newWorld(t)
			f := w.forge(t, w.listed(t, PurposeRevocation, false).Compact)
			f.payload["credentialStatus"].([]any)[0].(object)["statusSize"] = one
			if _, report := w.verifier().Credential(context.Background(), f.compact(t)); !report.OK() {
				t.Errorf("\n%s", &report)
			}
		})
	}
}

func TestAStatusListThatCannotBeReachedIsTemporary(t *testing.T) {
	w := newWorld(t)
	c := w.listed(t, PurposeRevocation, false)
	delete(w.lists, listURL)
	_, report := w.verifier().Credential(context.Background(), c.Compact)
	refused(t, report, StepStatus, "connection refused")
	if !report.Temporary {
		t.Error("not temporary")
	}

	v := w.verifier()
	v.Statuses = nil
	_, report = v.Credential(context.Background(), c.Compact)
	refused(t, report, StepStatus, "cannot be looked at")
	if report.Temporary {
		t.Error("temporary although nobody ever looks")
	}
}

func TestAnIssuerMayLeaveItsListsToWhoIsTrustedWithThem(t *testing.T) {
	w := newWorld(t)
	c := w.listed(t, PurposeRevocation, true)
	w.publish(t, notary, PurposeRevocation, true)
	_, report := w.verifier().Credential(context.Background(), c.Compact)
	if report.State != Revoked {
		t.Errorf("\n%s", &report)
	}
}

// A verifier that trusts nobody takes lists only from the credential's own issuer.
func TestNobodyIsTrustedWithListsByDefault(t *testing.T) {
	w := newWorld(t)
	c := w.listed(t, PurposeRevocation, true)
	w.publish(t, notary, PurposeRevocation, true)
	v := w.verifier()
	v.Issuers = nil
	_, report := v.Credential(context.Background(), c.Compact)
	refused(t, report, StepStatus, "who keeps no lists for "+provider)
}

// Bitstring Status List v1.0, 6.2: at least 131,072 bits. The upper limit is Sluice's own.
func TestStatusListsOfTheLeastAndTheGreatestLength(t *testing.T) {
	for _, bits := range []int{MinStatusList, MaxStatusList} {
		list, err := decodeStatusList(encoded(bits/8, nil))
		if err != nil || list.Len() != bits {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
}

func TestAGzipBombCostsNoMemory(t *testing.T) {
	bomb := encoded(200<<20, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := decodeStatusList(bomb); err == nil {
		t.Error("accepted")
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d MiB allocated for a list of at most 1 MiB", used>>20)
	}
}

// Bitstring Status List v1.0, 3.1: index 0 is the leftmost bit.
func TestBitsCountFromTheLeft(t *testing.T) {
	list := NewStatusList(0)
	for _, i := range []int{0, 9, MinStatusList - 1} {
		if err := list.Set(i, true); err != nil {
			t.Fatal(err)
		}
	}
	if list.bits[0] != 0x80 || list.bits[1] != 0x40 || list.bits[MinStatusList/8-1] != 0x01 {
		t.Errorf("bytes %x %x … %x", list.bits[0], list.bits[1], list.bits[MinStatusList/8-1])
	}
	again, err := decodeStatusList(list.Encode())
	if err != nil || !bytes.Equal(again.bits, list.bits) {
		t.Errorf("does not go round: %v", err)
	}
	if err := list.Set(9, false); err != nil || list.bits[1] != 0 || list.bits[0] != 0x80 {
		t.Error("a bit cannot be cleared")
	}
	for _, i := range []int{-1, list.Len()} {
		if err := list.Set(i, true); err == nil || !strings.Contains(err.Error(), "outside") {
			t.Errorf("index %d: %v", i, err)
		}
	}
}

// Bitstring Status List v1.0, 2.2: a list may serve several purposes.
func TestAListOfSeveralPurposes(t *testing.T) {
	w := newWorld(t)
	c := w.listed(t, PurposeRevocation, true)
	f := w.forge(t, w.lists[listURL])
	f.subject()["statusPurpose"] = []string{"suspension", "revocation"}
	w.lists[listURL] = f.compact(t)
	if _, report := w.verifier().Credential(context.Background(), c.Compact); report.State != Revoked {
		t.Errorf("\n%s", &report)
	}
}

// keyless is a KeySource that cannot reach the keys of one issuer.
type keyless struct {
	*world
	of string
}

func (k keyless) Key(ctx context.Context, id string) (*did.Key, error) {
	if strings.HasPrefix(id, k.of) {
		return unreachable{}.Key(ctx, id)
	}
	return k.world.Key(ctx, id)
}

func TestAStatusListWhoseKeyCannotBeReachedIsTemporary(t *testing.T) {
	w := newWorld(t)
	c := w.listed(t, PurposeRevocation, false)
	w.publish(t, notary, PurposeRevocation, false)
	v := w.verifier()
	v.Keys = keyless{w, notary}
	_, report := v.Credential(context.Background(), c.Compact)
	refused(t, report, StepStatus, "timeout")
	if !report.Temporary {
		t.Error("not temporary")
	}
}

// asking is a StatusSource that counts.
type asking struct {
	*world
	lists int
}

func (a *asking) StatusList(ctx context.Context, issuer, url string) (string, error) {
	a.lists++
	return a.world.StatusList(ctx, issuer, url)
}

// TestTheListOfACredentialThatIsRefusedIsNotAskedFor: anybody can sign a credential that names any list.
func TestTheListOfACredentialThatIsRefusedIsNotAskedFor(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*world, *forgery)
		step    StepName
		message string
	}{
		"a stranger's": {func(w *world, f *forgery) {
			const stranger = "did:web:stranger.example"
			w.keys[stranger] = newKey(t, "EdDSA", stranger)
			f.payload["issuer"], f.header["kid"], f.key = stranger, stranger+"#key-1", w.keys[stranger]
			delete(f.payload, "iss")
			delete(f.header, "iss")
		}, StepIssuer, "not asked for: the issuer is not trusted"},
		"out of shape": {func(_ *world, f *forgery) { delete(f.subject(), "providedBy") }, StepShape, "not asked for: the credential is refused by its shape"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			f := w.forge(t, w.listed(t, PurposeRevocation, false).Compact)
			row.change(w, f)
			v, lists := w.verifier(), &asking{world: w}
			v.Statuses = lists
			_, report := v.Credential(context.Background(), f.compact(t))
			refused(t, report, row.step, "")
			if lists.lists > 0 {
				t.Errorf("%d lists were asked for", lists.lists)
			}
			if step := report.Steps[5]; step.Name != StepStatus || step.Result != Skipped || step.Message != row.message {
				t.Errorf("want %q, got\n%s", row.message, &report)
			}
			if report.State != Rejected || report.Temporary {
				t.Errorf("state %s, temporary %t", report.State, report.Temporary)
			}
		})
	}
}
