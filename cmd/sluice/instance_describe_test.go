package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestDescribeClosedPorts: a port that an earlier version took, and this one does not open, is not listed as public.
func TestDescribeClosedPorts(t *testing.T) {
	var out bytes.Buffer
	d := newDetails(&out)
	describeDecision(d, &v1alpha1.Decision{Exposed: []v1alpha1.ExposedPort{{Name: "sluice-isolate", Port: 80}, {Name: "web", Port: 8080}}})
	if err := d.flush(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Contains(got, "isolate") || !strings.Contains(got, "web, port 8080") {
		t.Errorf("described as %s", got)
	}
}
