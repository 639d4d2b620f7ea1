package kube

import (
	"net/netip"
	"testing"
)

// Consumers' pods reach the internet, and by it nothing of the cluster, the provider or the provider's cloud.
func TestToInternet(t *testing.T) {
	reached := func(address netip.Addr) bool {
		for _, peer := range ToInternet().To {
			in := netip.MustParsePrefix(*peer.IPBlock.CIDR).Contains(address)
			for _, except := range peer.IPBlock.Except {
				in = in && !netip.MustParsePrefix(except).Contains(address)
			}
			if in {
				return true
			}
		}
		return false
	}
	for address, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700:4700::1111": true,
		"10.0.0.1": false, "100.64.0.1": false, "127.0.0.1": false, "169.254.169.254": false, "172.16.0.1": false, "192.168.0.1": false,
		"168.63.129.16": false, "224.0.0.1": false, "::1": false, "fd00::1": false, "fe80::1": false,
		"64:ff9b::a00:1": false, "64:ff9b:1::a00:1": false, "2002:a00:1::": false, "2001::1": false, "::ffff:10.0.0.1": false, "::10.0.0.1": false,
	} {
		if got := reached(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is reached: %t, want %t", address, got, want)
		}
	}
}
