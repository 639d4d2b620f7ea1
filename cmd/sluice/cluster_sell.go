package main

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// describeSale writes --sell and --hide; each replaces only its own part.
func (f *clusterAddFlags) describeSale(spec *v1alpha1.MemberClusterSpec, given given) error {
	now := &v1alpha1.Sale{}
	if spec.Sell != nil {
		now.Hide = spec.Sell.Hide
	}
	switch {
	case given("sell"):
		limits, err := sale(f.sell)
		if err != nil {
			return err
		}
		if limits != nil {
			now.Share, now.AtMost = limits.Share, limits.AtMost
		}
	case spec.Sell != nil:
		now.Share, now.AtMost = spec.Sell.Share, spec.Sell.AtMost
	}
	if given("hide") {
		now.Hide = nil
		for _, name := range f.hide {
			now.Hide = append(now.Hide, corev1.ResourceName(name))
		}
	}
	if err := now.Check(); err != nil {
		return fmt.Errorf("--sell and --hide: %w", err)
	}
	if spec.Sell = now; now.Share == 0 && now.AtMost == nil && now.Hide == nil {
		spec.Sell = nil
	}
	return nil
}

// sale parses --sell.
func sale(from map[string]string) (*v1alpha1.Sale, error) {
	if len(from) == 0 {
		return nil, nil
	}
	sell := &v1alpha1.Sale{}
	for name, text := range from {
		if name == "share" {
			share, err := strconv.ParseInt(text, 10, 32)
			if err != nil || share < 1 || share > 100 {
				return nil, fmt.Errorf("--sell share=%s: want a percentage from 1 to 100", text)
			}
			sell.Share = int32(share)
			continue
		}
		amount, err := resource.ParseQuantity(text)
		if err != nil || amount.Sign() < 0 {
			return nil, fmt.Errorf("--sell %s=%s: want an amount, for instance 10 or 64Gi", name, text)
		}
		if sell.AtMost == nil {
			sell.AtMost = corev1.ResourceList{}
		}
		sell.AtMost[corev1.ResourceName(name)] = amount
	}
	return sell, nil
}

// forSale returns the amount of a resource for sale if some is held back, as " (16 for
// sale)".
func forSale(cluster *v1alpha1.MemberCluster, name corev1.ResourceName) string {
	sold, heldBack := placement.ForSale(cluster, name)
	switch {
	case !heldBack:
		return ""
	case name == corev1.ResourceMemory:
		return " (" + gib(&sold) + " for sale)"
	}
	return " (" + sold.String() + " for sale)"
}
