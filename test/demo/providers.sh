#!/usr/bin/env bash
# Two providers join: "rhein" in Germany, which a certification body certifies, and "liberty" in the United States, which
# only speaks for itself. Everybody has a folder of his own below DIR, as on machines of their own.
#
#   providers.sh DIR BROKER EU_CLUSTER EU_KUBECONFIG US_CLUSTER US_KUBECONFIG
#
# BROKER is the URL at which `sluice serve --public-url https://broker.example` is reached; SLUICE_DATA_DIR is its data
# folder, for the operator's part. Both clusters must be in the inventory.
set -euo pipefail
dir=$1 broker=$2 eu=$3 eu_kubeconfig=$4 us=$5 us_kubeconfig=$6
mkdir -p "$dir"
cd "$dir"

# run COMMAND...: shows a command and runs it.
run() {
  local shown='' word
  for word; do
    case $word in *" "*) shown+=" \"$word\"" ;; *) shown+=" $word" ;; esac
  done
  printf '   \033[36m$%s\033[0m\n' "${shown//"${dir%/*}/"/}"
  "$@"
}

echo "our terms and conditions" >terms.txt
common=(--terms-file terms.txt --accept-gaia-x-terms)
run sluice sd init --dir rhein --did did:web:rhein.example --name "Rhein Cloud GmbH" --country DE --registration vatID=DE123456789 \
  --terms-url https://rhein.example/terms.txt --offering "Kubernetes in Frankfurt" --cluster "$eu=$eu_kubeconfig" "${common[@]}"
run sluice sd init --dir liberty --did did:web:liberty.example --name "Liberty Cloud Inc." --country US --registration leiCode=00000000000000000098 \
  --terms-url https://liberty.example/terms.txt --offering "Kubernetes in Virginia" --cluster "$us=$us_kubeconfig" "${common[@]}"
for provider in rhein liberty; do run sluice sd sign --dir "$provider"; done

# The certification body has looked at both and signs about one.
run sluice sd init --dir certifier --did did:web:certifier.example --keys-only
run sluice sd sign --dir certifier --type Certification --standard "ISO/IEC 27001" --out rhein/credentials/certification.jwt \
  --about "rhein/credentials/offering-$eu.jwt" --about rhein/credentials/datacenter-main.jwt
run sluice sd verify rhein/credentials/certification.jwt --keys certifier/jwks.json

# The operator says who may present, and what the body's word is worth.
for provider in rhein liberty; do run sluice provider add "$provider" --did "did:web:$provider.example" --keys "$provider/jwks.json"; done
run sluice issuer add certifier --did did:web:certifier.example --keys certifier/jwks.json --type Certification --assurance certified
run sluice cluster add "$eu" --from-kubeconfig "$eu_kubeconfig" --region eu-de --price cpu=0.040,memory=0.005 --provider rhein \
  --offering "https://rhein.example/selfdescription/offering-$eu#subject"
run sluice cluster add "$us" --from-kubeconfig "$us_kubeconfig" --region us-va --price cpu=0.036,memory=0.004 --provider liberty \
  --offering "https://liberty.example/selfdescription/offering-$us#subject"

for provider in rhein liberty; do run sluice sd present --dir "$provider" --to "$broker" --audience did:web:broker.example; done
