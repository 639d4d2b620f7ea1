// Package elastic makes clusters for instances that fit nowhere, as placement policies allow, and gives
// them back when they are not needed any more (v1alpha1.Elastic).
package elastic
