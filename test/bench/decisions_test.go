package main

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// Every field of plans and policies is part of a kind that is measured, or does not matter to a decision.
func TestEveryFieldIsMeasured(t *testing.T) {
	measured := map[string]bool{}
	for _, k := range kinds {
		a := asked{Plan: v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{corev1.ResourceCPU: *amount("1")}}}
		k.set(&a)
		setFields("", reflect.ValueOf(a), measured)
	}
	all := map[string]bool{}
	fields("", reflect.TypeFor[asked](), all)
	for field := range all {
		of := func(without string) bool { return field == without || strings.HasPrefix(field, without+".") }
		reason := ""
		for without, why := range uncovered {
			if of(without) {
				reason = why
			}
		}
		if measured[field] == (reason != "") {
			t.Errorf("%s: measured is %t, and the reason for not measuring it %q", field, measured[field], reason)
		}
	}
	for without := range uncovered {
		if !all[without] {
			t.Errorf("%s is no field", without)
		}
	}
}

// Every field of a cluster is an event that is measured.
func TestEveryFieldOfAClusterIsAnEvent(t *testing.T) {
	of := reflect.TypeFor[placement.Cluster]()
	for i := range of.NumField() {
		name := of.Field(i).Name
		if name == "Name" {
			continue // another name is another cluster
		}
		change := changes[name]
		if change == nil {
			t.Errorf("no event changes %s", name)
			continue
		}
		was, is := member(77), member(77)
		change(was, false)
		change(is, true)
		for k := range of.NumField() {
			same := reflect.DeepEqual(reflect.ValueOf(*was).Field(k).Interface(), reflect.ValueOf(*is).Field(k).Interface())
			if same == (k == i) {
				t.Errorf("the event of %s: %s is the same: %t", name, of.Field(k).Name, same)
			}
		}
	}
}

const apiPackage = "github.com/sluice-dev/sluice/api/v1alpha1"

// fields adds the fields of a type of the API and of the types in it.
func fields(path string, of reflect.Type, all map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		fields(path, of.Elem(), all)
		return
	case reflect.Struct:
		if path != "" && of.PkgPath() != apiPackage {
			break
		}
		for i := range of.NumField() {
			f := of.Field(i)
			if f.Anonymous {
				fields(path, f.Type, all)
			} else {
				all[strings.TrimPrefix(path+"."+f.Name, ".")] = true
				fields(strings.TrimPrefix(path+"."+f.Name, "."), f.Type, all)
			}
		}
	}
}

// setFields adds the fields that are set.
func setFields(path string, of reflect.Value, set map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer:
		if !of.IsNil() {
			setFields(path, of.Elem(), set)
		}
	case reflect.Slice:
		for i := range of.Len() {
			setFields(path, of.Index(i), set)
		}
	case reflect.Struct:
		if path != "" && of.Type().PkgPath() != apiPackage {
			break
		}
		for i := range of.NumField() {
			f, name := of.Field(i), path
			if !of.Type().Field(i).Anonymous {
				name = strings.TrimPrefix(path+"."+of.Type().Field(i).Name, ".")
				set[name] = set[name] || !f.IsZero()
			}
			setFields(name, f, set)
		}
	}
}
