package hub

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkStart reports the time to a usable hub in a new directory and in one
// that has been used.
func BenchmarkStart(b *testing.B) {
	b.Run("new", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			dir := b.TempDir()
			b.StartTimer()
			startAndStop(b, dir)
		}
	})
	b.Run("used", func(b *testing.B) {
		dir := b.TempDir()
		startAndStop(b, dir)
		b.ResetTimer()
		for range b.N {
			startAndStop(b, dir)
		}
	})
}

func startAndStop(b *testing.B, dir string) {
	b.Helper()
	h, err := Start(b.Context(), Options{DataDir: dir, Embedded: true})
	if err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := h.Stop(); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

// BenchmarkCreate reports the latency of durable writes, one after another and
// from several clients, and the memory of the process afterwards.
func BenchmarkCreate(b *testing.B) {
	h := startHub(b, b.TempDir())
	installWidgets(b, h.Config)
	client := widgets(b, h.Config)
	b.Run("serial", func(b *testing.B) {
		latencies := make([]time.Duration, 0, b.N)
		for i := range b.N {
			began := time.Now()
			if _, err := client.Create(b.Context(), widget(fmt.Sprintf("serial-%d-%d", b.N, i), 1), metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			latencies = append(latencies, time.Since(began))
		}
		slices.Sort(latencies)
		quantile := func(q float64) float64 {
			return float64(latencies[int(q*float64(len(latencies)-1))].Microseconds()) / 1000
		}
		b.ReportMetric(quantile(0.5), "ms/p50")
		b.ReportMetric(quantile(0.99), "ms/p99")
		b.ReportMetric(residentMegabytes(b), "MB-resident")
	})
	b.Run("parallel", func(b *testing.B) {
		b.SetParallelism(8)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				w := widget("", 1)
				w.SetGenerateName("parallel-")
				if _, err := client.Create(b.Context(), w, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// residentMegabytes returns the memory of this process in megabytes, without the part shared
// with the executable's file.
func residentMegabytes(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0 // not Linux
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kilobytes) / 1024
		}
	}
	return 0
}
