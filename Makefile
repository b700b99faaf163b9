# Everything that checks or builds this repository. `make` alone prints the list.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One set of compiled packages serves all lines but those with the race detector, which needs cgo.
export CGO_ENABLED := 0
# Without paths in them, they also serve other checkouts and the build of a release. The flags of the
# environment and of go env -w stay, or half of the lines would compile everything again.
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath
# A program with the race detector sleeps for a second before it exits. Here it does not: 80 test
# binaries and the programs that they start would sleep for minutes.
export GORACE ?= atexit_sleep_ms=0

PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
FUZZTIME ?= 60s
TEST_TIMEOUT ?= 900s
# Test binaries without debugging information link a fifth faster.
TESTFLAGS := -vet=off -ldflags=-w -timeout $(TEST_TIMEOUT)
# Many tests wait for processes and disks, so two packages for each processor are tested at a time.
PARALLEL ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
SEED ?= 1
FOR ?= 9m

.PHONY: help check took room tmux browser pictures fmt vet staticcheck rules types cross test race programs-more long stores fleet chaos chaos-short netns jsonv2 fuzz sim planted mutate soak drift peers interop release programs packages shells site scoreboard bench bench-check clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Two lanes at a time, because tests also wait for processes, disks and clocks. The first compiles with the race detector
# and the second without, so neither compiles what the other does.
LANES := fmt+vet+staticcheck+race rules+types+programs+fleet
check: ## everything a change must pass: all the lines below down to race, with the seconds of each; TIMES=FILE gets the sum
	@$(MAKE) --no-print-directory --jobs=2 $(LANES:%=lane-%); \
	$(MAKE) --no-print-directory took COMMAND='make check' TOOK=$$SECONDS

lane-%:
	@for part in $(subst +, ,$*); do $(MAKE) --no-print-directory timed-$$part || exit 1; done

# For any line: make it, and print its seconds.
timed-%:
	@began=$$SECONDS; $(MAKE) --no-print-directory $*; echo "check: $* took $$((SECONDS - began)) s"

took: ## append how many seconds (TOOK) a COMMAND took to the file TIMES, if that is set
	@[ -z "$${TIMES:-}" ] || printf '%s\t%d\t%s\n' "$(COMMAND)" "$(TOOK)" "$$(git rev-parse --short HEAD)" >> "$$TIMES"

fmt: ## fail on files that gofmt would change
	@bad=$$(git ls-files -co --exclude-standard -z -- '*.go' | xargs -0 -r gofmt -l 2>&1); \
	if [ -n "$$bad" ]; then echo "not formatted, run gofmt -w:"; echo "$$bad"; exit 1; fi

# Like staticcheck, it needs all packages and their tests compiled. Both have them compiled as make race does, so that
# this is done once.
vet: ## go vet
	CGO_ENABLED=1 go vet -race ./...

staticcheck: ## staticcheck, from the module in tools/
	go tool -modfile=tools/go.mod staticcheck -version
	CGO_ENABLED=1 GOFLAGS='$(GOFLAGS) -race' $$(go tool -modfile=tools/go.mod -n staticcheck) ./...

rules: ## the rules of this repository: import arrows, documentation, dependencies, links
	go test -count=1 ./internal/house

types: ## check the types of all packages and their tests for the other systems, without compiling them
	go run ./internal/typecheck $(filter-out $(shell go env GOHOSTOS)/$(shell go env GOHOSTARCH),$(PLATFORMS))

cross: ## link the command for linux, macOS and windows on amd64 and arm64, and vet every package for each other system (for CI: make check only checks types)
	@here=$$(go env GOHOSTOS)/$$(go env GOHOSTARCH); for platform in $(PLATFORMS); do \
		echo "cross: $$platform"; \
		export GOOS=$${platform%/*} GOARCH=$${platform#*/}; \
		go build -ldflags=-w -o /dev/null ./cmd/parley || exit 1; \
		[ $$GOARCH != amd64 ] || [ $$platform = $$here ] || go vet ./... || exit 1; \
	done

jsonv2: ## for CI: the round trips of package wire under Go's own encoding/json/v2
	GOEXPERIMENT=jsonv2 go test $(TESTFLAGS) ./wire/...

