package overlay_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/utils/ipam/mapping"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/internal/overlay"
)

func newRanges(t testing.TB, from, to []string) overlay.Ranges {
	t.Helper()
	ranges, err := overlay.New(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return ranges
}

func TestMap(t *testing.T) {
	two := []string{"10.10.0.0/16", "10.20.0.0/16"}
	for _, test := range []struct {
		name            string
		from, to        []string
		address, mapped string
	}{
		// The first three addresses were seen to work on real clusters.
		{"a pod", []string{"10.1.0.0/16"}, []string{"10.0.0.0/16"}, "10.1.1.2", "10.0.1.2"},
		{"a Service through the external range", []string{"10.70.0.0/16"}, []string{"10.2.0.0/16"}, "10.70.0.9", "10.2.0.9"},
		{"a pod behind a hub", []string{"10.70.0.0/16"}, []string{"10.2.0.0/16"}, "10.70.0.6", "10.2.0.6"},
		{"the second of two ranges", two, []string{"10.30.0.0/16", "10.40.0.0/16"}, "10.20.5.10", "10.40.5.10"},
		{"the same range on both sides", two, two, "10.20.5.10", "10.20.5.10"},
		{"the first of two that overlap", []string{"10.1.0.0/16", "10.0.0.0/8"}, []string{"10.9.0.0/16", "11.0.0.0/8"}, "10.1.0.1", "10.9.0.1"},
		{"a length between bytes", []string{"10.0.0.0/10"}, []string{"40.128.0.0/10"}, "10.33.2.1", "40.161.2.1"},
		{"one address", []string{"10.0.0.7/32"}, []string{"10.9.9.9/32"}, "10.0.0.7", "10.9.9.9"},
		{"everything", []string{"0.0.0.0/0"}, []string{"0.0.0.0/0"}, "10.0.0.7", "10.0.0.7"},
		{"prefixes with host bits", []string{"10.1.2.3/16"}, []string{"10.0.9.9/16"}, "10.1.1.2", "10.0.1.2"},
		{"IPv6", []string{"fd00:1::/48"}, []string{"fd00:2::/48"}, "fd00:1:0:5::9", "fd00:2:0:5::9"},
		{"IPv6 between bytes", []string{"fc00::/7"}, []string{"fe00::/7"}, "fdff::1", "ffff::1"},
		{"an IPv4 address written as IPv6", []string{"10.1.0.0/16"}, []string{"10.0.0.0/16"}, "::ffff:10.1.1.2", "10.0.1.2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ranges := newRanges(t, test.from, test.to)
			got, err := ranges.Map(netip.MustParseAddr(test.address))
			if err != nil || got.String() != test.mapped {
				t.Errorf("%s is seen as %s, error %v, want %s", test.address, got, err, test.mapped)
			}
			if !ranges.Sees(got) {
				t.Errorf("%s is not among what is seen", got)
			}
		})
	}
}

func TestMapOutsideOfTheRangesNamesThem(t *testing.T) {
	ranges := newRanges(t, []string{"10.1.0.0/16", "fd00::/48"}, []string{"10.2.0.0/16", "fd01::/48"})
	for _, address := range []string{"10.2.0.1", "192.168.0.1", "fd01::1", "fd00::1%eth0"} {
		_, err := ranges.Map(netip.MustParseAddr(address))
		if err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "10.1.0.0/16, fd00::/48") {
			t.Errorf("%s: %v, want an error that names it and the ranges", address, err)
		}
	}
	if _, err := (overlay.Ranges{}).Map(netip.MustParseAddr("10.0.0.1")); err == nil {
		t.Error("an address was mapped without a range")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		name       string
		from, to   []string
		unfinished bool
	}{
		{"nothing chosen yet", []string{"10.0.0.0/16"}, nil, true},
		{"a void entry", []string{"10.0.0.0/16", "10.1.0.0/16"}, []string{"10.0.0.0/16", ""}, true},
		{"no prefix", []string{"10.0.0.0"}, []string{"10.0.0.0/16"}, false},
		{"another size", []string{"10.0.0.0/16"}, []string{"10.0.0.0/17"}, false},
		{"another family", []string{"10.0.0.0/16"}, []string{"fd00::/16"}, false},
		{"IPv4 as IPv6", []string{"::ffff:10.0.0.0/112"}, []string{"::ffff:10.1.0.0/112"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := overlay.New(test.from, test.to); err == nil || errors.Is(err, overlay.ErrUnfinished) != test.unfinished {
				t.Errorf("%v, want an error, unfinished %t", err, test.unfinished)
			}
		})
	}
}

// peers are clusters with the same ranges, as one consumer sees them: with distinct mapped
// ranges, as Liqo's IPAM ensures.
func peers(t testing.TB, random *rand.Rand, count int) []overlay.Ranges {
	t.Helper()
	bits := 9 + random.IntN(15)
	from := []string{fmt.Sprintf("10.0.0.0/%d", bits), fmt.Sprintf("172.0.0.0/%d", bits), fmt.Sprintf("fd00::/%d", 32+bits)}
	all := make([]overlay.Ranges, count)
	for i := range all {
		var v4 [2][4]byte
		for k := range v4 {
			binary.BigEndian.PutUint32(v4[k][:], uint32(2*i+k+1)<<(32-bits))
		}
		var v6 [16]byte
		binary.BigEndian.PutUint64(v6[:], 0xfd00_0000_0000_0000|uint64(i+1)<<(64-32-bits))
		all[i] = newRanges(t, from, []string{
			netip.PrefixFrom(netip.AddrFrom4(v4[0]), bits).String(),
			netip.PrefixFrom(netip.AddrFrom4(v4[1]), bits).String(),
			netip.PrefixFrom(netip.AddrFrom16(v6), 32+bits).String(),
		})
	}
	return all
}

