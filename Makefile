# Setpoint needs Go, git and make. The tools below are built from the versions pinned in tools/ and kept in bin/.

GO ?= go

# The commands, and the examples that are modules of their own, are in go.work. The other modules
# stand outside it and are used with GOWORK=off.
TEMPLATES  := $(patsubst %/go.mod,%,$(wildcard examples/*/go.mod))
JOINED     := $(patsubst %/go.mod,%,$(wildcard cmd/*/go.mod)) $(TEMPLATES)
STANDALONE := $(patsubst %/go.mod,%,$(wildcard crbridge/go.mod debug/pagetest/go.mod envtest/controlplane/go.mod envtest/sim/crd/go.mod tools/go.mod tracing/go.mod))
BENCH      := $(patsubst %/go.mod,%,$(wildcard bench/go.mod))

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build test-modules lint: STANDALONE += $(BENCH)
build: go-version ## compile every module
	@$(call each,$(GO) build -o /dev/null ./...)

# Most tests wait for a control plane, so at least four packages run at once.
AT_ONCE := $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 4); echo $$((n > 4 ? n : 4)))

# With Go's default, tests spend a fifth of their processor time on garbage collection.
test: export GOGC ?= 200

.PHONY: test
test: control-plane ## test the library, the examples and the other modules
	@$(MAKE) --no-print-directory -k -j3 test-library test-e2e test-modules

.PHONY: test-library test-e2e test-modules
test-library:
	@$(call library,$(GO) test -p $(AT_ONCE) $(TESTFLAGS) ./...,.)

# These tests wait more than they compute, so 'make test' runs them beside the library's.
test-e2e:
	@$(call library,$(GO) test -p 2 $(TESTFLAGS) ./...,e2e)

test-modules:
	@$(call modules,$(GO) test -p 2 $(TESTFLAGS) ./...,-count=1)

.PHONY: test-full
test-full: ## as test, with the scenario tests that take minutes
	@SETPOINT_FULL=1 $(MAKE) test TESTFLAGS='-timeout=60m $(TESTFLAGS)'
	cd examples/website && SETPOINT_SWEEP=controlplane $(GO) test -count=1 -timeout=30m -run TestSweep ./operator

.PHONY: race
race: STANDALONE :=
race: JOINED := $(TEMPLATES)
race: control-plane c-compiler ## test the library, e2e and the examples with the race detector (needs a C compiler)
	@$(call each,$(GO) test -race $(TESTFLAGS) ./...)

# stress and mutate are built, not run by 'go run', which would not pass SIGTERM on to them.
.PHONY: stress
stress: control-plane ## test many times, shuffled, next to CPU hogs (STRESSFLAGS='-runs 100 -race 20 -packages manager')
	@GOWORK=off $(GO) build -C tools -o ../bin/stress ./stress
	@bin/stress $(STRESSFLAGS)

.PHONY: lint
lint: go-version bin/golangci-lint ## the linters of .golangci.yml over every module, tools/prose, and setpoint-vet over the examples
	@GOWORK=off $(GO) run -C tools ./prose
	@$(call each,$(CURDIR)/bin/golangci-lint run --config $(CURDIR)/.golangci.yml ./...)
	@cd cmd/setpoint-vet && GOWORK=off $(GO) build -o $(CURDIR)/bin/setpoint-vet .
	GOWORK= $(GO) vet -vettool=bin/setpoint-vet ./examples/... $(TEMPLATES:%=./%/...)
	GOWORK=off $(GO) mod tidy -diff

.PHONY: mutate
mutate: control-plane ## break the code once for each guarantee and see its test fail (MUTATEFLAGS='-only W1,W2')
	@GOWORK=off $(GO) build -C tools -o ../bin/mutate ./mutate
	@bin/mutate $(MUTATEFLAGS)

.PHONY: conformance
conformance: control-plane ## compare the simulated API server with the real one (CONFORMANCEFLAGS='-ops 1000000 -owners 10000 -seed 1')
	GOGC=400 $(GO) test -count=1 -timeout=6h -v -run V1 ./envtest/sim/conformance $(or $(CONFORMANCEFLAGS),-ops 100000)

# The versions that envtest.Options.Version takes.
KUBERNETES ?= 1.37 1.36 1.35

