#!/usr/bin/env bash
# Writes the descriptions and generates both clients from them.
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./gateway/cmd/rouse openapi --dir openapi
(cd openapi/client && go generate .)
cd openapi/ts
[ -d node_modules ] || npm ci --no-audit --no-fund
npm run --silent generate
cd ..
sha256sum openapi-3.0.yaml | cut -d' ' -f1 >client/spec.sha256
sha256sum openapi.yaml | cut -d' ' -f1 >ts/spec.sha256
