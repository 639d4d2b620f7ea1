package legacy

import (
	"strings"
	"testing"
)

func BenchmarkImport(b *testing.B) {
	all, importer := vectors(b)
	for _, vector := range all {
		if !strings.HasSuffix(vector.Name, "ES256") {
			continue
		}
		b.Run(strings.ReplaceAll(string(vector.Form), " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if credential, report := importer.Import(b.Context(), string(vector.Document)); credential == nil {
					b.Fatal(&report.Report)
				}
			}
		})
	}
}
