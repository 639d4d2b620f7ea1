package controlplane_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/controlplane"
)

func BenchmarkNew(b *testing.B) {
	nodes := make([]controlplane.Node, 10)
	for i := range nodes {
		nodes[i].Name = fmt.Sprintf("n%d", i)
	}
	for name, options := range map[string]controlplane.Options{
		"api-server-only": {APIServerOnly: true},
		"ten-nodes":       {Nodes: nodes},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				cp, err := controlplane.New(b.Context(), options)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				for component, pid := range cp.PIDs() {
					b.ReportMetric(residentMemory(b, pid), component+"-MB")
				}
				if err := cp.Stop(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// residentMemory is the memory a process occupies, in MiB, from proc(5).
func residentMemory(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kibibytes float64
	if _, err := fmt.Sscan(rest, &kibibytes); err != nil {
		b.Fatalf("read resident memory of process %d: %v", pid, err)
	}
	return kibibytes / 1024
}
