#!/usr/bin/env bash
# streams.sh: send streams exchanged with the real OpenZFS, both ways, compared by content.
#
#   streams.sh POOLHOUSE ZFS-VM FIXTURE.tar.zst...
#
# For each fixture (of unencrypted datasets) poolhouse imports a copy of its pool, snapshots everything
# and sends every file system and volume, plain and with -Lec. OpenZFS, in the VM, receives those
# streams, and sends its own of the same datasets, full and incremental. poolhouse receives these into
# a new pool, which OpenZFS imports. In both directions every entry (type, mode, owner, size, times,
# links, content, attributes) must be as in the original.
set -euo pipefail

poolhouse=$(readlink -f "$1") vm=$(readlink -f "$2")
shift 2
export POOLHOUSE_STATE
work=$(mktemp -d)
finish() {
  [[ -z ${POOLHOUSE_STATE:-} ]] || "$poolhouse" serve --stop >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT

# Functions of both boots of the VM: `listing DATASET@SNAPSHOT` prints its content.
cat >"$work/common" <<'EOF'
set -eu
bring() { mkdir -p /ram/$1; cp --sparse=always /share/$1/*.img /ram/$1/; }
listing() {
  local dir
  if [ "$(zfs get -Ho value type "${1%@*}")" = volume ]; then
    zfs clone "$1" "${1%%/*}/look"; udevadm settle
    sha256sum <"/dev/zvol/${1%%/*}/look"; zfs destroy "${1%%/*}/look"; return
  fi
  dir=$(mktemp -d); mount -t zfs "$1" "$dir"
  (cd "$dir"; find . -printf '%P|%y|%m|%U|%G|%s|%T@|%l|%n\n' | LC_ALL=C sort
   find . -type f -size -64M -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
   getfattr -Rhd -m - . 2>/dev/null | grep -v '^# file' | LC_ALL=C sort) || true
  umount "$dir"
}
same() { # OURS THEIRS
  listing "$1" >/ram/one; listing "$2" >/ram/other
  [ -s /ram/one ] || { echo "FAULT $1 is empty"; return; }
  if cmp -s /ram/one /ram/other; then echo "same $2"; else
    echo "FAULT $2 differs:"; diff /ram/one /ram/other | head -n 5; fi
}
EOF

{ cat "$work/common"; cat <<'EOF'
bring original; zpool import -N -d /ram/original tank
truncate -s 1G /ram/got.img; zpool create -O mountpoint=none -O acltype=posix got /ram/got.img
mkdir -p /share/theirs
# ACLs are listed where the dataset shows them
zfs list -Ho name -t filesystem -r tank | while read -r name; do zfs set acltype=posix "$name"; done
zfs snapshot -r tank@later
number=0
while read -r name; do
  number=$((number + 1))
  for kind in plain all; do
    if zfs receive -u got/$kind$number </share/ours/$kind$number; then
      same "$name@sent" "got/$kind$number@sent"
    else echo "FAULT OpenZFS does not receive $kind stream of $name"; fi
  done
  zfs send -Lec "$name@sent" >/share/theirs/full$number
  zfs send -Lec -i @sent "$name@later" >/share/theirs/next$number
done </share/names
zpool export tank; cp --sparse=always /ram/original/*.img /share/original/
EOF
} >"$work/first"
{ cat "$work/common"; cat <<'EOF'
bring original; zpool import -N -d /ram/original tank
bring mine; zpool import -N -d /ram/mine mine
number=0
while read -r name; do
  number=$((number + 1))
  same "$name@sent" "mine/fs$number@sent"; same "$name@later" "mine/fs$number@later"
done </share/names
zpool scrub -w mine; zpool status mine | grep -q 'errors: No known data errors' || echo "FAULT scrub"
EOF
} >"$work/second"

round() { # FIXTURE.tar.zst
  local share=$work/share number=0 name
  rm -rf "$share"; mkdir -p "$share"/{original,ours,mine}
  tar --zstd -xf "$1" -C "$work"
  local folder=$work/$(basename "$1" .tar.zst)
  cp --sparse=always "$folder"/d*.img "$share/original/"; rm -rf "$folder"
  POOLHOUSE_STATE=$work/state
  "$poolhouse" zpool import -N -d "$share/original" tank
  "$poolhouse" zfs snapshot -r tank@sent
  "$poolhouse" zfs list -Ho name -t filesystem,volume -r tank >"$share/names"
  while read -r name; do
    number=$((number + 1))
    "$poolhouse" zfs send "$name@sent" </dev/null >"$share/ours/plain$number"
    "$poolhouse" zfs send -Lec "$name@sent" </dev/null >"$share/ours/all$number"
  done <"$share/names"
  "$poolhouse" zpool export tank
  "$vm" run --share "$share" --mem 4G --timeout 500 -- "$work/first"
  truncate -s 1G "$share/mine/d0.img"
  "$poolhouse" zpool create -O mountpoint=none -O acltype=posix mine "$share/mine/d0.img"
  for ((name = 1; name <= number; name++)); do
    "$poolhouse" zfs receive -u "mine/fs$name" <"$share/theirs/full$name"
    "$poolhouse" zfs receive -u "mine/fs$name" <"$share/theirs/next$name"
  done
  "$poolhouse" zpool export mine
  "$poolhouse" serve --stop
  "$vm" run --share "$share" --mem 4G --timeout 500 -- "$work/second"
}

for fixture; do
  echo "== $(basename "$fixture" .tar.zst)"
  round "$fixture"
done | tee "$work/report"
! grep -q FAULT "$work/report"
