package carried

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// longest is the size of a sealed order in bytes beyond which it is not carried: an object has at most 256 KiB of annotations.
const longest = 128 << 10

// mostBytes bounds an order that is opened. No object of the hub is larger.
const mostBytes = 2 << 20

// Order is an instance as it is delivered.
type Order struct {
	// UID of the ServiceInstance, to which SealedSecrets is bound.
	UID types.UID `json:"uid"`
	// Spec has the delivered state as Desired, and no OriginatingIdentity.
	Spec v1alpha1.ServiceInstanceSpec `json:"spec"`
	// Decision that is delivered, without what explains it, and without what changes while it is delivered.
	Decision v1alpha1.Decision `json:"decision"`
	// SealedSecrets of the workload, as in the status of the ServiceInstance.
	SealedSecrets []byte `json:"sealedSecrets,omitempty"`
}

// Of returns the order by which an instance is delivered in a state.
func Of(i *v1alpha1.ServiceInstance, state *v1alpha1.InstanceState) *Order {
	from := i.Status.Decision
	if delivered := i.Status.DeliveredDecision(); delivered != nil && i.Status.IsFinished() && !i.Status.IsMoving() {
		from = delivered // also after an update that failed
	}
	o := &Order{UID: v1alpha1.UIDOf(i), Spec: *i.Spec.DeepCopy(), SealedSecrets: i.Status.SealedSecrets}
	o.Spec.OriginatingIdentity = nil
	o.Spec.Desired = *state.DeepCopy()
	if from == nil {
		return o
	}
	d := from.DeepCopy()
	o.Decision = v1alpha1.Decision{
		Placements: d.Placements, PriorityClass: d.PriorityClass, Workload: d.Workload, Exposed: d.Exposed, Hosts: d.Hosts,
	}
	for k := range o.Decision.Placements {
		o.Decision.Placements[k].Replaced, o.Decision.Placements[k].Grown = nil, nil
	}
	return o
}

// Adoptable returns an error that says why an instance cannot be made again by the order alone; nil if it can.
func (o *Order) Adoptable() error {
	if len(o.Decision.Placements) == 0 {
		return errors.New("its order has no decision")
	}
	for i := range o.Decision.Placements {
		switch p := &o.Decision.Placements[i]; {
		case p.Shape != nil:
			return errors.New("it is a cluster, of which the hub has to know more than the order")
		case p.Peering != nil:
			return errors.New("it needs a peering, of which the hub has to know more than the order")
		case p.Upstream != nil:
			return errors.New("it is an instance of another broker")
		}
	}
	return nil
}

// IsOf reports whether a specification is the order's, whoever asked for it.
func (o *Order) IsOf(spec *v1alpha1.ServiceInstanceSpec) bool {
	spec = spec.DeepCopy()
	spec.OriginatingIdentity = nil
	return same(spec, &o.Spec)
}

// Equal reports whether two orders are the same.
func (o *Order) Equal(other *Order) bool { return same(o, other) }

// same compares by the meaning of the JSON: what consumers sent is kept in the form in which they sent it.
func same(a, b any) bool {
	var decoded [2]any
	for i, value := range []any{a, b} {
		encoded, err := json.Marshal(value)
		if err != nil || json.Unmarshal(encoded, &decoded[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(decoded[0], decoded[1])
}

// Seal returns the order as a namespace carries it: have, if that is the same order already, and otherwise a new text; an
// empty one if the order is too large. The instance is named by the namespace and the name of its ServiceInstance.
func (o *Order) Seal(keys *seal.Keyset, namespace, name, have string) (string, error) {
	plain, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("write the order of %s: %w", name, err)
	}
	if had, err := open(have, keys, namespace, name); err == nil && bytes.Equal(had, plain) {
		return have, nil
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write(plain)
	if err := errors.Join(err, w.Close()); err != nil {
		return "", fmt.Errorf("write the order of %s: %w", name, err)
	}
	sealed, err := keys.Seal(zipped.Bytes(), owner(namespace, name))
	if err != nil {
		return "", fmt.Errorf("seal the order of %s: %w", name, err)
	}
	if base64.StdEncoding.EncodedLen(len(sealed)) > longest {
		return "", nil
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// Open returns the order in a text that Seal has made for the same instance.
func Open(text string, keys *seal.Keyset, namespace, name string) (*Order, error) {
	if text == "" {
		return nil, errors.New("it carries no order: it is too large, or an earlier version of Sluice has delivered it")
	}
	plain, err := open(text, keys, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("open the order that it carries: %w", err)
	}
	o := &Order{}
	if err := json.Unmarshal(plain, o); err != nil {
		return nil, errors.New("open the order that it carries: this is not what was sealed") // the cause would quote it
	}
	if v1alpha1.InstanceName(o.Spec.Platform, o.Spec.InstanceID) != name {
		return nil, errors.New("the order that it carries is of another instance")
	}
	return o, nil
}

func open(text string, keys *seal.Keyset, namespace, name string) ([]byte, error) {
	sealed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("it is not base64")
	}
	zipped, err := keys.Unseal(sealed, owner(namespace, name))
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(zipped.Reveal()))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	if err == nil && len(plain) > mostBytes {
		err = fmt.Errorf("it has more than %d bytes", mostBytes)
	}
	return plain, err
}

// owner returns the context to which a sealed order is bound.
func owner(namespace, name string) []byte { return seal.Owner("order", namespace, name, "") }
