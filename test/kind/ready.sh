# shellcheck shell=bash
# Runs inside a control-plane node, piped in by up.sh: waits until the cluster works, not only says so.
#   $1 seconds to wait at most, $2 number of nodes, $3 address of the control-plane node
# A kube-proxy that cannot program its rules is Ready all the same, and traffic to a ClusterIP then leaves by the default
# route to whatever answers there. So the last two checks go through Services: the API server must prove itself with the
# cluster's own CA, and CoreDNS, a pod, must answer behind its ClusterIP. The API server must also prove itself at the node's
# address: after a restart of Docker the node may have another one, for which there is no certificate.
export KUBECONFIG=/etc/kubernetes/admin.conf
deadline=$((SECONDS + $1)) nodes=$2 address=$3

nodes_are_ready() {
  [ "$(kubectl wait nodes --all --for=condition=Ready --timeout=10s --output name | wc -l)" = "$nodes" ]
}
dns_is_available() { kubectl --namespace kube-system rollout status deployment coredns --timeout=10s >/dev/null; }
cluster_ip() { kubectl --namespace "$1" get service "$2" --output jsonpath='{.spec.clusterIP}'; }
api_answers_at() { curl --silent --fail --max-time 2 --output /dev/null --cacert /etc/kubernetes/pki/ca.crt "https://$1/version"; }
api_answers_at_the_node() { api_answers_at "$address:6443"; }
api_service_answers() { api_answers_at "$(cluster_ip default kubernetes)"; }
dns_service_answers() { curl --silent --fail --max-time 2 "http://$(cluster_ip kube-system kube-dns):9153/metrics" | grep -q '^coredns_build_info'; }

for check in api_answers_at_the_node nodes_are_ready dns_is_available api_service_answers dns_service_answers; do
  until $check; do
    if ((SECONDS >= deadline)); then
      kubectl get nodes,pods --all-namespaces --output wide || true
      echo "not yet after $1 s: ${check//_/ }"
      exit 1
    fi
    sleep 0.3
  done
done
