# Everything works from a fresh clone with Go and nothing else; `make demo` first.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME    = 10s
DEMO_ROOT   = testdata/skills

# Builds the part of the race detector that needs C: a compiler without its headers counts as none.
RACE = $(shell go build -race runtime/cgo >/dev/null 2>&1 && echo -race)

.PHONY: build demo test unit race e2e fuzz bench check lint vet vuln

build:
	go build -o bin/skillsd ./cmd/skillsd

demo: build
	go run ./e2e/demo bin/skillsd $(DEMO_ROOT)

test: unit fuzz

unit:
	@race="$(RACE)"; test -n "$$race" || echo "no C compiler here: testing without -race"; set -x; go test -shuffle=on $$race ./...

race:
	go test -race -shuffle=on ./...

e2e:
	go test -count=1 -v ./e2e/...

fuzz:
	@targets=$$(go test -list '^Fuzz' ./...) && echo "$$targets" | awk '/^Fuzz/ {f[++n] = $$1} /^ok/ {for (i = 1; i <= n; i++) print $$2, f[i]; n = 0}' | \
	while read -r pkg name; do echo "$$pkg $$name"; go test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=5x "$$pkg" </dev/null || exit 1; done

bench:
	go test -run='^$$' -bench=. -benchmem ./...

check: lint vet vuln

lint:
	@out=$$(gofmt -l .) && if [ -n "$$out" ]; then echo "gofmt -l:"; echo "$$out"; exit 1; fi
	go run $(STATICCHECK) ./...
	go mod tidy -diff

vet:
	go vet ./...
	GOOS=darwin CGO_ENABLED=0 go build ./... && GOOS=darwin CGO_ENABLED=0 go vet ./...
	GOOS=windows CGO_ENABLED=0 go build ./... && GOOS=windows CGO_ENABLED=0 go vet ./...

# Findings fail; a tool or a database that cannot be reached here is said and does not.
vuln:
	@GOBIN="$(CURDIR)/bin" go install $(GOVULNCHECK) || { echo "govulncheck: cannot be fetched here, nothing was checked"; exit 0; }; \
	out=$$(bin/govulncheck ./... 2>&1) || case $$out in *"fetching vulnerabilities"*) echo "govulncheck: no vulnerability database here, nothing was checked" ;; *) echo "$$out"; exit 1 ;; esac
