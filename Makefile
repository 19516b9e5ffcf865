# Forebay. `make help` lists the targets.
SHELL       := /bin/bash
GO          ?= go
BIN         := bin/forebay
TOOLS       := $(CURDIR)/.tools
STATICCHECK := $(TOOLS)/staticcheck
STATICCHECK_VERSION := v0.8.2
PROTOC_GEN_GO_VERSION := v1.36.12
# A number of inputs, not a time: where the time is up in the middle of an input, go test reports a failure that is none.
FUZZTIME    ?= 5000x
RUNS        ?= 200
VERSION     ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS     := -X main.version=$(VERSION)
# The test cache is kept: a package that did not change need not run again. CI runs on a clean clone.
TESTFLAGS   ?= -race -timeout 14m

.PHONY: help run build test lint vet fmt fuzz bench cluster local-s3 local-minio local-localstack test-stores generate check-generated proof crash clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build and start the embedded fabric; prints a token and a curl to paste
	$(BIN) dev

build: ## build bin/forebay
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/forebay

# internal/proof runs with failpoints: it removes fences, too, and its checkers must notice.
test: lint ## vet, staticcheck, formatting, import rules, unit, conformance, integration and crash tests with -race, short fuzzing
	$(GO) test $(TESTFLAGS) $$($(GO) list ./... | grep -v /internal/proof)
	$(GO) test -timeout 14m -tags contract -run OpenAPI ./gateway
	$(GO) test $(TESTFLAGS) -tags failpoints $$($(GO) list -tags failpoints -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./metadata ./compactor/... ./internal/proof 2>/dev/null)
	$(MAKE) --no-print-directory fuzz FUZZTIME=$(FUZZTIME)

lint: vet fmt $(STATICCHECK) ## vet, formatting, staticcheck
	$(STATICCHECK) ./...

vet:
	$(GO) vet ./...
	$(GO) vet -tags failpoints,contract ./...

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt wants to change:"; echo "$$out"; exit 1; fi

$(STATICCHECK):
	GOBIN=$(TOOLS) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

fuzz: ## run every fuzz target for FUZZTIME (default 5000x: that many inputs; or a time)
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz' || true); do \
	    echo "fuzz $$pkg $$f $(FUZZTIME)"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; done; done

bench: ## Go benchmarks of the hot paths
	$(GO) test -run '^$$' -bench . -benchmem ./segment ./metadata ./ingest ./fetch ./gateway/wire

crash: ## kill -9 at every point between buffer and ack, RUNS seeded runs (default 200)
	FOREBAY_CRASH_RUNS=$(RUNS) $(GO) test -count=1 -timeout 60m -v -run TestCrash ./internal/proof

proof: ## histories of three nodes checked for linearizability, longer than in `make test`
	FOREBAY_PROOF_SECONDS=60 $(GO) test -count=1 -timeout 30m -v -run 'TestHistory|TestBroken' ./internal/proof

cluster: build ## three etcd members and three nodes on loopback over one file store; Ctrl-C stops them
	localstack/cluster.sh

local-s3: build ## Forebay over versitygw and three etcd members, without Docker; ends with a smoke test
	localstack/s3.sh start

local-minio: build ## the same over MinIO, without Docker
	S3_SERVER=minio S3_DIR=$${S3_DIR:-.forebay-minio} S3_PORT=$${S3_PORT:-8880} localstack/s3.sh start

local-localstack: build ## the same over LocalStack's S3, without Docker
	localstack/localstack.sh start

test-stores: ## conformance, the real input and crashes on MinIO, moto and LocalStack (make test runs them on versitygw)
	localstack/stores.sh

generate: ## regenerate the protobuf code (needs protoc)
	GOBIN=$(TOOLS) $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
	PATH=$(TOOLS):$$PATH sh api/forebay/v1/generate.sh

check-generated: generate ## fail if generated code differs from what is committed
	git diff --exit-code -- '*.pb.go'

clean: ## remove build output (not data)
	rm -rf bin .tools
