// Package server is the HTTP side of self-descriptions: the federated catalogue of
// what providers say of themselves, and what the broker publishes of itself.
//
// It reads SelfDescriptions from the manager's cache and creates them; whether one
// is worth anything is found by package controller, which it must not know.
package server
