// Package controlplane starts Kubernetes control planes as processes of this host, for tests and benchmarks that need
// more than one cluster and no container runtime.
//
//	cp := controlplane.Start(t, controlplane.Options{Name: "eu-1", Nodes: []controlplane.Node{{Name: "n1", CPU: "8"}}})
//	client := kubernetes.NewForConfigOrDie(cp.Config())
//
// # What is real
//
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the released sources, built by
// test/kubernetes/build.sh. Authentication (client certificates and service account tokens; anonymous users reach the
// health endpoints only), RBAC, admission (ResourceQuota, LimitRange, NamespaceLifecycle, Pod Security and the rest of the
// defaults), server-side apply, the token API, certificate signing, garbage collection, namespace deletion, Deployments,
// Jobs and scheduling behave as in any cluster, including its delays:
//
//   - The API server remembers a good token for 10 seconds: that long a token may outlive its ServiceAccount.
//   - A namespace ends 5 seconds after it was deleted at the earliest, and after about 10 if pods with the default
//     terminationGracePeriodSeconds are in it; give them one of 1.
//   - The ResourceQuota, garbage collection and namespace controllers see a new CustomResourceDefinition within 30 seconds.
//   - A node without a heartbeat for 50 seconds is given up. When the API server was away for longer than that, nodes can be
//     given up as it returns; they are back within 10 seconds, their pods within 20.
//   - Components reconnect to an API server with a backoff that reaches half a minute.
//
// # What is simulated
//
// Machines. A [Node] is an object whose heartbeats one goroutine renews; a pod bound to it is Running and Ready at once,
// with an address at which nobody listens, and gone at once when deleted. A pod of a Job succeeds at once, and
// fails if its command is false. So there are no containers, logs, exec, probes, init containers, readiness gates, images, volumes or pod network; no kube-proxy, no DNS, no
// load balancers and no storage provisioner; webhooks must be reached by URL, and an aggregated API cannot be reached at all.
//
// # What differs
//
// One of each component, no leader election, no fsync, and no client-side rate limits worth the name in the components.
// Everything listens on 127.0.0.1 or on a socket in a private folder; certificates last a week.
//
// # Cost
//
// On two cores, about 3 seconds to start either kind; 310 MB for an API server with etcd, 480 MB for everything and ten
// nodes. Four full ones started at the same time take 7 seconds. BenchmarkNew measures it.
//
// This package knows nothing of Sluice. It is a host's tool: the processes die with the process that started them (on
// Linux, even when that is killed), and other systems than Linux are not tested.
package controlplane