// within returns a random address of a prefix.
func within(random *rand.Rand, prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= byte(random.IntN(2)) << (7 - bit%8)
	}
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

func TestProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		all := peers(t, random, 1+random.IntN(8))
		seen := map[netip.Addr]string{}
		for i, ranges := range all {
			for _, r := range ranges {
				back := overlay.Ranges{{From: r.To, To: r.From}}
				for range 8 {
					address := within(random, r.From)
					mapped, err := ranges.Map(address)
					if err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("peer %d's %s", i, address)
					if !r.To.Contains(mapped) {
						t.Errorf("%s is seen as %s, outside of %s", what, mapped, r.To)
					}
					if hostBits(address, r.From.Bits()) != hostBits(mapped, r.To.Bits()) {
						t.Errorf("%s is seen as %s with other host bits (/%d)", what, mapped, r.To.Bits())
					}
					if original, err := back.Map(mapped); err != nil || original != address {
						t.Errorf("%s is seen as %s, which is %s, error %v", what, mapped, original, err)
					}
					if other, ok := seen[mapped]; ok && other != what {
						t.Errorf("%s and %s are both seen as %s", what, other, mapped)
					}
					seen[mapped] = what
				}
			}
		}
	}
}

// hostBits returns an address with a zero prefix. It is written differently from the
// package on purpose.
func hostBits(address netip.Addr, bits int) string {
	var text strings.Builder
	for i, b := range address.AsSlice() {
		for k := range 8 {
			if i*8+k >= bits {
				fmt.Fprint(&text, b>>(7-k)&1)
			}
		}
	}
	return text.String()
}

func TestMapIsABijectionOfARange(t *testing.T) {
	ranges := newRanges(t, []string{"10.1.16.0/20"}, []string{"10.9.240.0/20"})
	seen := map[netip.Addr]bool{}
	for address := netip.MustParseAddr("10.1.16.0"); ranges[0].From.Contains(address); address = address.Next() {
		mapped, err := ranges.Map(address)
		if err != nil || !ranges[0].To.Contains(mapped) || seen[mapped] {
			t.Fatalf("%s is seen as %s: error %v, or outside of %s, or twice", address, mapped, err, ranges[0].To)
		}
		seen[mapped] = true
	}
	if len(seen) != 1<<12 {
		t.Errorf("%d addresses, want %d", len(seen), 1<<12)
	}
}

func TestMapAgreesWithLiqo(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		for _, ranges := range peers(t, random, 3) {
			configuration := &networkingv1beta1.Configuration{Status: networkingv1beta1.ConfigurationStatus{
				Remote: &networkingv1beta1.ClusterConfig{},
				Conditions: []metav1.Condition{{
					Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue,
				}},
			}}
			for _, r := range ranges {
				from, to := &configuration.Spec.Remote.CIDR, &configuration.Status.Remote.CIDR
				from.Pod = append(from.Pod, networkingv1beta1.CIDR(r.From.String()))
				to.Pod = append(to.Pod, networkingv1beta1.CIDR(r.To.String()))
			}
			for _, r := range ranges {
				address := within(random, r.From)
				theirs, err := mapping.MapAddressWithConfiguration(configuration, address.String())
				if err != nil {
					t.Fatal(err)
				}
				if ours, err := ranges.Map(address); err != nil || ours != netip.MustParseAddr(theirs) {
					t.Errorf("%s of %s is %s, error %v, and %s by Liqo", address, r, ours, err, theirs)
				}
			}
		}
	}
}

func FuzzMap(f *testing.F) {
	f.Add("10.1.0.0/16", "10.0.0.0/16", "10.1.1.2")
	f.Add("fd00::/48", "fd01::/48", "fd00::1")
	f.Fuzz(func(t *testing.T, from, to, text string) {
		ranges, err := overlay.New([]string{from}, []string{to})
		address, addressErr := netip.ParseAddr(text)
		if err != nil || addressErr != nil {
			return
		}
		mapped, err := ranges.Map(address)
		if err != nil {
			return
		}
		original, err := overlay.Ranges{{From: ranges[0].To, To: ranges[0].From}}.Map(mapped)
		if err != nil || original != address.Unmap() {
			t.Errorf("%s is seen as %s, which is %s, error %v", address, mapped, original, err)
		}
	})
}

func BenchmarkMap(b *testing.B) {
	for _, count := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("ranges=%d", count), func(b *testing.B) {
			from, to := make([]string, count), make([]string, count)
			for i := range count {
				from[i], to[i] = fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("11.%d.0.0/16", i)
			}
			ranges := newRanges(b, from, to)
			random := rand.New(rand.NewPCG(5, 6))
			addresses := make([]netip.Addr, 1024)
			for i := range addresses {
				addresses[i] = within(random, ranges[random.IntN(count)].From)
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if _, err := ranges.Map(addresses[n%len(addresses)]); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "addresses/s")
		})
	}
}
