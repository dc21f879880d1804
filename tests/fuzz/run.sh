#!/usr/bin/env bash
# Builds a fuzz target with clang and runs it: tests/fuzz/run.sh [SECONDS]. 0 replays the committed corpus only.
# What it finds new goes to OUT (default: a directory under /tmp), so that the committed corpus stays small; a crash is left there.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
out=${OUT:-/tmp/weir-fuzz}
clang=${CLANG:-clang++-19}
mkdir -p "$out/h1"
"$clang" -std=c++23 -O1 -g -Wall -Wextra -Werror -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. \
  tests/fuzz/h1_fuzz.cc protocols/h1/{chars,semantics,parser,body_reader,writer}.cc protocols/exchange/head.cc \
  engines/{slab,chain,check}.cc -o "$out/h1_fuzz"
if [ "$seconds" = 0 ]; then
  exec "$out/h1_fuzz" -runs=0 tests/fuzz/corpus/h1
fi
exec "$out/h1_fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=5 -dict=tests/fuzz/h1.dict \
  -artifact_prefix="$out/" "$out/h1" tests/fuzz/corpus/h1
