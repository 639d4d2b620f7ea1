# Sluice: `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
export CGO_ENABLED := 0
# Without DWARF, which no debugger reads here, compiling everything takes an eighth less.
export GOFLAGS := -trimpath -buildvcs=false -gcflags=all=-dwarf=false

# The tools pinned in tools/go.mod, built on first use and kept in Go's build cache.
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod

.PHONY: help demo demo-down build image test e2e before-release images e2e-images lint unit crash browser conformance e2e-kills e2e-hub e2e-brokers e2e-stories e2e-clusters e2e-market e2e-workloads e2e-chart e2e-liqo e2e-faults e2e-drivers interop race mutants fuzz bench peers generate golden verify vulncheck

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}'

demo: ## Two kind clusters, Sluice, and the whole story; leaves it running
	@test/demo/demo.sh

demo-down: ## Remove everything that `make demo` made
	@test/demo/demo.sh down

build: ## bin/sluice, a static binary
	@echo "build: bin/sluice $(VERSION)"
	@go build -ldflags '$(LDFLAGS)' -o bin/sluice ./cmd/sluice 2> >(grep -v '^go: downloading' >&2)

image: build ## bin/sluice-image.tar, the binary FROM scratch as sluice-dev/sluice:VERSION
	@test/kind/image.sh sluice-dev/sluice:$(VERSION) bin/sluice bin/sluice-image.tar

# DIR must not exist; KEY signs the checksums, PUSH is a repository.
.PHONY: release
release: ## bin/release: binaries, SBOMs, image, charts, provenance and checksums of VERSION; KEY=file signs, PUSH=registry/repository pushes
	@go run ./release -version '$(VERSION)' -out '$(or $(DIR),bin/release)' $(if $(KEY),-key '$(KEY)') $(if $(PUSH),-push '$(PUSH)')

# What takes processors runs one after the other: side by side, each makes the other miss its deadlines. Kills start Sluice
# 200 times, with large pages, which stages on kind do not have; and clusters of kind start in a sixth of the time alone.
test: ## Lint, unit and integration tests, kills, and OSB conformance on kind; needs root on Debian, installs what it lacks
	@test/times.sh lint unit+images crash conformance

e2e: ## What else is real: the docs, trust, the marketplace in a browser, workloads, the chart, Liqo, drivers, brokers, other tools
	@test/times.sh e2e-images+e2e-stories e2e-market e2e-workloads e2e-chart e2e-liqo e2e-drivers+e2e-brokers+interop

# Continuous integration has 90 minutes on two processors. make test has kills after every write of an order, a move and a
# binding, lost and made clusters on control planes, and the controllers on an embedded hub.
before-release: ## What continuous integration has no time for: more kills, lost and made clusters on kind, faults of Liqo, another hub
	@test/times.sh e2e-kills e2e-clusters e2e-faults e2e-hub

# Before unit and images, which run side by side: at the priority of images, unit would wait for them.
.PHONY: kubernetes
kubernetes:
	@echo "test: Kubernetes binaries for the control planes of the tests"
	@test/kubernetes/build.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl >/dev/null

.PHONY: databases prometheus cluster-api helm service-catalog
helm:
	@echo "test: Helm for the charts of the tests"
	@$(TOOL) -n helm >/dev/null

service-catalog:
	@echo "test: Kubernetes Service Catalog"
	@test/servicecatalog/programs/build.sh >/dev/null

cluster-api:
	@echo "test: the manager of Cluster API for the tests of made clusters"
	@test/capi/manager/build.sh core >/dev/null

prometheus:
	@echo "test: Prometheus for the tests of metrics, alerts and dashboards"
	@test/prometheus/install.sh >/dev/null

databases:
	@echo "test: MariaDB and PostgreSQL for the brokers of the tests"
	@test/databases/install.sh

images: kubernetes ## What conformance runs on kind, at the lowest priority; built once, then kept
	@echo "test: images of kind nodes"
	@nice -n 19 test/kind/node-image.sh >/dev/null
	@nice -n 19 test/kind/tools.sh kube-router >/dev/null

# In the order in which they are needed.
e2e-images: images ## What the rest of e2e runs beside, at the lowest priority; built once, then kept
	@echo "test: images of Korifi, Traefik, Liqo, and Service Catalog"
	@nice -n 19 test/korifi/programs/build.sh >/dev/null
	@nice -n 19 test/kind/tools.sh traefik >/dev/null
	@nice -n 19 test/kind/liqo-images.sh >/dev/null
	@nice -n 19 test/servicecatalog/programs/build.sh >/dev/null

# UNCLEAR matches comments that docs/style.md does not allow: "x is what …", "x are those that …".
UNCLEAR = '^[[:space:]]*//[[:space:]]+([[:alnum:]]+ (is|are) (what|where|who|whom|why|those|that of|the one (that|of|in|as))|.*(tells (whether|if)|but for))[[:space:]]'

# TAGGED are the packages with files that need a tag.
TAGGED := ./bindings ./internal/console ./internal/crashpoint ./test/browser/... ./test/crash ./test/e2e ./test/interop

