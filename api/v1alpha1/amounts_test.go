package v1alpha1

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestNamesOfResources: a misspelt resource is refused, instead of counting for nothing.
func TestNamesOfResources(t *testing.T) {
	for _, name := range []corev1.ResourceName{
		"cpu", "memory", "ephemeral-storage", "pods", "hugepages-2Mi", "nvidia.com/gpu", ResourceClusters, ResourcePublicPorts, ResourceInstances,
		StorageResource("fast"), DevicesResource("large-gpu"),
	} {
		if err := CheckResource(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []corev1.ResourceName{"", "mem", "CPU", "cpuu", "storage", "hugepages-", "hugepages-big", "nvidia.com/", "nvidia com/gpu", "/gpu"} {
		if err := CheckResource(name); err == nil {
			t.Errorf("%q is a resource", name)
		}
	}
}

// TestAmountsThatAreNone: quotas, prices and sales say which amount is wrong.
func TestAmountsThatAreNone(t *testing.T) {
	amounts := func(name corev1.ResourceName, amount string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(amount)}
	}
	price := func(hour, month string) *Price {
		p := &Price{Currency: "EUR"}
		for text, into := range map[string]**resource.Quantity{hour: &p.PerHour, month: &p.PerMonth} {
			if text != "" {
				amount := resource.MustParse(text)
				*into = &amount
			}
		}
		return p
	}
	for want, checked := range map[string]interface{ Check() error }{
		"limits: \"mem\" is no resource":               &Quota{Limits: amounts("mem", "1Mi")},
		"limits: cpu is negative":                      &Quota{Limits: amounts("cpu", "-1")},
		"budget.perMonth: -5: want an amount of money": &Quota{Budget: price("", "-5")},
		"perHour: -5: want an amount of money":         price("-5", ""),
		"perHour: \"cpuu\" is no resource":             &PriceList{PerHour: amounts("cpuu", "1")},
		"atMost: \"mem\" is no resource":               &Sale{AtMost: amounts("mem", "1Mi")},
		"hide: \"gpu\" is no resource":                 &Sale{Hide: []corev1.ResourceName{"gpu"}},
	} {
		if err := checked.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, checked := range []interface{ Check() error }{
		(*Quota)(nil), (*Price)(nil), (*PriceList)(nil), (*Sale)(nil), &Quota{Limits: amounts("cpu", "0"), Budget: price("", "5")}, price("5", ""),
	} {
		if err := checked.Check(); err != nil {
			t.Errorf("%+v: %v", checked, err)
		}
	}
}