# The packages of the library whose tests start a control plane.
USERS = $$(GOWORK=off $(GO) list -test -f '{{$$p := .ImportPath}}{{range .Deps}}{{if eq . "github.com/setpoint-dev/setpoint/envtest"}}{{println $$p}}{{end}}{{end}}' ./... | sed -n 's/\.test$$//p' | grep -v sim/conformance)

.PHONY: compat
compat: export GOGC = 200
compat: go-version ## the tests that need a control plane, on each supported Kubernetes (KUBERNETES='1.36 1.35')
	@status=0; for v in $(KUBERNETES); do \
		echo "== Kubernetes $$v"; export SETPOINT_KUBERNETES=$$v; \
		$(GO) run ./envtest/cluster fetch >/dev/null || { status=1; continue; }; \
		GOWORK=off $(GO) test -count=1 -p $(AT_ONCE) $(TESTFLAGS) $(USERS) || status=1; \
		(cd e2e && GOWORK=off $(GO) test -count=1 -p $(AT_ONCE) $(TESTFLAGS) ./...) || status=1; \
		GOWORK=off $(GO) test -count=1 -run V1 ./envtest/sim/conformance -ops 60000 || status=1; \
		GOWORK= $(GO) test -count=1 -p $(AT_ONCE) $(TESTFLAGS) $(JOINED:%=./%/...) || status=1; \
	done; exit $$status

.PHONY: structure
structure: go-version ## size and shape of the library, in numbers (STRUCTUREFLAGS='-before v0.1.0', '-arrows cache')
	@GOWORK=off $(GO) build -C tools -o ../bin/structure ./structure
	@bin/structure $(STRUCTUREFLAGS)

.PHONY: guarantees
guarantees: go-version ## write docs/guarantees.md and docs/guarantees-tests.md from package docs, tests and mutations
	GOWORK=off $(GO) run -C tools ./mutate -table

.PHONY: llms
llms: go-version ## list the guides and packages in docs/llms.txt, for coding assistants
	GOWORK=off $(GO) run -C tools/llms .

.PHONY: api
api: go-version ## list the exported declarations of each package in api/, for reviewers
	GOWORK=off $(GO) run -C tools ./api

.PHONY: bench
bench: go-version ## speed beside client-go and controller-runtime, as ratios
	cd bench && GOWORK=off $(GO) run . $(BENCHFLAGS)

.PHONY: demo
demo: go-version ## run the website operator on an API server in memory, once (DEMOFLAGS=-cluster: on a real one)
	$(GO) run ./examples/website -once $(DEMOFLAGS)

.PHONY: ha
ha: go-version ## three replicas of an operator, whose leader is stopped, killed, suspended and cut off (HAFLAGS='-rounds 60')
	cd e2e && GOWORK=off $(GO) run ./ha $(HAFLAGS)

.PHONY: upgrade
upgrade: control-plane ## fleets in which each second replica is of another version (UPGRADEFLAGS='-from v0.1.0')
	cd e2e && GOWORK=off SETPOINT_FULL=1 $(GO) test -count=1 -v ./upgrade -timeout=60m $(UPGRADEFLAGS)

.PHONY: cluster
cluster: go-version ## run a control plane in the foreground, for kubectl
	$(GO) run ./envtest/cluster

.PHONY: generate
generate: go-version ## regenerate what the examples' types imply
	@for m in $(TEMPLATES); do (cd $$m && $(GO) generate ./...) || exit 1; done

.PHONY: generated
generated: go-version ## fail if 'make generate' would change anything
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && cp -R examples "$$tmp/examples" && \
	$(MAKE) --no-print-directory generate && diff -r "$$tmp/examples" examples || \
	{ echo "generated files were not current: commit what 'make generate' changed"; exit 1; }

.PHONY: cross
cross: go-version ## vet the library and the examples for darwin/arm64 and windows/amd64
	@for os in darwin/arm64 windows/amd64; do for m in . e2e $(TEMPLATES); do \
		echo "go vet for $$os in $$m"; \
		(cd $$m && if test $$m = e2e; then export GOWORK=off; fi; GOOS=$${os%/*} GOARCH=$${os#*/} CGO_ENABLED=0 $(GO) vet ./...) || exit 1; \
	done; done

