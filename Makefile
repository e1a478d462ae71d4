# Everything a person or CI does with this repository. `make` alone prints what there is.
#
# Each target that builds begins with hack/doctor, which says what the machine lacks. All that targets leave behind is
# in the cache folder (BERTH_CACHE), but for the binaries in bin/.

.DEFAULT_GOAL := help
SHELL := /bin/sh
# The doctor comes first; Go uses all cores by itself.
.NOTPARALLEL:

# ---- the environment of every command below

export BERTH_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/berth
# Go's temporary files take gigabytes while Kubernetes is built: never in the temp folder, which may be memory.
export GOTMPDIR := $(BERTH_CACHE)/tmp
# A clone that belongs to another user makes git refuse, and Go's stamping of versions fail with it.
export GOFLAGS := -buildvcs=false -trimpath
# One setting of cgo for everything, so that it is compiled once; the programs are static. The race detector alone needs it.
export CGO_ENABLED := 0
export GOWORK := off
# nft and iptables are in sbin, which the PATH of an ordinary user lacks on Debian.
export PATH := $(PATH):/usr/sbin:/sbin

# Empty if the installed Go is new enough, else the toolchain for it to fetch (Debian's Go does not by itself).
toolchain := $(shell hack/doctor --toolchain)
ifneq ($(toolchain),)
export GOTOOLCHAIN := $(toolchain)
endif

VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)
ldflags := -s -w -X main.version=$(VERSION)

# ---- what the recipes are made of

steps := hack/steps
# What a step of another target calls: the machine has been looked at.
again = $(MAKE) --no-print-directory BERTH_DOCTOR_DONE=yes
testsum := $(BERTH_CACHE)/bin/testsum
lab := $(BERTH_CACHE)/bin/lab
image := $(BERTH_CACHE)/bin/image
tool = go tool -modfile=$(CURDIR)/hack/tools/go.mod
modules := . e2e e2e/cluster e2e/helm e2e/node e2e/runc hack/image hack/tools

.PHONY: help
help: ## print this list
	@echo 'Berth: external addresses for Kubernetes Services on bare metal. Targets:'
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo 'Variables: BERTH_CACHE (folder for all that is built and kept, now $(BERTH_CACHE)),'
	@echo '  BERTH_NO_INSTALL=1 (install no packages), KEEP_GOING=1 (go on after a failed step).'

# ---- for everyone

.PHONY: demo
demo: doctor-demo $(lab) ## see Berth at work: a small cluster, a Service, a failover
	@$(lab) demo

.PHONY: lab
lab: doctor-demo $(lab) ## a shell in a small cluster, with kubectl and Berth
	@$(lab) shell -berth

.PHONY: test
test: doctor-test ## unit tests, and scenes (the API among them) on a real cluster in network namespaces
	@$(steps) \
		'build|900|$(again) build' \
		'build the lab|1800|$(again) lab-build' \
		'unit tests|1200|$(again) unit' \
		'scenes|1500|$(again) e2e'

.PHONY: test-more
test-more: doctor-test-more ## what takes longer or needs more packages: the race detector, iptables, nodes with a kubelet
	@$(steps) \
		'race detector|1800|$(again) race' \
		'scenes with iptables|300|$(again) e2e SCENE=iptables' \
		'scenes with a kubelet|1500|$(again) e2e SCENE=kubelet-'

# Go remembers the result of a test by the files it read in its own module: the chart is in none of e2e/helm.
.PHONY: unit
unit: doctor-build $(testsum) ## unit tests alone
	@$(steps) \
		'unit|900|$(testsum) go test -json -timeout 5m ./...' \
		'unit, of the lab|600|cd e2e && $(testsum) go test -json -timeout 5m $$(go list ./... | grep -v /e2e$$)' \
		'unit, of the tools|60|cd hack/tools && $(testsum) go test -json ./testsum' \
		'unit, of images|60|cd hack/image && $(testsum) go test -json .' \
		'unit, of the chart|300|cd e2e/helm && $(testsum) go test -json -count=1 .'

