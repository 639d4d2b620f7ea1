#!/usr/bin/env bash
# Plays the whole story: two kind clusters, Sluice with its embedded hub, and an OSB client that is curl. In the second
# act the clusters' providers prove what they are, and a policy decides by it.
#
#   demo.sh        bring everything up, play the story, leave Sluice running
#   demo.sh down   stop Sluice and remove the clusters
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
demo=$PWD/.demo url=http://127.0.0.1:8844
clusters=(sluice-demo-eu sluice-demo-us)
export SLUICE_DATA_DIR=$demo/data PATH=$PWD/bin:$PATH

title() { printf '\n\033[1m── %s\033[0m\n' "$*"; }
note() { printf '   %s\n' "$*"; }
fail() { printf 'demo: error: %s\n' "$*" >&2; exit 1; }

down() {
  if [ -e "$demo/pid" ]; then
    note "stopping sluice"
    kill "$(cat "$demo/pid")" 2>/dev/null || true
    timeout 20 tail --pid="$(cat "$demo/pid")" -f /dev/null || true
  fi
  test/kind/down.sh "${clusters[@]}"
  rm -rf "$demo"
}
case ${1:-up} in
  up) ;;
  down) down && exit ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
if ! command -v jq >/dev/null || ! command -v curl >/dev/null; then
  note "installing jq and curl"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends jq curl >/dev/null
fi
mkdir -p "$demo"

title "Two member clusters"
test/kind/up.sh --out "$demo" "${clusters[@]}" >/dev/null
{ read -r echo_archive; read -r echo_image; } < <(test/kind/echo.sh)
for cluster in "${clusters[@]}"; do test/kind/load.sh "$cluster" "$echo_archive"; done
kubectl=$(test/kubernetes/build.sh kubectl)/kubectl

title "Sluice, with its embedded hub"
if ! curl -fs "$url/readyz" >/dev/null; then
  # Its public name is its identity; on a laptop it is reached at another one.
  setsid sluice serve --public-url https://broker.example --listen "${url#http://}" --metrics-listen 127.0.0.1:8845 >"$demo/sluice.log" 2>&1 </dev/null &
  echo $! >"$demo/pid"
  timeout 60 bash -c "until curl -fs $url/readyz >/dev/null; do sleep 0.2; done" || fail "sluice did not become ready; its log: $demo/sluice.log"
fi
password=$(sed -n 's/.*password: *\([^} ,]*\).*/\1/p' "$SLUICE_DATA_DIR/platforms.yaml" | head -n 1)
note "serving $url, log in .demo/sluice.log"
sluice cluster add eu --from-kubeconfig "$demo/${clusters[0]}.kubeconfig" --region eu-de --price cpu=0.040,memory=0.005
sluice cluster add us --from-kubeconfig "$demo/${clusters[1]}.kubeconfig" --region us-va --price cpu=0.036,memory=0.004
sluice catalog apply -f docs/examples/offering.yaml
sluice cluster list
sluice catalog list

# osb METHOD PATH [BODY]: one OSB request, shown as it is sent; the answer's body goes to stdout.
osb() {
  local method=$1 path=$2 body=${3:-} arguments
  arguments=(-sS --fail-with-body -X "$method" "$url$path" -u "sluice:$password" -H 'X-Broker-API-Version: 2.17')
  [ -z "$body" ] || arguments+=(-H 'Content-Type: application/json' -d "$body")
  printf '   \033[36m$ curl -X %s %s %s\033[0m\n' "$method" "$path" "${body:+-d $body}" >&2
  curl "${arguments[@]}"
}

# settle INSTANCE: polls last_operation until the operation has ended.
settle() {
  local answer state
  for _ in {1..600}; do
    answer=$(curl -s "$url/v2/service_instances/$1/last_operation" -u "sluice:$password" -H 'X-Broker-API-Version: 2.17')
    state=$(jq -r '.state // "gone"' <<<"$answer")
    case $state in
      succeeded | gone) note "$1: $state" && return ;;
      failed) fail "$1: $(jq -r .description <<<"$answer")" ;;
    esac
    sleep 0.1
  done
  fail "$1: still $state after 60 s"
}

title "Catalog: what can be bought"
osb GET /v2/catalog | jq -r '.services[] | "   \(.name): \(.plans | map(.name) | join(", "))"'
service=$(osb GET /v2/catalog 2>/dev/null | jq -r '.services[0].id')
plan() { osb GET /v2/catalog 2>/dev/null | jq -r --arg name "$1" '.services[0].plans[] | select(.name == $name).id'; }
declare -A plans=([small]=$(plan small) [large]=$(plan large))

title "Where would they land? Sluice explains before anything is bought"
sluice place --service kubernetes-resources --plan large --dry-run

title "Provision: a small and a large instance"
for instance in small large; do
  osb PUT "/v2/service_instances/demo-$instance?accepts_incomplete=true" \
    "{\"service_id\":\"$service\",\"plan_id\":\"${plans[$instance]}\",\"organization_guid\":\"org\",\"space_guid\":\"space\"}" | jq -c .
  settle "demo-$instance"
done
sluice instance list
sluice instance describe demo-large

title "Bind: credentials for the small one"
osb PUT /v2/service_instances/demo-small/service_bindings/app "{\"service_id\":\"$service\",\"plan_id\":\"${plans[small]}\"}" >"$demo/binding.json"
jq '{endpoints, metadata, namespace: .credentials.namespace, kubeconfig: "(in .demo/consumer.kubeconfig)"}' "$demo/binding.json"
(umask 077 && jq -r .credentials.kubeconfig "$demo/binding.json" >"$demo/consumer.kubeconfig")
consumer() { "$kubectl" --kubeconfig "$demo/consumer.kubeconfig" "$@"; }

