#!/usr/bin/env bash
# Plays the whole story: two kind clusters, Sluice with its embedded hub, and an OSB client that is curl. In the second
# act a database is ordered with the commands for consumers, used, and its password is rotated; in the third the clusters'
# providers prove what they are, and a policy decides by it.
#
#   demo.sh        bring everything up, play the story, leave Sluice running
#   demo.sh down   stop Sluice and remove the clusters
#
# Clusters, state and ports belong to the folder of this checkout, so that demos of several checkouts run side by side.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
demo=$PWD/.demo
id=$(sha256sum <<<"$PWD" | cut -c1-6)
clusters=("sluice-demo-$id-eu" "sluice-demo-$id-us")
export SLUICE_DATA_DIR=$demo/data PATH=$PWD/bin:$PATH

title() { printf '\n\033[1m── %s\033[0m\n' "$*"; }
note() { printf '   %s\n' "$*"; }
fail() { printf 'demo: error: %s\n' "$*" >&2; exit 1; }

# stage N WHAT FIRST LATER: begins a stage of the preparation, with how long it takes on two cores.
stage() { title "$1/3 $2 (first time $3, later $4; $(elapsed) so far)"; }
elapsed() { printf '%d:%02d' $((SECONDS / 60)) $((SECONDS % 60)); }

# serving: whether the Sluice that an earlier run left is still there.
serving() { [ "$(cat "/proc/$(cat "$demo/pid" 2>/dev/null)/comm" 2>/dev/null)" = sluice ]; }

down() {
  if serving; then
    note "stopping sluice"
    kill "$(cat "$demo/pid")"
    timeout 20 tail --pid="$(cat "$demo/pid")" -f /dev/null || true
  fi
  test/kind/down.sh "${clusters[@]}"
  rm -rf "$demo"
}
case ${1:-up} in
  up) ;;
  down) down && exit ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac

stage 1 "Tools: sluice, kubectl, jq and curl" "3 to 5 min" "seconds"
make --no-print-directory build
if ! command -v jq >/dev/null || ! command -v curl >/dev/null; then
  note "installing jq and curl"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends jq curl >/dev/null
fi
mkdir -p "$demo"
kubectl=$(test/kubernetes/build.sh kubectl)/kubectl

stage 2 "Docker and the image of a kind node" "about 10 min, Kubernetes is compiled" "seconds"
test/kind/node-image.sh >/dev/null

stage 3 "Two member clusters" "45 s" "seconds"
test/kind/up.sh --out "$demo" "${clusters[@]}" >/dev/null
{ read -r echo_archive; read -r echo_image; } < <(test/kind/echo.sh)
{ read -r database_archive; read -r database_image; } < <(test/kind/debian.sh postgresql)
for cluster in "${clusters[@]}"; do test/kind/load.sh "$cluster" "$echo_archive" "$database_archive"; done
prepared=$SECONDS
umask 077 # from here on, files have credentials

