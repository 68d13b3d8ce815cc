#!/usr/bin/env bash
# Checks the contracts, also against those that are released, and writes their Go stubs. `--release` then makes what is
# here the released ones: plugins in the field speak them from then on.
set -euo pipefail
cd "$(dirname "$0")"
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
# Outside the module: its dependencies are not ours.
(cd "$tools" && export GOBIN="$tools" && go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12 \
  && go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2 && go install github.com/bufbuild/buf/cmd/buf@v1.75.0)
export PATH="$tools:$PATH"
buf format -d --exit-code
buf lint
[ ! -e released.binpb ] || buf breaking --against released.binpb
buf generate
[ "${1:-}" != --release ] || buf build -o released.binpb
