# shellcheck shell=bash
# Runs inside a control-plane node, piped in by up.sh: waits until the cluster works, not only says so.
#   $1 seconds to wait at most, $2 number of nodes
# A kube-proxy that cannot program its rules is Ready all the same, and traffic to a ClusterIP then leaves by the default
# route to whatever answers there. So the last two checks go through Services: the API server must prove itself with the
# cluster's own CA, and CoreDNS, a pod, must answer behind its ClusterIP.
export KUBECONFIG=/etc/kubernetes/admin.conf
deadline=$((SECONDS + $1)) nodes=$2

nodes_are_ready() {
  [ "$(kubectl get nodes --output jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' | grep -cx True)" = "$nodes" ]
}
dns_is_available() {
  [ "$(kubectl --namespace kube-system get deployment coredns --output jsonpath='{.status.readyReplicas}')" = \
    "$(kubectl --namespace kube-system get deployment coredns --output jsonpath='{.spec.replicas}')" ]
}
cluster_ip() { kubectl --namespace "$1" get service "$2" --output jsonpath='{.spec.clusterIP}'; }
api_service_answers() {
  curl --silent --fail --max-time 2 --output /dev/null --cacert /etc/kubernetes/pki/ca.crt "https://$(cluster_ip default kubernetes)/version"
}
dns_service_answers() { curl --silent --fail --max-time 2 "http://$(cluster_ip kube-system kube-dns):9153/metrics" | grep -q '^coredns_build_info'; }

for check in nodes_are_ready dns_is_available api_service_answers dns_service_answers; do
  until $check; do
    if ((SECONDS >= deadline)); then
      kubectl get nodes,pods --all-namespaces --output wide || true
      echo "not yet after $1 s: ${check//_/ }"
      exit 1
    fi
    sleep 0.3
  done
done
