package selfdescription

import (
	"context"
	"fmt"
	"testing"
)

// Per core, with the key cached: the cost of each credential when a hub starts.
func BenchmarkVerifyCredential(b *testing.B) {
	for _, algorithm := range Algorithms() {
		b.Run(algorithm, func(b *testing.B) {
			w := newWorld(b)
			w.keys[provider] = newKey(b, algorithm, provider)
			compact := w.issue(b, provider, document(offering("https://provider.example/k8s"))).Compact
			v := w.verifier()
			b.ReportAllocs()
			for b.Loop() {
				if _, report := v.Credential(context.Background(), compact); !report.OK() {
					b.Fatal(&report)
				}
			}
		})
	}
}

// With a status list of 131072 bits, in memory but verified each time.
func BenchmarkVerifyCredentialOnAStatusList(b *testing.B) {
	w := newWorld(b)
	w.keys[provider] = newKey(b, "ES256", provider)
	compact := w.listed(b, PurposeRevocation, false).Compact
	v := w.verifier()
	b.ReportAllocs()
	for b.Loop() {
		if _, report := v.Credential(context.Background(), compact); !report.OK() {
			b.Fatal(&report)
		}
	}
}

func BenchmarkDecodeStatusList(b *testing.B) {
	encoded := NewStatusList(0).Encode()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeStatusList(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdmit(b *testing.B) {
	d := newDossier(b)
	d.more = append(d.more,
		d.issue(b, complianceS, document(label(d.offering, d.datacenter, d.person))),
		d.issue(b, auditor, document(certification(offeringID))),
		d.issue(b, broker, document(measurement(offeringID))))
	b.ReportAllocs()
	for b.Loop() {
		if _, report := d.admit(); !report.OK() {
			b.Fatal(&report)
		}
	}
}

// Ten thousand different credentials, as after a restart.
func BenchmarkVerify10000Credentials(b *testing.B) {
	w := newWorld(b)
	w.keys[provider] = newKey(b, "ES256", provider)
	s := w.signer(b, provider)
	var tokens []string
	for i := range 10_000 {
		compact, err := s.Credential(document(offering(fmt.Sprintf("https://provider.example/k8s/%d", i))))
		if err != nil {
			b.Fatal(err)
		}
		tokens = append(tokens, compact)
	}
	v := w.verifier()
	for b.Loop() {
		for _, compact := range tokens {
			if _, report := v.Credential(context.Background(), compact); !report.OK() {
				b.Fatal(&report)
			}
		}
	}
}
