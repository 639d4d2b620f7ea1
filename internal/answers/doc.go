// Package answers decides which HTTP answers are accepted as a Kubernetes API server's own.
//
// A load balancer, a proxy or a login page in front of an API server answers too: with a plain
// 404, with `200 {}`, with HTML. client-go takes the first for "the object is gone" and the
// second for an object without content. A controller that acts on that deletes objects that
// still exist. [Transport] sits below every client of a hub or a member cluster. It passes only
// answers that an API server gives. Everything else is an [*Error]: a fault to retry.
//
// Accepted are (Kubernetes API Conventions, "Response Status Kind", "HTTP Status codes"):
//
//   - an object of the API group and version, name and namespace of the request;
//   - a list of that API group and version, with a resource version;
//   - an error that is a Status object with the code of the answer;
//   - "not found", for reads and deletions, only if that Status names the requested object
//     and the cluster has confirmed its identity recently ([Pin]);
//   - a plain 404 for an API that is not in the server's own list of APIs.
//
// Answers 429 and 5xx pass unchanged: client-go retries them, and no caller concludes anything
// from them. [Bound] limits the length of all answers: those of a member cluster may be a stranger's.
package answers
