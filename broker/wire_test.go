package broker

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// peered is a binding of nodes of the consumer's own cluster, whose credentials do not expire.
func peered() *v1alpha1.ServiceBinding {
	return &v1alpha1.ServiceBinding{Status: v1alpha1.ServiceBindingStatus{
		Endpoints:       []v1alpha1.Endpoint{{Host: "10.2.0.9", Ports: []string{"80"}, Protocol: "tcp"}},
		EndpointsAbsent: "a→b: the peering is not ready yet",
		Services:        map[string][]string{"web": {"tcp://10.2.0.9:80"}},
	}}
}

func TestBindingMetadata(t *testing.T) {
	expiring := peered()
	expiring.Status.ExpiresAt, expiring.Status.RenewBefore = &metav1.Time{}, &metav1.Time{}
	ordinary := expiring.DeepCopy()
	ordinary.Status.EndpointsAbsent, ordinary.Status.Services = "", nil
	const (
		own  = `"endpoints_absent":"a→b: the peering is not ready yet","services":{"web":["tcp://10.2.0.9:80"]}`
		ends = `"expires_at":"0001-01-01T00:00:00.0Z"`
	)
	for _, test := range []struct {
		name    string
		binding *v1alpha1.ServiceBinding
		version version
		want    string
	}{
		{"2.15 has none", expiring, v15, `null`},
		{"2.16 has Sluice's own fields", expiring, v16, `{` + ends + `,` + own + `}`},
		{"2.17 says when to renew, too", expiring, v17, `{` + ends + `,"renew_before":"0001-01-01T00:00:00.0Z",` + own + `}`},
		{"what does not expire does not say so", peered(), v17, `{` + own + `}`},
		{"without peering it is as ever", ordinary, v16, `{` + ends + `}`},
		{"nothing to say", &v1alpha1.ServiceBinding{}, v17, `null`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(bindingResponse(test.binding, nil, test.version).Metadata)
			if err != nil || string(got) != test.want {
				t.Errorf("got %s and error %v, want %s", got, err, test.want)
			}
		})
	}
}

// Platforms read the summary of an instance's operation, never its description, and the description of a binding's.
func TestDescriptionsOfOperations(t *testing.T) {
	yes := true
	for name, row := range map[string]struct {
		operation v1alpha1.Operation
		version   version
		want      string
	}{
		"in progress": {v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateInProgress, Description: "secret"}, v17, `{"state":"in progress","description":"in hand"}`},
		"summed up":   {v1alpha1.Operation{Type: v1alpha1.OperationUpdate, State: v1alpha1.StateInProgress, Summary: "moving", InstanceUsable: &yes, UpdateRepeatable: &yes}, v17, `{"state":"in progress","description":"moving"}`},
		"succeeded":   {v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateSucceeded, Description: "secret"}, v17, `{"state":"succeeded"}`},
		"failed":      {v1alpha1.Operation{Type: v1alpha1.OperationDeprovision, State: v1alpha1.StateFailed, Description: "secret"}, v17, `{"state":"failed","description":"The broker's operator can say why."}`},
		"failed, usable": {
			v1alpha1.Operation{Type: v1alpha1.OperationUpdate, State: v1alpha1.StateFailed, Summary: "no room", InstanceUsable: &yes, UpdateRepeatable: &yes}, v16,
			`{"state":"failed","description":"no room","instance_usable":true,"update_repeatable":true}`,
		},
		"failed, before 2.16": {v1alpha1.Operation{Type: v1alpha1.OperationUpdate, State: v1alpha1.StateFailed, Summary: "no room", InstanceUsable: &yes, UpdateRepeatable: &yes}, v15, `{"state":"failed","description":"no room"}`},
		"a bind":              {v1alpha1.Operation{Type: v1alpha1.OperationBind, State: v1alpha1.StateFailed, Description: "no answer"}, v17, `{"state":"failed","description":"no answer"}`},
		"an unbind":           {v1alpha1.Operation{Type: v1alpha1.OperationUnbind, State: v1alpha1.StateInProgress, Description: "revoking", Summary: "x"}, v17, `{"state":"in progress","description":"revoking"}`},
	} {
		got, err := json.Marshal(lastOperationResponse(row.operation, row.version))
		if err != nil || string(got) != row.want {
			t.Errorf("%s: got %s and error %v, want %s", name, got, err, row.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]time.Duration{
		-time.Minute: time.Second, 0: time.Second, 10 * time.Second: time.Second, 50 * time.Second: 5 * time.Second, 100 * time.Second: 10 * time.Second, time.Hour: 10 * time.Second,
	} {
		if got := retryAfter(start, start.Add(age)); got != want {
			t.Errorf("after %s: %s, want %s", age, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for header, want := range map[string]version{
		"2.13": v13, "2.14": v14, "2.17": v17, "2.18": v17, "2.9999": v17, "2.0015": v15,
		"2.12": 0, "1.17": 0, "3.17": 0, "2": 0, "17": 0, "2.": 0, ".17": 0, "2.00017": 0, "2.99999": 0, "2.-17": 0, "": 0,
	} {
		if got, err := parseVersion(header); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %d, %v; want %d", header, got, err, want)
		}
	}
}