lint: ## Formatting, vet, staticcheck, which package may import which, and that the engine reads no clock
	@echo "lint: gofmt, go vet, staticcheck, depguard, comments, forbidigo"
	@gofmt -l $$(git ls-files '*.go') | { ! grep . >&2; }
	@go vet ./...
	@go vet -tags browser,e2e,faults,interop $(TAGGED)
	@cd test/bench/peers/fleet && go vet ./... && cd ../sluice && go vet . # of the peers, those that change with this module
	@$(TOOL) staticcheck ./...
	@$(TOOL) depguard ./...
	@! git grep -nE $(UNCLEAR) -- '*.go' ':!*zz_generated*' || { echo "lint: reword these comments, see docs/style.md" >&2; exit 1; }
	@$(TOOL) forbidigo -set_exit_status -tests=false '^time\.(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTimer|NewTicker)$$' -- ./placement

# Collecting garbage less often saves a tenth of the processors' time, for more memory: 24 GiB are enough.
lint kubernetes images e2e-images unit crash browser conformance e2e-kills e2e-hub e2e-brokers e2e-stories e2e-clusters e2e-market e2e-workloads e2e-chart e2e-liqo e2e-faults e2e-drivers: export GOGC = 400

# SLOWEST packages are tested first: last, each would run beside nothing. Tests wait for a third of their time, so
# one more package than there are processors is tested at once.
SLOWEST := ./cmd/sluice ./bindings ./internal/hub ./internal/journal/sinks ./placement/kube ./internal/claims ./placement/controller ./test/controlplane ./broker ./charts
ATONCE := $(shell expr $$(nproc) + 1)

# DRIVERS are the tests of peered and of made clusters on control planes, and of a network with faults: a quarter of the
# processors' time of all packages.
DRIVERS := ./placement/liqo ./placement/capi ./test/capi ./test/faults

# BROKERS are the stories of several Sluices and brokers behind each other, and of the Service Catalog and claims in front of
# one; the driver's own tests are in unit.
BROKERS := ^Test(SluiceBehindSluice|ThreeSluicesInARow|Brokers(WithDefects|InACircle|Page)|ACircleInTheCatalogs|KilledWhileABrokerAnswers|DashboardsOfBrokers|ASluiceReadsAnothersResources|ServiceCatalog|ClaimsPage)$$

# Short, because bench runs the whole of test/bench. lint has vetted everything: each go test would vet all packages below its own once more.
unit: kubernetes databases prometheus helm ## Unit and integration tests, on the embedded hub and on real control planes
	@echo "test: unit and integration, embedded hub"
	@go test -short -vet=off -timeout 20m -p $(ATONCE) -skip '$(BROKERS)' $(SLOWEST) $$(comm -23 <(go list ./... | sort) <(go list $(DRIVERS) | sort))

e2e-drivers: kubernetes cluster-api helm ## Clusters that are peered, and made by Cluster API, on control planes; a network that hangs and breaks
	@echo "test: drivers of peered and made clusters, and faults, on control planes"
	@go test -vet=off -timeout 20m -p $(ATONCE) $(DRIVERS)

e2e-brokers: kubernetes databases helm service-catalog ## Sluices behind Sluices, with the conformance suite on top; brokers with defects, and killed meanwhile; a real Service Catalog; claims
	@echo "test: brokers behind brokers, Service Catalog, claims"
	@go test -vet=off -timeout 20m -run '$(BROKERS)' ./cmd/sluice

# Runs once more what writes to the hub from several sides at once; the histories' hub is a fake. The rest of what talks
# to the hub meets a cluster as hub in e2e-chart, with the specs of instances and bindings.
e2e-hub: kubernetes ## The instance's, binding's and cluster's controllers with a kube-apiserver as the hub
	@echo "test: the controllers with a kube-apiserver as the hub"
	@SLUICE_TEST_HUB=kube go test -vet=off -timeout 20m -skip '^Test(Histories|LeadersThatSleep)$$' ./placement/controller

interop: ## Credentials, both ways, with jose, jsonld and a SHACL validator from npm; installs Node where it is missing
	@echo "test: interoperability with tools from npm"
	@test/interop/run.sh

browser: ## The console in Chromium: axe-core on every page, a phone's screen, the keyboard; installs both where they are missing
	@echo "test: the console in a browser"
	@test/browser/run.sh

# One more test at once than there are processors: most of a kill, and of a leader that sleeps, is waiting.
kills = go test -tags faults -vet=off -count=1 -timeout 45m -parallel $(ATONCE) -v

crash: kubernetes ## Kill Sluice at every write of orders, moves, bindings and workloads, and check that nothing is lost, doubled or oversold
	@echo "test: kill -9 after every write"
	@$(kills) -run '^Test(KillAtEveryWrite|UncoveredWrite|EachWriteKillsOnce|Names|Killed|BindsKilled)' ./internal/crashpoint ./test/crash ./bindings

