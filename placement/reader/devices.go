package reader

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

const (
	// mostClasses bounds the device classes of a cluster. A cluster with more sells no devices.
	mostClasses = 64
	// mostDevices bounds the devices of a cluster. A cluster with more sells none: each is compared with each class.
	mostDevices = 1 << 16
	// mostUncounted bounds the reason why devices do not count, in characters.
	mostUncounted = 256
)

// devices are the objects of a cluster by which its devices are counted (Dynamic Resource Allocation). The zero value has
// none.
type devices struct {
	classes []*resourcev1.DeviceClass
	slices  []*resourcev1.ResourceSlice
	claims  []*resourcev1.ResourceClaim
	// hidden reports whether a class is not sold here, nor was; nil if none is.
	hidden func(class string) bool
	// selects returns which devices of a slice a class selects.
	selects func(*resourcev1.DeviceClass, *resourcev1.ResourceSlice) selection
}

// counting has the count of each class, and what it is made by.
type counting struct {
	// tallies of the classes that are sold, and why nothing of some of them counts, by class.
	tallies   map[string]*tally
	uncounted map[string]string
	// free has the resources left on each node that takes workloads.
	free map[string]placement.Resources
	// used are the devices that are allocated, and foreign those of them in foreign namespaces.
	used, foreign map[deviceID]bool
}

// addTo counts the devices of each class: those that no other class selects, on nodes that take workloads or on no node.
// free has the resources left on these nodes, and gets the devices that are. Foreign use is of claims in namespaces that
// are foreign.
func (d devices) addTo(u *Reading, free map[string]placement.Resources, foreign func(namespace string) bool) {
	c := &counting{tallies: map[string]*tally{}, uncounted: map[string]string{}, free: free}
	c.used, c.foreign = d.allocated(foreign)
	tooMany, classes := d.tooMany(), slices.Clone(d.classes)
	slices.SortFunc(classes, func(a, b *resourcev1.DeviceClass) int { return cmp.Compare(a.Name, b.Name) })
	classes = classes[:min(len(classes), mostClasses)]
	var pools []*pool
	if tooMany == "" {
		pools = poolsOf(d.slices)
	}
	for _, class := range classes {
		if d.isSold(class.Name) {
			c.tallies[class.Name] = &tally{nodes: map[string]int64{}, shared: map[string]bool{}}
			c.uncounted[class.Name] = d.find(class, pools)
		}
		if extended := extendedOf(class); extended != "" && has(u.Allocatable, extended) {
			c.uncounted[class.Name] = fmt.Sprintf("nodes have %s, too, by which pods may take its devices", extended)
		}
	}
	for _, p := range pools {
		for _, g := range p.groups() {
			c.add(g)
		}
	}
	for _, class := range classes {
		reason := c.uncounted[class.Name]
		if t := c.tallies[class.Name]; t != nil {
			t.addTo(u, free, v1alpha1.DevicesResource(class.Name))
			reason = cmp.Or(reason, t.overlaps())
		}
		u.DeviceClasses = append(u.DeviceClasses, v1alpha1.DeviceClass{
			Name: class.Name, ExtendedResource: string(extendedOf(class)), Uncounted: v1alpha1.Cut(cmp.Or(tooMany, reason), mostUncounted),
		})
	}
}

// tooMany returns why no device of the cluster counts, however many it has; empty if they do.
func (d devices) tooMany() string {
	count := 0
	for _, slice := range d.slices {
		count += len(slice.Spec.Devices)
	}
	switch {
	case len(d.classes) > mostClasses:
		return fmt.Sprintf("the cluster has %d device classes, and none counts with more than %d", len(d.classes), mostClasses)
	case count > mostDevices:
		return fmt.Sprintf("the cluster has %d devices, and none counts with more than %d", count, mostDevices)
	}
	return ""
}

func (d devices) isSold(class string) bool { return d.hidden == nil || !d.hidden(class) }

// extendedOf returns the extended resource by which pods may take devices of a class; empty if there is none beside the one
// that is named after the class.
func extendedOf(class *resourcev1.DeviceClass) corev1.ResourceName {
	return corev1.ResourceName(ptr.Deref(class.Spec.ExtendedResourceName, ""))
}

func has(resources corev1.ResourceList, name corev1.ResourceName) bool {
	amount := resources[name]
	return !amount.IsZero()
}

// find adds a class to the devices that it selects. If its selector fails on one, it returns the reason: the scheduler
// allocates nothing of the class on that device's nodes.
func (d devices) find(class *resourcev1.DeviceClass, pools []*pool) (failure string) {
	for _, p := range pools {
		for _, s := range p.slices {
			found := d.selects(class, s.ResourceSlice)
			failure = cmp.Or(failure, found.failure)
			for i, is := range found.selected {
				if is {
					s.devices[i].classes = append(s.devices[i].classes, class.Name)
				}
			}
		}
	}
	return failure
}

// deviceID names a device in a cluster.
type deviceID struct{ driver, pool, device string }

// allocated returns the devices that are allocated to claims, and those of them allocated to foreign ones. Admin access takes
// no device from others.
func (d devices) allocated(foreign func(namespace string) bool) (all, others map[deviceID]bool) {
	all, others = map[deviceID]bool{}, map[deviceID]bool{}
	for _, claim := range d.claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if ptr.Deref(r.AdminAccess, false) {
				continue
			}
			id := deviceID{r.Driver, r.Pool, r.Device}
			all[id] = true
			if foreign(claim.Namespace) {
				others[id] = true
			}
		}
	}
	return all, others
}

// tally is the count of one class.
type tally struct {
	count, foreign int64
	// nodes have so many devices free each.
	nodes map[string]int64
	// anywhere means that some devices are bound to no node.
	anywhere bool
	// overlapping devices are those that the class shares with other classes.
	overlapping int
	shared      map[string]bool
}

func (t *tally) addTo(u *Reading, free map[string]placement.Resources, name corev1.ResourceName) {
	counted := corev1.ResourceList{name: *resource.NewQuantity(t.count, resource.DecimalSI)}
	sum(u.Capacity, counted)
	sum(u.Allocatable, counted)
	if t.foreign > 0 {
		sum(u.Foreign, corev1.ResourceList{name: *resource.NewQuantity(t.foreign, resource.DecimalSI)})
	}
	if t.anywhere {
		return // which node has room for how many is not known
	}
	for node, left := range t.nodes {
		free[node][name] = left
	}
}

// overlaps says which other classes have devices of this one; empty if none has.
func (t *tally) overlaps() string {
	if t.overlapping == 0 {
		return ""
	}
	return fmt.Sprintf("%d of its devices overlap with those of %s", t.overlapping, strings.Join(slices.Sorted(maps.Keys(t.shared)), ", "))
}
