#!/usr/bin/env bash
# The tour: pools made by real OpenZFS, opened by Poolhouse. No root, no kernel module, no daemon.
set -uo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
tour=$target/tour
pools=$tour/pools
failed=0
mkdir -p "$pools" "$tour/out"
PATH=$PWD/$target/release:$target/release:$PATH

unpack() { # NAME: the pool's disks, as someone would find them in a drawer
  [[ -d $pools/$1 ]] || cargo run --quiet --locked --release \
    -p fixtures --example unpack -- "$1" "$pools"
}

show() { # WORDS...: a command and the first lines of what it says (of the last ones, where `last` is set)
  printf '\n\033[1m$ %s\033[0m\n' "$*"
  if [[ -n ${last:-} ]]; then "$@" 2>&1 | tail -n "$last"; else "$@" 2>&1 | sed -n "1,${lines:-12}p"; fi
  local status=${PIPESTATUS[0]}
  if [[ $status -ne ${wanted:-0} ]]; then
    echo "(exit status $status)"
    failed=1
  fi
}

say() { printf '\n%s\n' "$*"; }

for name in mirror-2 snapshots raidz3-8-mixed-trouble encryption; do unpack "$name"; done

say "A raidz3 of eight disks; one is gone, and two were silently overwritten in places:"
lines=30 show poolhouse rescue scan -d "$pools/raidz3-8-mixed-trouble"
show poolhouse rescue ls -l -d "$pools/raidz3-8-mixed-trouble" tank:/
say "Every block of it, each copy, and parity: it names what is damaged (exit status 1), and nothing is lost:"
last=12 wanted=1 show poolhouse rescue verify -d "$pools/raidz3-8-mixed-trouble" tank

say "Datasets, snapshots, clones, bookmarks:"
show poolhouse rescue list -d "$pools/snapshots" tank
rm -rf "$tour/out/tree"
show poolhouse rescue get -d "$pools/snapshots" tank/heir@one:/tree "$tour/out/"
say "What six drives of 4 TB would hold, to the byte, before they are bought:"
lines=16 show poolhouse plan --drives 6x4TB --for balance
say "Encrypted datasets, with the passphrase in a file:"
printf 'correct horse battery staple' >"$tour/passphrase"
show poolhouse rescue ls -l -d "$pools/encryption" --key "tank/pass=$tour/passphrase" tank/pass:/

if [[ -e /dev/fuse ]] && command -v fusermount3 >/dev/null; then
  mkdir -p "$tour/mnt"
  say "The whole pool as a folder, read-only, with its snapshots:"
  printf '\033[1m$ poolhouse rescue mount -d %s tank %s &\033[0m\n' "$pools/snapshots" "$tour/mnt"
  poolhouse rescue mount -d "$pools/snapshots" tank "$tour/mnt" >"$tour/mount.log" 2>&1 &
  mount=$!
  for _ in {1..50}; do
    if mountpoint -q "$tour/mnt" || ! kill -0 "$mount" 2>/dev/null; then break; fi
    sleep 0.1
  done
  if mountpoint -q "$tour/mnt"; then
    show ls -l "$tour/mnt" "$tour/mnt/heir/.zfs/snapshot"
    fusermount3 -u "$tour/mnt"
    wait "$mount"
  else
    kill "$mount" 2>/dev/null
    cat "$tour/mount.log"
    say "(mounting is not possible here: everything else works without)"
  fi
fi

say "Now with disks of your own:  $target/release/poolhouse rescue scan -d /dev
Try:                         $target/release/poolhouse rescue --help
The pools of this tour are in $pools; what was copied out is in $tour/out."
exit "$failed"
