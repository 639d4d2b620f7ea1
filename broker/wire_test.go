package broker

import (
	"encoding/json"
	"testing"

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