stores: ## for CI: vet and test the modules below stores/, each with its own server on loopback if one is installed
	@for module in stores/*/go.mod; do \
		echo "stores: $${module%/go.mod}"; \
		(cd "$${module%/go.mod}" && go vet ./... && go test $(TESTFLAGS) ./...) || exit 1; \
	done

fleet: ## vet and test the module fleet/ with the race detector, with NATS servers of its own on loopback
	cd fleet && export CGO_ENABLED=1 && go vet -race ./... && go test -race $(TESTFLAGS) -timeout 300s ./...

chaos-short: ## make chaos in less than a minute, for CI: it fails only if something is lost, done twice or written by the wrong process
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	(cd fleet && go build -o "$$dir/chaos" ./internal/chaos) && "$$dir/chaos" -busy -seed $(SEED) -for 15s -sessions 6 -lease 6s -rest 200

netns: ## from one machine to three, as in docs/fleet.md, with network namespaces as machines; skipped if there are none
	scripts/fleet-netns

chaos: ## three nodes and four workers as processes, killed, paused and cut off: nothing is lost, nothing runs twice (SEED, FOR=9m)
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	(cd fleet && go build -o "$$dir/chaos" ./internal/chaos) && "$$dir/chaos" -seed $(SEED) -for $(FOR)

browser: ## vet the tests of the console and run them in a real Chromium, which scripts/chromium installs (PARLEY_NO_BROWSER=1 skips them)
	[ "$${PARLEY_NO_BROWSER:-}" = 1 ] || { scripts/chromium && scripts/axe && { scripts/peers || true; }; }
	cd console/testdata/browsertest && go vet ./... && go test -vet=off -count=1 -timeout 300s ./...

pictures: ## renew the pictures of the console in docs/img
	cd console/testdata/browsertest && PARLEY_SHOTS=$(CURDIR)/docs/img go test -count=1 -run TestPictures .

# Packages whose tests do their work in other programs: the race detector would see little of it, and
# they would take several times as long. The same is true of what starts no goroutine and computes much. The rules
# (internal/house) are a line of their own.
PROGRAMS := cmd/parley engine/policy/policytest examples internal/site internal/typecheck internal/worktree terminal
# Their tests build a release and its packages, which is a matter of CI.
RELEASE := internal/sbom internal/pack
programs: ## the tests that do their work in other programs: the command, attacks, examples, the site
	go test -p $(PARALLEL) $(TESTFLAGS) $(PROGRAMS:%=./%)

programs-more: ## for CI: test a release and its packages, and the command, the examples and the terminal again, with the race detector
	go test $(TESTFLAGS) $(RELEASE:%=./%)
	CGO_ENABLED=1 go test -race $(TESTFLAGS) ./cmd/parley ./examples ./terminal

race: ## all other tests, with the race detector
	CGO_ENABLED=1 go test -race -p $(PARALLEL) $(TESTFLAGS) $$(go list ./... | grep -vE '/($(subst $() ,|,$(PROGRAMS) $(RELEASE) internal/house))$$')

long: ## the whole of the suites of which make check plays a part: attacks and everyday commands (10 minutes)
	scripts/programs bwrap || true
	PARLEY_TEST_LONG=1 go test -timeout 60m -run 'Attacks|Everyday|Decisions|Packages|Crash|Swapped|PrintEnds' ./engine/policy/policytest ./agent ./internal/pack
	cd fleet && PARLEY_TEST_LONG=1 go test -timeout 15m -run 'Migration|LostMajority' .

test: ## all tests, quickly
	go test -timeout $(TEST_TIMEOUT) ./...

planted: ## the first seed of the simulation that finds each planted bug (SEEDS=100000, BUG=part of its name)
	go run ./internal/sim/cmd/sim -planted $(if $(SEEDS),-seeds $(SEEDS)) $(if $(BUG),-bug "$(BUG)")

mutate: ## change packages in one place at a time and run their tests: MUTANTS=20 of each of PKG, chosen by SEED, or all of AT=file.go:line
	go run ./internal/mutate -n $(or $(MUTANTS),20) -seed $(SEED) $(if $(AT),-v -at $(AT)) $(or $(PKG),./engine/policy ./session ./wire . ./hub)

sim: ## play the simulation: SEEDS=100000 from FROM=0, SIMTIME=1m, ONE=17 for one seed with its trace, TWICE=1 to compare two runs of each
	go run ./internal/sim/cmd/sim $(if $(ONE),-seed $(ONE)) $(if $(FROM),-from $(FROM)) $(if $(SEEDS),-seeds $(SEEDS)) $(if $(SIMTIME),-time $(SIMTIME)) $(if $(TWICE),-twice)

soak: ## 200 conversations at a time for FOR (9m): no goroutine and no descriptor is left, and the heap does not grow; ROUND=1m makes it slower
	PARLEY_SOAK=$(FOR) PARLEY_SOAK_ROUND=$(ROUND) go test -count=1 -timeout 0 -v -run 'TestSoak$$' ./agent

drift: ## play the last versions of the official CLI and SDKs against Parley; writes docs/drift.md (installs 9 GB)
	go run ./internal/drift docs/drift.md

fuzz: ## every fuzz target for FUZZTIME (60s) each
	scripts/fuzz $(FUZZTIME)

room: ## empty the build cache if less than 20 GB of its disk are free
	scripts/room

tmux: ## install tmux, which the tests of terminal/ use, unless it is there
	scripts/programs tmux

shells: ## install zsh and fish, in which the tests of completion run, if that is possible
	scripts/programs zsh fish || true

peers: ## install the official SDKs and CLI, pinned, outside the tree
	scripts/peers

interop: ## the tests against the official SDKs and CLI, with loopback only
	scripts/interop

bench: ## every benchmark beside its peer, with loopback only; writes docs/performance.md
	scripts/bench -write docs/performance.md

bench-check: ## fail if a hot path needs more instructions than before (needs valgrind); UPDATE=1 saves the new counts
	@if [ -n "$(OPTIONAL)" ] && ! command -v valgrind >/dev/null; then echo "bench-check: there is no valgrind"; exit 0; fi; \
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	go build -trimpath -o "$$dir/" ./bench ./bench/hot && "$$dir/bench" check "$$dir/hot" $(if $(UPDATE),update)

release: ## the command for every platform into dist/, static and reproducible, with checksums and lists of components
	scripts/release

site: ## the documentation as a web site in dist/site, searchable offline; fails on dead links
	go run ./internal/site dist/site

scoreboard: ## one page, dist/scoreboard.md: versions, conformance of all peers, faults survived, the performance of the last make bench
	scripts/scoreboard

packages: ## the release as archives, deb, rpm, apk, a Homebrew formula and npm packages in dist/
	scripts/packages

clean: ## remove what builds and tests leave in the tree
	rm -rf bin dist
	go clean ./...
