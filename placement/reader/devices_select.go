package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

const (
	// mostSelectors bounds the compiled selectors that are kept, of all clusters.
	mostSelectors = 1024
	// mostSelecting bounds the time that a reading evaluates selectors: a cluster may have costly ones, and many devices. The
	// next reading goes on from there.
	mostSelecting = 5 * time.Second
)

// compiled keeps selectors. Each evaluation costs at most resourcev1.CELSelectorExpressionMaxCost.
var compiled = cel.NewCache(mostSelectors, cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})

// selection lists which devices of a slice a class selects, in their order, and why that failed for one of them.
type selection struct {
	selected []bool
	failure  string
}

// selections keeps what the last reading has found, because most classes and slices are the same in the next. It is safe for
// concurrent use.
type selections struct {
	mu         sync.Mutex
	last, next map[selectionKey]selection
}

// selectionKey has objects of an informer, which are replaced and never changed.
type selectionKey struct {
	class *resourcev1.DeviceClass
	slice *resourcev1.ResourceSlice
}

// begin starts a reading, which forgets what the one before it has not used.
func (s *selections) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.next = s.next, map[selectionKey]selection{}
}

// of selects, unless that is known. A selection that the end of the context cuts off is not kept.
func (s *selections) of(ctx context.Context, class *resourcev1.DeviceClass, slice *resourcev1.ResourceSlice) selection {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := selectionKey{class, slice}
	found, known := s.last[key]
	if !known {
		found = selectionOf(ctx, class, slice)
	}
	if known || ctx.Err() == nil {
		s.next[key] = found
	}
	return found
}

// selectionOf evaluates the selectors of a class for each device of a slice, until the context ends.
func selectionOf(ctx context.Context, class *resourcev1.DeviceClass, slice *resourcev1.ResourceSlice) selection {
	out := selection{selected: make([]bool, len(slice.Spec.Devices))}
	for i := range slice.Spec.Devices {
		if ctx.Err() != nil {
			break
		}
		device := &slice.Spec.Devices[i]
		var err error
		out.selected[i], err = isSelected(ctx, class, cel.Device{
			Driver: slice.Spec.Driver, AllowMultipleAllocations: device.AllowMultipleAllocations,
			Attributes: device.Attributes, Capacity: device.Capacity,
		})
		if err != nil && out.failure == "" {
			out.failure = fmt.Sprintf("its selector fails on device %s of pool %s: %v", device.Name, slice.Spec.Pool.Name, err)
		}
	}
	return out
}

// isSelected reports whether a device has all that the selectors of a class ask for.
func isSelected(ctx context.Context, class *resourcev1.DeviceClass, device cel.Device) (bool, error) {
	for _, selector := range class.Spec.Selectors {
		if selector.CEL == nil {
			return false, errors.New("it is of a kind that this version of Sluice does not know")
		}
		program := compiled.GetOrCompile(selector.CEL.Expression)
		if program.Error != nil {
			return false, program.Error
		}
		if is, _, err := program.DeviceMatches(ctx, device); err != nil || !is {
			return false, err
		}
	}
	return true, nil
}
