package main

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

var stripManagedFields = cache.TransformStripManagedFields()

// slim makes an object smaller before the cache keeps it, and before anybody else has it. It drops the managed fields,
// which nothing reads. Texts and lists of resources that many objects have are kept once. A delivered instance has its
// state and its decision twice; the cache keeps one of each. Readers get copies that share nothing that can be changed.
func (p *interned) slim(object any) (any, error) {
	p.share(reflect.ValueOf(object))
	if i, is := object.(*v1alpha1.ServiceInstance); is {
		shareDelivered(i)
	}
	return stripManagedFields(object)
}

// shareDelivered makes what an instance delivered share its memory with what it has to deliver, where both are the
// same.
func shareDelivered(i *v1alpha1.ServiceInstance) {
	delivered, decision := i.Status.Delivered, i.Status.Decision
	if delivered == nil || decision == nil {
		return
	}
	if reflect.DeepEqual(&delivered.Decision, decision) {
		i.Status.Decision = &delivered.Decision
	}
	if reflect.DeepEqual(delivered.State, i.Spec.Desired) {
		delivered.State = i.Spec.Desired
	}
}

// mostInterned is the number of texts, and of lists of resources, after which interned begins anew: most texts are of one
// object only.
const mostInterned = 1 << 14

// interned has one of each text and each list of resources that was seen lately. What it returns must not be changed.
// It is safe for concurrent use.
type interned struct {
	mu    sync.Mutex
	texts map[string]string
	lists map[string]corev1.ResourceList
}

func newInterned() *interned {
	return &interned{texts: map[string]string{}, lists: map[string]corev1.ResourceList{}}
}

// share replaces the texts and the lists of resources in a value by those that are interned.
func (p *interned) share(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p.share(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				p.share(field)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				p.share(v.Index(i))
			}
		}
	case reflect.String:
		v.SetString(p.text(v.String()))
	case reflect.Map:
		if list, is := v.Interface().(corev1.ResourceList); is && len(list) > 0 {
			v.Set(reflect.ValueOf(p.list(list)))
		}
	}
}

func (p *interned) text(text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return intern(p.texts, text, text)
}

func (p *interned) list(list corev1.ResourceList) corev1.ResourceList {
	amounts := make([]string, 0, len(list))
	for name, amount := range list {
		amounts = append(amounts, string(name)+" "+amount.String())
	}
	slices.Sort(amounts)
	p.mu.Lock()
	defer p.mu.Unlock()
	return intern(p.lists, strings.Join(amounts, ","), list)
}

// intern returns the value that a map has by a key. If it has none, it gets this one.
func intern[T any](in map[string]T, key string, value T) T {
	if known, there := in[key]; there {
		return known
	}
	if len(in) == mostInterned {
		clear(in)
	}
	in[key] = value
	return value
}