.PHONY: tidy
tidy: go-version ## go mod tidy in every module
	@for m in . debug/pagetest e2e envtest/sim/crd tools tools/lint tracing $(BENCH) $(patsubst %/go.mod,%,$(wildcard bench/*/go.mod)); do (cd $$m && GOWORK=off $(GO) mod tidy) || exit 1; done
	cd envtest/controlplane && GOWORK=off $(GO) run tidy.go
# A joined module requires the published library and has no replace line, so tidying it here takes one for a moment.
	@for m in $(JOINED); do (cd $$m && \
		$(GO) mod edit -replace=github.com/setpoint-dev/setpoint=$(CURDIR) && \
		{ GOWORK=off $(GO) mod tidy; s=$$?; $(GO) mod edit -dropreplace=github.com/setpoint-dev/setpoint; exit $$s; }) || exit 1; done

.PHONY: release
release: go-version ## check that the tree is ready for VERSION=v0.1.0 and tag all published modules; it pushes nothing
	@GOWORK=off $(GO) run -C tools ./release -version '$(VERSION)'

.PHONY: unreleased
unreleased: go-version ## what has changed since the last release: the API, and the changelog
	@GOWORK=off $(GO) run -C tools ./release -unreleased

.PHONY: plugin
plugin: go-version ## build the archives of kubectl setpoint in bin/plugin, and write their sums for krew (VERSION=v0.1.0)
	@GOWORK=off $(GO) run -C tools ./plugin -version '$(VERSION)'

# It downloads the database of https://vuln.go.dev, so CI does not run it.
.PHONY: vulncheck
vulncheck: STANDALONE := envtest/controlplane envtest/sim/crd tracing
vulncheck: go-version ## find known vulnerabilities in what users link (needs the network)
	@cd tools && GOWORK=off $(GO) build -o ../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	@$(call each,$(CURDIR)/bin/govulncheck ./...)

.PHONY: all
all: ## everything that CI runs
	./.ci/run

# each runs a command in every module, goes on after a failure, and fails if any failed. The library
# stands alone, as it does for its users; e2e is built like it. Modules outside the workspace take a further argument: go test
# must not trust its cache there, because the tests in tools/ read files of the library, which the cache
# does not see. Without cgo and debug information, as envtest does it, the 2,000 packages of the control
# plane are compiled once. The joined modules need the workspace: one go command takes them all, so that their
# tests wait at the same time; the linter takes one at a time. They come last, because in 'make test' the
# library's packages have been compiled by then.
RUN = run() { echo "== $$1"; (cd "$$1" && shift && "$$@") || status=1; };

define each
	$(call library,$(1)); $(call modules,$(1),$(2))
endef

define library
	status=0; $(RUN) \
	for m in $(or $(2),. e2e); do run $$m env GOWORK=off $(1); done; \
	(exit $$status)
endef

define modules
	status=$$?; $(RUN) \
	for m in $(STANDALONE); do run $$m env GOWORK=off CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -gcflags=all=-dwarf=false" $(1) $(2); done; \
	$(if $(filter $(GO),$(firstword $(1))), \
		echo "== $(JOINED)"; env GOWORK= $(subst ./...,$(JOINED:%=./%/...),$(1)) || status=1;, \
		for m in $(JOINED); do run $$m env GOWORK= $(1); done;) \
	exit $$status
endef

bin/golangci-lint: tools/lint/go.mod
	@echo "building golangci-lint (once, about a minute)"
	cd tools/lint && GOWORK=off $(GO) build -buildvcs=false -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Building the control plane for tests takes minutes, once. Here one sees it happen; inside 'go test' one would not.
.PHONY: control-plane
control-plane: go-version
	@$(GO) run ./envtest/cluster fetch >/dev/null

.PHONY: c-compiler
c-compiler: go-version
	@test "$$($(GO) env CGO_ENABLED)" = 1 || \
		{ echo "the race detector needs a C compiler, for instance: apt-get install gcc libc6-dev" >&2; exit 1; }

.PHONY: go-version
go-version:
	@command -v $(GO) >/dev/null || { echo "Setpoint needs Go: see https://go.dev/dl" >&2; exit 1; }
	@need=$$(awk '$$1 == "go" { print $$2 }' go.mod); have=$$($(GO) version | awk '{ print substr($$3, 3) }'); \
	awk -v have="$$have" -v need="$$need" 'BEGIN { split(have, h, "."); split(need, n, "."); \
		if (h[1] + 0 < n[1] + 0 || h[1] == n[1] && h[2] + 0 < n[2] + 0) { \
			print "Setpoint needs Go " need " or later, and this is Go " have ": see https://go.dev/dl" > "/dev/stderr"; exit 1 } }'
