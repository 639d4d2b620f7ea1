package workload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// SetClaims are the claims that a StatefulSet makes of its templates, one of each for a pod. They are found by their names
// and the labels of the set's selector, as Kubernetes gives them nothing else that lasts.
type SetClaims struct {
	// Set is the name of the StatefulSet.
	Set       string
	templates []string
	labels    map[string]string
	// Pods have the ordinals from first up to, and without, end.
	first, end int64
	// Scaled means that an autoscaler of the order bounds the number of pods.
	Scaled bool
}

// ClaimsOf returns the claims of a StatefulSet; nil if it has no templates. Most is the number of pods that its
// autoscaler allows, or 0.
func ClaimsOf(set *appsv1.StatefulSet, most int64) *SetClaims {
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	c := &SetClaims{Set: set.Name, Scaled: most > 0}
	for i := range set.Spec.VolumeClaimTemplates {
		c.templates = append(c.templates, set.Spec.VolumeClaimTemplates[i].Name)
	}
	if set.Spec.Selector != nil {
		c.labels = set.Spec.Selector.MatchLabels
	}
	if set.Spec.Ordinals != nil {
		c.first = int64(set.Spec.Ordinals.Start)
	}
	c.end = c.first + max(replicas(set.Spec.Replicas), most)
	return c
}

// AsRunning returns the claims of pods that a set has on a cluster; of one without pods all, because it may have been stopped.
func (c *SetClaims) AsRunning(set *appsv1.StatefulSet) *SetClaims {
	running := *c
	if running.end = c.first + replicas(set.Spec.Replicas); running.end == c.first {
		running.end = math.MaxInt64
	}
	return &running
}

// AllSetClaims returns the claims of all StatefulSets of a workload that have templates.
func AllSetClaims(objects []*unstructured.Unstructured) ([]*SetClaims, error) {
	most, err := scaled(objects)
	if err != nil {
		return nil, err
	}
	var all []*SetClaims
	for _, o := range objects {
		if o.GetKind() != "StatefulSet" {
			continue
		}
		set := &appsv1.StatefulSet{}
		if err := typed(o, set); err != nil {
			return nil, err
		}
		if c := ClaimsOf(set, most["StatefulSet/"+set.Name]); c != nil {
			all = append(all, c)
		}
	}
	return all, nil
}

// ClaimCount returns the number of PersistentVolumeClaims of a workload and of its StatefulSets together.
func ClaimCount(objects []*unstructured.Unstructured) (int64, error) {
	specs, err := ClaimSpecs(objects)
	if err != nil {
		return 0, err
	}
	sets, err := AllSetClaims(objects)
	if err != nil {
		return 0, err
	}
	count := int64(len(specs))
	for _, c := range sets {
		count += int64(len(c.templates)) * (c.end - c.first)
	}
	return count, nil
}

// Made reports whether the set has made a claim, and whether a pod of the set has it. The pod need not run.
func (c *SetClaims) Made(claim *corev1.PersistentVolumeClaim) (made, used bool) {
	for name, value := range c.labels {
		if claim.Labels[name] != value {
			return false, false
		}
	}
	i := strings.LastIndexByte(claim.Name, '-')
	if i < 0 {
		return false, false
	}
	ordinal, err := strconv.ParseInt(claim.Name[i+1:], 10, 32)
	if err != nil || strconv.FormatInt(ordinal, 10) != claim.Name[i+1:] {
		return false, false
	}
	made = slices.ContainsFunc(c.templates, func(template string) bool {
		return claim.Name == fmt.Sprintf("%s-%s-%d", template, c.Set, ordinal)
	})
	return made, made && ordinal >= c.first && ordinal < c.end
}

// ClaimSpecs returns the PersistentVolumeClaims of a workload, by their names.
func ClaimSpecs(objects []*unstructured.Unstructured) (map[string]*corev1.PersistentVolumeClaimSpec, error) {
	specs := map[string]*corev1.PersistentVolumeClaimSpec{}
	for _, o := range objects {
		if o.GetKind() != "PersistentVolumeClaim" {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := typed(o, claim); err != nil {
			return nil, err
		}
		specs[claim.Name] = &claim.Spec
	}
	return specs, nil
}