e2e-kills: kubernetes cluster-api ## Kill Sluice while clusters are made and components move, stop its leaders
	@echo "test: kill -9 while clusters are made and components move, SIGSTOP of leaders"
	@$(kills) -skip '^Test(KillAtEveryWrite|UncoveredWrite|OnClusters|OnPeeredClusters|Workloads)$$' ./test/crash

# e2e.test runs the tests on kind, compiled once; $(call e2e,TESTS) runs some of them. Most of them wait for pods.
.PHONY: bin/e2e.test
bin/e2e.test: build
	@go test -tags e2e -vet=off -ldflags '-s -w' -c -o $@ ./test/e2e

e2e = cd test/e2e && ../../bin/e2e.test -test.v -test.timeout 40m -test.parallel $(ATONCE) -test.run '^($(1))$$'

conformance: bin/e2e.test ## On kind: the story, and OSB 2.17 conformance
	@echo "test: OSB conformance on kind"
	@$(call e2e,TestEmbeddedHub)

e2e-stories: bin/e2e.test ## On kind: the docs, byte for byte; providers and policies; a real Korifi
	@echo "test: the docs, byte for byte, trust, Korifi"
	@$(call e2e,TestReadme|TestFirstSteps|TestTrustDocs|TestTrust|TestKorifi)

e2e-clusters: bin/e2e.test ## On kind: a cluster is lost with what runs on it, and comes back; clusters made by Cluster API
	@echo "test: lost and made clusters"
	@$(call e2e,TestLostCluster|TestMadeCluster)

e2e-market: bin/e2e.test ## On kind, in Chromium: two providers join and sell, a consumer buys, the operator drains a cluster
	@echo "test: the marketplace in a browser"
	@$(call e2e,TestMarketplace)

e2e-workloads: bin/e2e.test ## On kind: PostgreSQL and other workloads, a site behind a Gateway, and conformance with a plan of kind workload
	@echo "test: workloads"
	@$(call e2e,TestWorkloads)

e2e-chart: bin/e2e.test helm ## On kind: docs/operating.md's installation, conformance with two replicas, and uninstalling
	@echo "test: the chart"
	@$(call e2e,TestChart)

e2e-liqo: bin/e2e.test ## On kind, with real Liqo: peered clusters
	@echo "test: peered clusters with Liqo"
	@$(call e2e,TestPeering) $(flags)

flags :=
e2e-faults: flags := -faults
e2e-faults: e2e-liqo ## e2e-liqo, with a gateway, a key and an API server that fail, and Sluice killed at every step of a peering

race: ## Unit and integration tests under the race detector
	@CGO_ENABLED=1 go test -race -timeout 30m ./...

mutants: ## How well the packages' own tests notice mistakes: SAMPLE (200) random changes of each; goes on where it was interrupted
	@mkdir -p bin
	@go run ./test/mutants -sample $(or $(SAMPLE),200) -record bin/mutants.txt ./broker ./placement ./bindings ./selfdescription

fuzz: ## Every fuzz target for FUZZTIME (10s)
	@test/fuzz.sh $(or $(FUZZTIME),10s)

bench: ## Every benchmark, and the whole-system figures of docs/performance.md
	@go test -run '^$$' -bench . -benchmem ./catalog/... ./placement/... ./bindings/... ./broker/... ./selfdescription/... ./internal/...
	@go test -count=1 ./test/bench
	@go run ./test/bench
	@$(MAKE) --no-print-directory bin/e2e.test
	@$(call e2e,TestPeering.*) -figures
	@go run ./test/bench/quality -plots docs/img

peers: ## Placement decisions beside Karmada, OCM and kube-scheduler; downloads and builds them
	@test/bench/peers/run.sh

generate: ## CRDs and deep copies from api/v1alpha1 and api/claims, their references in docs, messages from api/resources, and the chart's dashboards
	@$(TOOL) controller-gen object paths=./api/v1alpha1 crd output:crd:dir=charts/sluice/crds
	@$(TOOL) controller-gen object paths=./api/claims/... crd output:crd:dir=charts/claims/crds
	@$(TOOL) crd-ref-docs --max-depth=30 --source-path=api/v1alpha1 --config=docs/reference.config.yaml --renderer=markdown --output-path=docs/reference.md
	@$(TOOL) crd-ref-docs --max-depth=30 --source-path=api/claims/v1alpha1 --config=docs/reference.config.yaml --renderer=markdown --output-path=docs/reference-claims.md
	@cd tools && go run ./proto ../api/resources/v1/resources.proto
	@cd tools && go run ./dashboards ../charts/sluice/dashboards

golden: ## Rewrite golden files, to be read as a diff
	@go test ./placement/... ./charts/... ./test/stored -update

verify: generate ## Fail unless generated files and go.mod are up to date
	@go mod tidy -diff
	@git diff --exit-code -- api charts docs

vulncheck: ## Known vulnerabilities in what the binary links; needs the vulnerability database
	@$(TOOL) govulncheck ./cmd/sluice