.PHONY: e2e
e2e: doctor-test $(testsum) ## scenes alone; SCENE=name for one, COUNT=n to repeat it
	@cd e2e && SCENE='$(SCENE)' COUNT='$(COUNT)' $(testsum) -v go test -json -count=1 -timeout 60m .

.PHONY: bench
bench: doctor-demo $(lab) ## measure what has a budget; BENCH=name for one, FULL=1 for the whole numbers
	@hack/bench $(BENCH)

.PHONY: build
build: doctor-build ## the programs, into bin/
	@mkdir -p bin
	go build -ldflags '$(ldflags)' -o bin/ ./controller ./speaker

# What an image is called. Example: make image IMAGES=registry.example/berth VERSION=v0.1.0
IMAGES ?= ghcr.io/berthlb/berth

.PHONY: image
image: doctor-build ## container images without a container engine, for amd64 and arm64, as tarballs in dist/
	@cd hack/image && go build -o $(image) .
	@for arch in amd64 arm64; do \
		mkdir -p dist/$$arch && \
		GOARCH=$$arch go build -ldflags '$(ldflags)' -o dist/$$arch/ ./controller ./speaker && \
		$(image) -program dist/$$arch/controller -arch $$arch -tag $(IMAGES)/controller:$(VERSION) -output dist/controller-$$arch.tar && \
		$(image) -program dist/$$arch/speaker -user 0 -arch $$arch -tag $(IMAGES)/speaker:$(VERSION) -output dist/speaker-$$arch.tar || exit 1; \
	done

.PHONY: soak
soak: doctor-test $(testsum) $(lab) ## new random histories of allocation; then a calm cluster must stay calm, for DURATION (10m)
	go test -count=1 -timeout 0 -run Random ./internal/ipam -rapid.checks=$(or $(HISTORIES),20000) -rapid.seed=$$(date +%s)
	@DURATION='$(or $(DURATION),10m)' $(again) e2e SCENE=steady

# ---- for those who change Berth

.PHONY: check
check: doctor-build ## what needs no run: format, vet, lint, generated files, modules, scripts, links, the architecture
	@$(steps) \
		'gofmt|60|hack/check gofmt' \
		'scripts|60|hack/check scripts' \
		'modules|300|hack/check tidy $(modules)' \
		'generated files|300|hack/generate --check' \
		'vet|900|go vet ./... && cd e2e && go vet ./...' \
		'vet for arm64|900|GOARCH=arm64 go vet ./...' \
		'laws and links|300|go test -count=1 .' \
		'lint|900|$(again) lint'

.PHONY: lint
lint: doctor-build
	@$(tool) golangci-lint run --allow-parallel-runners ./...
	@cd e2e && $(tool) golangci-lint run --allow-parallel-runners ./...
	@cd hack/tools && $(tool) golangci-lint run --allow-parallel-runners ./...
	@cd hack/image && $(tool) golangci-lint run --allow-parallel-runners ./...
	@cd e2e/helm && $(tool) golangci-lint run --allow-parallel-runners ./...

.PHONY: generate
generate: doctor-build ## write the generated files anew
	@hack/generate

.PHONY: doctor
doctor: ## what this machine has and lacks, for all targets
	@hack/doctor --look test-more

# ---- parts of the above

.PHONY: doctor-build doctor-demo doctor-test doctor-test-more
doctor-build doctor-demo doctor-test doctor-test-more:
	@[ -n '$(BERTH_DOCTOR_DONE)' ] || hack/doctor --quiet $(@:doctor-%=%)

.PHONY: race
race: doctor-build $(testsum)
	@if command -v gcc >/dev/null; then \
		CGO_ENABLED=1 $(testsum) go test -json -race -timeout 10m ./...; \
	else \
		echo 'SKIP race detector: it needs gcc and libc6-dev, which are not here.'; \
	fi

.PHONY: lab-build
lab-build: doctor-demo $(lab)
	@$(lab) build

# Built anew each time; Go's own cache makes that quick, and knows better than make what has changed.
.PHONY: $(lab)
$(lab):
	@cd e2e && go build -o $@ ./cmd/lab

$(testsum): $(wildcard hack/tools/testsum/*.go)
	@cd hack/tools && go build -o $@ ./testsum
