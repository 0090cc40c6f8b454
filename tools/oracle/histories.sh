#!/usr/bin/env bash
# histories.sh: seeded histories of datasets, replicated to real OpenZFS and from it, compared by content.
#
#   histories.sh POOLHOUSE ZFS-VM [COUNT, default 60 [SEED, default 1]]
#
# A history (histories.py) creates, writes, clones, promotes, renames, destroys and holds, in a plain and an encrypted tree.
# After each of its stages the tree is sent with -R, in full the first time, and then as an increment (-I): odd seeds
# plain with -Lec, even seeds raw (-w), with an encrypted tree. Each history runs twice: poolhouse makes it and OpenZFS, in the
# VM, receives it; and OpenZFS makes it and poolhouse receives it. The names, guids and origins of all datasets and
# snapshots must be equal, and so must every entry of every snapshot. Mounts with fuse, so that it runs as root.
set -euo pipefail
poolhouse=$(readlink -f "$1") vm=$(readlink -f "$2") count=${3:-60} seed=${4:-1}
here=$(dirname "$(readlink -f "$0")") stages=3
work=$(mktemp -d)
export POOLHOUSE_STATE=$work/state
finish() {
  "$poolhouse" serve --stop >/dev/null 2>&1 || true
  if grep -q " $work/" /proc/mounts; then echo "histories.sh: $work has mounts, and stays" >&2; else rm -r "$work"; fi
}
trap finish EXIT
mkdir -p "$work"/{bin,share,root}
printf '#!/bin/sh\nexec %q zfs "$@"\n' "$poolhouse" >"$work/bin/zfs"
printf '#!/bin/sh\nexec %q zpool "$@"\n' "$poolhouse" >"$work/bin/zpool"
chmod +x "$work"/bin/*
printf 'correct horse battery staple' >"$work/share/key"

# Functions of both sides. $share, $root and $keyfile are set.
cat >"$work/share/common" <<'COMMON'
set -eu
listing() { # POOL: all snapshots with their guids and origins, and the content of each
  local dir name
  zfs list -Hpo name,guid -t snapshot -r "$1/h" | sed "s|^$1/||" | LC_ALL=C sort
  zfs list -Ho name,origin -t filesystem -r "$1/h" | sed "s|^$1/||; s|\t$1/|\t|" | LC_ALL=C sort
  zfs list -Ho name -t filesystem -r "$1/h" | LC_ALL=C sort | while read -r name; do
    [ "$(zfs get -Ho value mounted "$name")" = yes ] || zfs mount "$name"
    dir=$root/$name/.zfs/snapshot
    for part in $(zfs list -Ho name -t snapshot -d1 "$name" | sed 's/.*@//' | LC_ALL=C sort); do
      echo "== ${name#*/}@$part"
      (cd "$dir/$part"
       find . -printf '%P|%y|%m|%U|%G|%s|%n\n' | LC_ALL=C sort
       find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum)
    done
  done
}
history() { # POOL SEED FOLDER: makes a history, and leaves its streams and its listing
  pool=$1 streams=$3
  if [ $(($2 % 2)) = 0 ]; then form=-w; else form=-Lec; fi
  stage() {
    local base=
    [ "$1" = 1 ] || base="-I @stage$(($1 - 1))"
    zfs send -R $form $base "$pool/h@stage$1" >"$streams/$1"
  }
  . "$share/history-$2"
  listing "$pool" >"$streams/listing"
}
take() { # POOL SEED FOLDER: receives it, and compares
  local stage
  for stage in "$3"/[0-9]*; do
    zfs receive -Fu "$1/h" <"$stage" || { echo "FAULT seed $2: $stage is not received"; return; }
  done
  if [ "$(zfs get -Ho value keystatus "$1/h/secret" 2>/dev/null)" = unavailable ]; then
    zfs load-key -L "file://$keyfile" "$1/h/secret"
  fi
  listing "$1" >"$3/received"
  if cmp -s "$3/listing" "$3/received"; then echo "same seed $2 ($(wc -l <"$3/listing") lines)"; else
    echo "FAULT seed $2 differs:"; diff "$3/listing" "$3/received" | head -n 8; fi
}
COMMON

cat >"$work/judge" <<'JUDGE'
share=${SHARE:-/share} root=${ROOT:-/ram/root} keyfile=/tmp/oracle-key
. $share/common
cp $share/key $keyfile
mkdir -p $root
for seed in $(cat $share/seeds); do
  for pool in got theirs; do
    truncate -s 2G "${IMAGES:-/ram}/$pool.img"
    zpool create -f -O compression=on -R $root -O mountpoint=/$pool $pool "${IMAGES:-/ram}/$pool.img"
  done
  take got $seed $share/ours/$seed
  mkdir -p $share/theirs/$seed
  history theirs $seed $share/theirs/$seed
  for pool in got theirs; do
    zpool scrub -w $pool
    zpool status $pool | grep -q 'errors: No known data errors' || echo "FAULT scrub of $pool, seed $seed"
    zpool destroy -f $pool
  done
done
JUDGE

new_pool() { # NAME
  truncate -s 2G "$work/$1.img"
  "$poolhouse" zpool create -f -R "$work/root" -O mountpoint="/$1" "$1" "$work/$1.img"
}

# ten histories a boot of the VM
for ((first = seed; first < seed + count; first += 10)); do
  last=$((first + 9 < seed + count ? first + 9 : seed + count - 1))
  seq "$first" "$last" >"$work/share/seeds"
  for number in $(cat "$work/share/seeds"); do
    python3 "$here/histories.py" "$number" $stages >"$work/share/history-$number"
    mkdir -p "$work/share/ours/$number"
    new_pool ours
    (PATH=$work/bin:$PATH share=$work/share root=$work/root keyfile=$work/share/key
     . "$work/share/common"; history ours "$number" "$work/share/ours/$number")
    "$poolhouse" zpool destroy -f ours
  done
  "$vm" run --share "$work/share" --mem 6G --timeout 1800 -- "$work/judge"
  for number in $(cat "$work/share/seeds"); do
    new_pool taken
    (PATH=$work/bin:$PATH share=$work/share root=$work/root keyfile=$work/share/key
     . "$work/share/common"; take taken "$number" "$work/share/theirs/$number")
    "$poolhouse" zpool destroy -f taken
    rm -r "$work/share/ours/$number" "$work/share/theirs/$number" "$work/share/history-$number"
  done
done | tee "$work/report"
! grep -q FAULT "$work/report"
