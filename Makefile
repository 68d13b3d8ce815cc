# `make help` says what there is. Nothing here needs more than make, bash and, where something is missing, apt-get.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.tools/bin:/usr/local/go/bin:$(PATH)
GO ?= go
RELEASE := $(shell git describe --tags --exact-match 2>/dev/null)
LDFLAGS := $(if $(RELEASE),-X github.com/rouse-run/rouse/gateway/cli.release=$(RELEASE))

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## the binary, bin/rouse
	@.ci/deps go
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/rouse ./gateway/cmd/rouse

.PHONY: run
run: build ## the story, on a gateway and a Postgres of its own: a phone, a laptop, a laptop that dies
	@.ci/deps postgres
	@bin/rouse demo

.PHONY: test
test: ## everything that is checked before a change lands
	@.ci/deps go cc postgres node python chromium
	$(GO) vet ./...
	$(GO) vet -tags faults ./gateway/e2e/fault
	cd gateway/bench && $(GO) vet ./... && $(GO) test ./...
	$(GO) test -race -timeout 20m ./...

VERSION ?= 18
# What speaks to Postgres, and how it plans.
ON_POSTGRES := ./sql/... ./gateway/devpg/... ./gateway/store/... ./gateway/claims ./gateway/dispatch ./gateway/control ./gateway/observation \
  ./gateway/subscriptions ./gateway/shape ./gateway/feed ./gateway/retention ./gateway/seal ./gateway/streams ./gateway/e2e/pools ./gateway/e2e/fault

.PHONY: test-postgres
test-postgres: ## the tests that a Postgres matters to, on VERSION=15, 16, 17 or 18, which is fetched if it is not here
	@.ci/deps go
	bin=$$(.ci/postgres $(VERSION)) || exit 1; [ -x "$$bin/pg_dump" ] || skip='-skip TestSchemaSnapshotIsWhatMigrationsMake'; \
	  ROUSE_PG_BIN=$$bin $(GO) test -p 1 -timeout 20m $$skip $(ON_POSTGRES)

.PHONY: test-faults
test-faults: ## failover, lost slots, jumping clocks, full disks, under load, on VERSION of Postgres; as root, for the disks
	@.ci/deps go faketime
	bin=$$(.ci/postgres $(VERSION)) || exit 1; \
	  ROUSE_PG_BIN=$$bin $(GO) test -tags faults -parallel 2 -timeout 30m -v ./gateway/e2e/fault

.PHONY: bench
bench: build ## the figures of the performance page, next to those of other systems in the same run
	@.ci/deps postgres node
	cd gateway/bench && $(GO) run . $(ARGS)

.PHONY: ui
ui: ## the dashboard, from gateway/ui/web into what the binary embeds
	@.ci/deps node
	cd gateway/ui/web && npm ci --no-audit --no-fund && npm run check && npm run build

.PHONY: generate
generate: ## what is generated and checked in: plugin stubs, OpenAPI files, their clients, the schema snapshot
	@.ci/deps go postgres node
	plugins/proto/generate.sh
	openapi/generate.sh
	$(GO) test ./gateway/store/migrate -run TestSchemaSnapshot -count=1 -update

.PHONY: lint
lint: ## formatting, vet, staticcheck
	@.ci/deps go
	@unformatted=$$(gofmt -l gateway migrations sql $(wildcard plugins transports authhooks openapi)); \
	  [ -z "$$unformatted" ] || { echo "not formatted:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