title "Sluice, with its embedded hub"
# free PORT: whether nobody listens there, nor on the next one.
free() { ! (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && ! (: <>"/dev/tcp/127.0.0.1/$(($1 + 1))") 2>/dev/null; }
if ! serving; then
  port=8844
  until free $port; do
    note "port $port or the one after it is taken, perhaps by the demo of another checkout: trying $((port + 2))"
    port=$((port + 2))
  done
  echo "http://127.0.0.1:$port" >"$demo/url"
  # Its public name is its identity; on a laptop it is reached at another one.
  setsid sluice serve --public-url https://broker.example --listen "127.0.0.1:$port" --metrics-listen "127.0.0.1:$((port + 1))" \
    >"$demo/sluice.log" 2>&1 </dev/null &
  echo $! >"$demo/pid"
fi
url=$(<"$demo/url")
timeout 60 bash -c "until curl -fs $url/readyz >/dev/null; do kill -0 $(<"$demo/pid") && sleep 0.2; done" ||
  fail "sluice did not become ready; its log: $demo/sluice.log"
eval "$(sluice platform show default)"
export SLUICE_URL=$url SLUICE_USERNAME SLUICE_PASSWORD # for consumers' commands: the public name leads nowhere here
printf 'user = "%s"\nheader = "X-Broker-API-Version: 2.17"\nsilent\nshow-error\n' "$SLUICE_USERNAME:$SLUICE_PASSWORD" >"$demo/curl"
note "serving $url, log in .demo/sluice.log, credentials for curl in .demo/curl"
sluice cluster add eu --from-kubeconfig "$demo/${clusters[0]}.kubeconfig" --region eu-de --price cpu=0.040,memory=0.005
sluice cluster add us --from-kubeconfig "$demo/${clusters[1]}.kubeconfig" --region us-va --price cpu=0.036,memory=0.004
sluice catalog apply -f docs/examples/offering.yaml
sluice cluster list
sluice catalog list

# osb METHOD PATH [BODY]: one OSB request, shown as it can be pasted; the answer's body goes to stdout.
osb() {
  local method=$1 path=$2 body=${3:-} arguments
  arguments=(-K .demo/curl -X "$method" "$url$path")
  [ -z "$body" ] || arguments+=(-d "$body")
  printf '   \033[36m$ curl -K .demo/curl -X %s %s%s\033[0m\n' "$method" "'$url$path'" "${body:+ -d '$body'}" >&2
  curl --fail-with-body "${arguments[@]}"
}

# settle INSTANCE: polls last_operation until the operation has ended.
settle() {
  local answer state
  for _ in {1..200}; do
    answer=$(curl -K .demo/curl "$url/v2/service_instances/$1/last_operation")
    state=$(jq -r '.state // "gone"' <<<"$answer")
    case $state in
      succeeded | gone) note "$1: $state" && return ;;
      failed) fail "$1: $(jq -r .description <<<"$answer")" ;;
    esac
    sleep 0.3
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
jq -r .credentials.kubeconfig "$demo/binding.json" >"$demo/consumer.kubeconfig"
consumer() { "$kubectl" --kubeconfig "$demo/consumer.kubeconfig" "$@"; }
# pod NAME [CPU]: the manifest of an echo pod, under the restricted pod security standard.
pod() {
  cat <<YAML
{apiVersion: v1, kind: Pod, metadata: {name: $1}, spec: {
  automountServiceAccountToken: false,
  securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}},
  containers: [{name: echo, image: "$echo_image", imagePullPolicy: IfNotPresent,
    resources: {limits: {cpu: ${2:-100m}, memory: 16Mi}},
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}
YAML
}

title "Use: a pod, with the consumer's own kubeconfig"
pod echo | consumer apply -f -
consumer wait --for=condition=Ready pod/echo --timeout=60s
consumer get pods,resourcequotas
note "and one that is more than the plan:"
pod too-much 2 | consumer apply -f - 2>&1 | sed 's/^/   /' || true

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
title "Second act. A database: ordered in the EU, and bound"
test/kind/volume.sh "${clusters[0]}" demo-orders # these clusters provision none
note "charts/services/postgresql.yaml, with an image that was built here"
sed "s#docker.io/library/postgres:15#$database_image#" charts/services/postgresql.yaml | sluice catalog apply -f -
# consume ARGUMENTS: one command of a consumer, shown as it can be pasted; it speaks nothing but OSB.
consume() { printf '   \033[36m$ sluice %s\033[0m\n' "$*" >&2 && sluice "$@"; }
timeout 30 bash -c "until sluice market postgresql >/dev/null 2>&1; do sleep 0.2; done" || fail "the catalog does not sell postgresql"
consume market postgresql
consume order demo-orders postgresql small -p 'selector={"topology.kubernetes.io/region":"eu-de"}'
sluice instance describe demo-orders

# login BINDING [PREDECESSOR]: a binding's credentials go to .demo/BINDING.json.
login() {
  consume bind demo-orders "$1" ${2:+--replaces "$2"} >"$demo/$1.json"
  jq -c '.credentials | .password = "(in .demo)" | .uri = "(in .demo)"' "$demo/$1.json" | sed 's/^/   /'
}
# query BINDING STATEMENT: as the binding's user, from a pod of the instance, which has psql.
query() {
  note "\$ psql <uri of $1> -c \"$2\""
  "$kubectl" --kubeconfig "$demo/${clusters[0]}.kubeconfig" --namespace "$home" exec statefulset/db -- \
    psql --no-psqlrc "$(jq -r .credentials.uri "$demo/$1.json")" -c "$2" 2>&1 | sed 's/^/   /'
}
home=$("$kubectl" --kubeconfig "$demo/${clusters[0]}.kubeconfig" get statefulsets --all-namespaces --field-selector metadata.name=db -o jsonpath='{.items[0].metadata.namespace}')
login monday
query monday "CREATE TABLE orders (what text)"
query monday "INSERT INTO orders VALUES ('a bicycle')"

title "Rotate: the successor is another user, the data stays, the old password stops working"
login tuesday monday
consume unbind demo-orders monday
query tuesday "SELECT what FROM orders"
if query monday "SELECT what FROM orders"; then fail "the old password still works"; fi
consume unbind demo-orders tuesday
consume cancel demo-orders --yes

# ── Third act ──────────────────────────────────────────────────────────────────────────────────────────────────────────
trust=$demo/trust policy=docs/examples/policy.yaml
hub() { "$kubectl" --kubeconfig "$SLUICE_DATA_DIR/hub.kubeconfig" --namespace sluice "$@"; }
explain() { sluice place --service kubernetes-resources --plan small --dry-run; }
provision() {
  osb PUT "/v2/service_instances/$1?accepts_incomplete=true" \
    "{\"service_id\":\"$service\",\"plan_id\":\"${plans[small]}\",\"organization_guid\":\"org\",\"space_guid\":\"space\"}" | jq -c .
}

title "Third act. Two providers prove what they are: one certified in Germany, one in the US on its own word"
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
jq -r .credentials.kubeconfig "$demo/binding.json" >"$demo/consumer.kubeconfig"
pod echo | consumer apply -f -
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

title "Prepared in $((prepared / 60)) min $((prepared % 60)) s, played in $((SECONDS - prepared)) s. Sluice keeps running; try next"
cat <<TRY
   eval "\$(bin/sluice platform show default --data-dir .demo/data)"
   export SLUICE_URL=$url SLUICE_USERNAME SLUICE_PASSWORD
   bin/sluice market
   bin/sluice order mine kubernetes-resources small
   bin/sluice kubeconfig mine
   bin/sluice status --data-dir .demo/data

   bin/sluice sd show .demo/trust/rhein/credentials/certification.jwt   (docs/trust.md says what it proves)

   make demo-down removes everything.
TRY
