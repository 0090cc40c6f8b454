#!/usr/bin/env bash
# The work of `make bench`: parity against OpenZFS's own, then reading against zdb, cp and plain reads.
#
# BENCH_POOLS names the folder with the pools of bench/make-pools. Where it is not set, they are made
# in target/bench by the machine that ZFS_VM names (a quarter of an hour, once); without either, only
# what needs no pools is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
if command -v raidz_test >/dev/null; then bench/parity.sh "${ROUNDS:-1}" || true
else echo "left out: raidz_test is not installed (Debian: zfs-test), so parity has no peer"; fi
pools=${BENCH_POOLS:-target/bench}
if [[ ! -e $pools/large ]]; then
  [[ -n ${ZFS_VM:-} ]] || { echo "left out: no pools to read (set BENCH_POOLS or ZFS_VM: see bench/make-pools)"; exit 0; }
  bench/make-pools "$pools"
fi
cargo build --quiet --locked --release -p poolhouse -p bench
target=${CARGO_TARGET_DIR:-target}
"$target/release/bench" "$pools" "$target/release/poolhouse" "${ROUNDS:-5}"
