# Sluice: `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

# The tools pinned in tools/go.mod, built on first use and kept in Go's build cache.
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod

.PHONY: help demo demo-down build image test images lint unit crash conformance e2e-liqo race fuzz bench peers generate golden verify vulncheck

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-13s\033[0m %s\n", $$1, $$2}'

demo: build ## Two kind clusters, Sluice, and the whole story; leaves it running
	@test/demo/demo.sh

demo-down: ## Remove everything that `make demo` made
	@test/demo/demo.sh down

build: ## bin/sluice, a static binary
	@echo "build: bin/sluice $(VERSION)"
	@go build -ldflags '$(LDFLAGS)' -o bin/sluice ./cmd/sluice

image: build ## bin/sluice-image.tar, the binary FROM scratch as sluice-dev/sluice:VERSION
	@test/kind/image.sh sluice-dev/sluice:$(VERSION) bin/sluice bin/sluice-image.tar

# One after the other: on two processors side by side, each makes the other miss its deadlines.
test: lint ## All of the tests below; needs root on Debian, installs what it lacks
	@$(MAKE) --no-print-directory --jobs=2 unit images
	@$(MAKE) --no-print-directory interop crash conformance

images: ## What the tests on kind run, at the lowest priority; built once, then kept
	@echo "test: images of kind nodes and of Liqo"
	@nice -n 19 test/kind/node-image.sh >/dev/null
	@nice -n 19 test/kind/liqo-images.sh >/dev/null

lint: ## Formatting, vet, staticcheck, and which package may import which
	@echo "lint: gofmt, go vet, staticcheck, depguard"
	@gofmt -l $$(git ls-files '*.go') | { ! grep . >&2; }
	@go vet ./...
	@go vet -tags e2e,faults,interop ./test/... ./internal/crashpoint/... ./bindings
	@$(TOOL) staticcheck ./...
	@$(TOOL) depguard ./...

unit: ## Unit and integration tests, on the embedded hub and on real control planes
	@echo "test: Kubernetes binaries for the control planes of the tests"
	@test/kubernetes/build.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl >/dev/null
	@echo "test: unit and integration, embedded hub"
	@go test ./...
	@echo "test: the same controllers with a kube-apiserver as the hub"
	@SLUICE_TEST_HUB=kube go test ./catalog/... ./placement ./placement/kube ./bindings/... ./broker/... ./selfdescription/controller/...

interop: ## Credentials, both ways, with jose, jsonld and a SHACL validator from npm; installs Node where it is missing
	@echo "test: interoperability with tools from npm"
	@test/interop/run.sh

crash: ## Kill Sluice at every crash point and check that nothing is lost, doubled or oversold
	@echo "test: kill -9 at every crash point"
	@go test -tags faults -count=1 -timeout 30m -v ./test/crash/...
	@go test -tags faults -count=1 -run '^TestKilled' -v ./bindings

e2e-liqo: build ## The part of `make conformance` with real Liqo, alone
	@go test -tags e2e -count=1 -timeout 30m -v -run '^TestPeering$$' ./test/e2e/ -peers-only

conformance: build ## On kind: OSB 2.17 conformance, the chart, lost and made clusters, and peered ones with real Liqo
	@echo "test: OSB conformance on kind"
	@go test -tags e2e -count=1 -timeout 60m -v ./test/e2e/...

race: ## Unit and integration tests under the race detector
	@CGO_ENABLED=1 go test -race ./...

fuzz: ## Every fuzz target for FUZZTIME (10s)
	@test/fuzz.sh $(or $(FUZZTIME),10s)

bench: ## Every benchmark, and the whole-system figures of docs/performance.md
	@go test -run '^$$' -bench . -benchmem ./catalog/... ./placement/... ./bindings/... ./broker/... ./selfdescription/... ./internal/...
	@go run ./test/bench
	@$(MAKE) --no-print-directory build
	@go test -tags e2e -count=1 -timeout 60m -v -run '^TestPeering' ./test/e2e/ -peers-only -figures
	@go run ./test/bench/quality -plots docs/img

peers: ## Placement decisions beside Karmada, OCM and kube-scheduler; downloads and builds them
	@test/bench/peers/run.sh

generate: ## CRDs and deep copies from api/v1alpha1, and docs/reference.md
	@$(TOOL) controller-gen object paths=./api/... crd output:crd:dir=charts/sluice/crds
	@$(TOOL) crd-ref-docs --source-path=api/v1alpha1 --config=docs/reference.config.yaml --renderer=markdown --output-path=docs/reference.md

golden: ## Rewrite golden files, to be read as a diff
	@go test ./placement/... ./charts/... -update

verify: generate ## Fail unless generated files and go.mod are up to date
	@go mod tidy -diff
	@git diff --exit-code -- api charts docs

vulncheck: ## Known vulnerabilities in what the binary links; needs the vulnerability database
	@$(TOOL) govulncheck ./cmd/sluice
