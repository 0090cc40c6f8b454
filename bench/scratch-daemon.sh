# Sourced by benchmarks that start a daemon of their own: `scratch_daemon NAME FOLDER` sets ours (the program), scratch (a
# folder in FOLDER) and POOLHOUSE_STATE, and at the end of the script exports the pool `tank`, ends the daemon and removes
# the folder. POOLHOUSE names a program that is built already.
scratch_daemon() {
  ours=${POOLHOUSE:-${CARGO_TARGET_DIR:-target}/release/poolhouse}
  [[ -n ${POOLHOUSE:-} ]] || cargo build --quiet --locked --release -p poolhouse
  ours=$(readlink -f "$ours")
  scratch=$(mktemp -d "$2/bench-$1.XXXXXX")
  export POOLHOUSE_STATE=$scratch/state
  trap end_scratch_daemon EXIT
}

end_scratch_daemon() {
  "$ours" zpool export -f tank >/dev/null 2>&1 || true
  "$ours" serve --stop >/dev/null 2>&1 || true
  { grep -o " $scratch/[^ ]*" /proc/mounts || true; } | sort -r | while read -r mount; do umount -l "$mount" || true; done
  rm -rf "$scratch"
}
