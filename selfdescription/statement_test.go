package selfdescription

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStatementsGoRound: what was signed is read; what was changed afterwards, or is something else, is not.
func TestStatementsGoRound(t *testing.T) {
	w := newWorld(t)
	signed, err := w.signer(t, broker).Statement(StatementContract, object{"sub": "sha256-x", "contract": object{"number": 1}}, at)
	if err != nil {
		t.Fatal(err)
	}
	statement, report := w.verifier().Statement(context.Background(), signed)
	if !report.OK() {
		t.Fatalf("%s", &report)
	}
	if statement.Type != StatementContract || statement.Issuer != broker || !statement.IssuedAt.Equal(at) || statement.Claims["sub"] != "sha256-x" {
		t.Errorf("read %+v", statement)
	}
	if got, want := names(report), []StepName{StepParse, StepAlgorithm, StepKey, StepSignature, StepWindow}; !slices.Equal(got, want) {
		t.Errorf("steps %s, want %s", got, want)
	}
	if !IsStatement(signed) {
		t.Error("it is none")
	}
	credential, err := w.signer(t, provider).Credential(document(vat()))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(signed, ".")
	with := func(part int, change func(map[string]any)) string {
		raw, err := base64.RawURLEncoding.DecodeString(parts[part])
		var members map[string]any
		if err == nil {
			err = json.Unmarshal(raw, &members)
		}
		if err != nil {
			t.Fatal(err)
		}
		change(members)
		raw, _ = json.Marshal(members)
		all := append([]string{}, parts...)
		all[part] = base64.RawURLEncoding.EncodeToString(raw)
		return strings.Join(all, ".")
	}
	for _, row := range []struct {
		name, compact string
		fails         StepName
	}{
		{"other terms", with(1, func(m map[string]any) { m["contract"].(map[string]any)["number"] = 2 }), StepSignature},
		{"another issuer", with(1, func(m map[string]any) { m["iss"] = provider }), StepParse},
		{"no issuer", with(1, func(m map[string]any) { delete(m, "iss") }), StepParse},
		{"no time", with(1, func(m map[string]any) { delete(m, "iat") }), StepParse},
		{"another type", with(0, func(m map[string]any) { m["typ"] = StatementUsage }), StepSignature},
		{"a token of another kind", with(0, func(m map[string]any) { m["typ"] = "JWT" }), StepParse},
		{"no signature", with(0, func(m map[string]any) { m["alg"] = "none" }), StepAlgorithm},
		{"a credential", credential, StepParse},
		{"nothing", "", StepParse},
	} {
		got, report := w.verifier().Statement(context.Background(), row.compact)
		if failed := report.Failed(); got != nil || failed == nil || failed.Name != row.fails {
			t.Errorf("%s: %+v\n%s", row.name, got, &report)
		}
	}
	if c, report := w.verifier().Credential(context.Background(), signed); c != nil || report.OK() {
		t.Errorf("a statement is a credential:\n%s", &report)
	}
	early, err := w.signer(t, broker).Statement(StatementUsage, nil, at.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got, report := w.verifier().Statement(context.Background(), early); got != nil || report.Failed().Name != StepWindow {
		t.Errorf("a statement of later:\n%s", &report)
	}
	for kind, claims := range map[string]object{"JWT": nil, StatementUsage: {"iss": "x"}, StatementContract: {"iat": 1}} {
		if _, err := w.signer(t, broker).Statement(kind, claims, at); err == nil {
			t.Errorf("%s of %v is signed", kind, claims)
		}
	}
}