title "Use: a pod, with the consumer's own kubeconfig"
consumer run echo --image="$echo_image" --image-pull-policy=IfNotPresent
consumer wait --for=condition=Ready pod/echo --timeout=60s
consumer get pods,resourcequotas
note "and one that is more than the plan:"
consumer run too-much --image="$echo_image" --overrides='{"spec":{"containers":[{"name":"too-much","image":"x","resources":{"limits":{"cpu":"2","memory":"16Mi"}}}]}}' 2>&1 | sed 's/^/   /' || true

title "Unbind: the token stops working"
osb DELETE "/v2/service_instances/demo-small/service_bindings/app?service_id=$service&plan_id=${plans[small]}" | jq -c .
note "waiting until the API server has forgotten the token (it caches for about 10 s)"
timeout 30 bash -c "until '$kubectl' --kubeconfig '$demo/consumer.kubeconfig' get pods 2>&1 | grep -q 'must be logged in'; do sleep 0.5; done" || fail "the token is still accepted"
consumer get pods 2>&1 | sed 's/^/   /' || true

title "Deprovision: nothing is left"
for instance in small large; do
  osb DELETE "/v2/service_instances/demo-$instance?accepts_incomplete=true&service_id=$service&plan_id=${plans[$instance]}" | jq -c .
  settle "demo-$instance"
done
for cluster in "${clusters[@]}"; do
  left=$("$kubectl" --kubeconfig "$demo/$cluster.kubeconfig" get namespaces -l sluice.dev/instance -o name)
  [ -z "$left" ] || fail "$cluster: $left is left"
  note "$cluster: no namespace of Sluice's"
done

# ── Second act ─────────────────────────────────────────────────────────────────────────────────────────────────────────
trust=$demo/trust policy=docs/examples/policy.yaml
hub() { "$kubectl" --kubeconfig "$SLUICE_DATA_DIR/hub.kubeconfig" --namespace sluice "$@"; }
explain() { sluice place --service kubernetes-resources --plan small --dry-run; }
provision() {
  osb PUT "/v2/service_instances/$1?accepts_incomplete=true" \
    "{\"service_id\":\"$service\",\"plan_id\":\"${plans[small]}\",\"organization_guid\":\"org\",\"space_guid\":\"space\"}" | jq -c .
}

title "Second act. Two providers prove what they are: one certified in Germany, one in the US on its own word"
rm -rf "$trust"
test/demo/providers.sh "$trust" "$url" eu "$demo/${clusters[0]}.kubeconfig" us "$demo/${clusters[1]}.kubeconfig"
hub wait membercluster/eu membercluster/us --for=condition=Admitted --timeout=60s | sed 's/^/   /'
sluice cluster claims eu
sluice cluster claims us

title "Catalog: the facts stand next to the plan"
osb GET /v2/catalog | jq -r '.services[0].plans[] | select(.name == "small") | .metadata.selfDescriptions[]
  | "   \(.type) of \(.issuer): \(.verification)\(if .countries then ", " + (.countries | join(", ")) else "" end)"'

title "A policy: in the EU, and somebody must have checked"
grep -v '^#' "$policy" | sed 's/^/   /'
sluice policy apply -f "$policy"
explain
provision demo-trusted
settle demo-trusted
sluice instance describe demo-trusted
osb PUT /v2/service_instances/demo-trusted/service_bindings/app "{\"service_id\":\"$service\",\"plan_id\":\"${plans[small]}\"}" >"$demo/binding.json"
(umask 077 && jq -r .credentials.kubeconfig "$demo/binding.json" >"$demo/consumer.kubeconfig")
consumer run echo --image="$echo_image" --image-pull-policy=IfNotPresent
consumer wait --for=condition=Ready pod/echo --timeout=60s

title "The certification is revoked: no new placements, what runs stays bound"
sluice sd revoke "$trust/rhein/credentials/certification.jwt" --because "the certificate was withdrawn"
hub wait membercluster/eu --for=jsonpath='{.status.claims[?(@.name=="datacenter.country")].assurance}'=self --timeout=60s | sed 's/^/   /'
explain
provision demo-waiting
sluice instance list
consumer get pods

title "The certification body signs again: what waited is placed"
(
  cd "$trust"
  sluice sd sign --dir certifier --type Certification --standard "ISO/IEC 27001" --out rhein/credentials/certification.jwt \
    --about rhein/credentials/offering-eu.jwt --about rhein/credentials/datacenter-main.jwt
  sluice sd present --dir rhein --to "$url" --audience did:web:broker.example
)
settle demo-waiting
sluice instance list

osb DELETE "/v2/service_instances/demo-trusted/service_bindings/app?service_id=$service&plan_id=${plans[small]}" | jq -c .
for instance in demo-trusted demo-waiting; do
  osb DELETE "/v2/service_instances/$instance?accepts_incomplete=true&service_id=$service&plan_id=${plans[small]}" | jq -c .
  settle $instance
done
sluice policy remove eu-only

title "Sluice keeps running; try next"
cat <<TRY
   curl -u sluice:$password -H 'X-Broker-API-Version: 2.17' $url/v2/catalog
   curl -u sluice:$password -H 'X-Broker-API-Version: 2.17' -X PUT '$url/v2/service_instances/mine?accepts_incomplete=true' \\
     -d '{"service_id":"$service","plan_id":"${plans[small]}","organization_guid":"org","space_guid":"space"}'

   sluice sd show .demo/trust/rhein/credentials/certification.jwt   (bin/sluice; docs/trust.md says what it proves)

   make demo-down removes everything.
TRY
