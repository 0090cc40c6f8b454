#!/usr/bin/env bash
# Sending and receiving large files beside reading and writing the same files in the engine; increments of 1 %.
#
#   bench/streams.sh [FOLDER, default a new one in /dev/shm]
#   ROUNDS=3 MIB=4096 BLOCKS=1000000 bench/streams.sh     how often, how much, the blocks of the largest file
#   BENCH_PROGRAM=... bench/streams.sh                    with a program that is built already
#
# Two pools (raidz2 of six files) lie in FOLDER, and take about five times MIB there. Nothing is mounted.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -n ${BENCH_PROGRAM:-} ]] || cargo build --quiet --locked --release -p bench
bench=$(realpath "${BENCH_PROGRAM:-${CARGO_TARGET_DIR:-target}/release/bench}")
scratch=${1:-$(mktemp -d /dev/shm/poolhouse-streams.XXXXXX)}
leave() {
  rm -f "$scratch"/{source,target}/d[0-9].img
  rmdir --ignore-fail-on-non-empty "$scratch"/{source,target} "$scratch" 2>/dev/null || true
}
trap leave EXIT
"$bench" streams "$scratch" "${ROUNDS:-3}" "${MIB:-4096}" "${BLOCKS:-1000000}"
