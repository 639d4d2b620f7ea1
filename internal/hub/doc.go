// Package hub supplies the API server that stores Sluice's resources: an
// embedded one on a laptop and in tests, a Kubernetes cluster in production.
// All other code sees only [Hub.Config], which is the same for both.
//
// The embedded hub is etcd and the API server for custom resources
// (k8s.io/apiextensions-apiserver) in this process. It serves custom resource
// definitions and custom resources, with validation, CEL rules, status
// subresources, server-side apply, finalizers, optimistic locking and watches,
// exactly as Kubernetes does, because it is the same code; but it records who
// wrote which field only once somebody has applied the object. It has no Secrets,
// Leases, Events, Namespaces or garbage collector: code that runs on it must
// not need them, and owner references delete nothing.
//
// Durability: a write is acknowledged after etcd has synced its log to disk.
// Killing the process at any instant loses no acknowledged write.
//
// Trust: anyone who can read this user's files controls the hub. etcd listens on sockets in a
// directory of mode 0700 only; the API listens on 127.0.0.1 with a certificate and a bearer
// token made at each start and written to [KubeconfigPath] with mode 0600. There is one API
// user, who may do everything; requests without the token get 401.
//
// This package must not know what the resources mean; it installs the definitions it finds in
// package charts.
package hub
