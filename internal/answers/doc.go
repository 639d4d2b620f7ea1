// Package answers decides which HTTP answers are believed to be a Kubernetes API
// server's own.
//
// A load balancer, a proxy or a login page that stands in for an API server answers
// too: with a plain 404, with `200 {}`, with HTML. client-go takes the first for "the
// object is gone" and the second for an object without content, and whoever acts on
// that loses what is still there. [Transport] sits below every client of a hub or a
// member cluster, and lets through only what an API server says in its own words. All
// else is an [*Error], which is a fault to retry.
//
// Believed are (Kubernetes API Conventions, "Response Status Kind", "HTTP Status codes"):
//
//   - an object of the API group and version, name and namespace that were asked for;
//   - a list of that API group and version, with a resource version;
//   - an error that is a Status object with the code of the answer;
//   - "not found", to reads and deletions, only if that Status names the very object,
//     and the cluster has shown since a moment ago that it is the one it was ([Pin]);
//   - a plain 404 for an API that the server does not serve by its own list of APIs.
//
// Answers 429 and 5xx pass as they are: client-go retries them, and nobody concludes
// anything from them.
package answers
