// Package server is the HTTP side of self-descriptions: the federated catalogue of the
// providers' credentials, and the broker's own DID document, keys and vocabulary.
//
// It reads SelfDescriptions from the manager's cache and creates them. Package controller,
// which it must not know, decides whether they are valid.
package server
