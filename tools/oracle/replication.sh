#!/usr/bin/env bash
# replication.sh: streams of trees (-R, -I, -p) and resumed streams exchanged with the real OpenZFS.
#
#   replication.sh POOLHOUSE ZFS-VM SENT.tar.zst
#
# SENT.tar.zst is the fixture `sent`. poolhouse sends its pool as trees, increments and with properties, and
# receives a tree that OpenZFS sent; a receive that was cut on either side is resumed by the token of the
# other. All datasets must have the same content, and OpenZFS must find no error and no leak.
set -euo pipefail

poolhouse=$(readlink -f "$1") vm=$(readlink -f "$2") fixture=$(readlink -f "$3")
work=$(mktemp -d)
export POOLHOUSE_STATE=$work/state
finish() { "$poolhouse" serve --stop >/dev/null 2>&1 || true; rm -rf "$work"; }
trap finish EXIT
share=$work/share
mkdir -p "$share"/{ours,theirs,mine}

cat >"$work/common" <<'SCRIPT'
set -u
listing() {
  local dir
  if [ "$(zfs get -Ho value type "${1%@*}")" = volume ]; then
    zfs clone "$1" "${1%%/*}/look"; udevadm settle
    sha256sum <"/dev/zvol/${1%%/*}/look"; zfs destroy "${1%%/*}/look"; return
  fi
  dir=$(mktemp -d); mount -t zfs "$1" "$dir"
  (cd "$dir"; find . -printf '%P|%y|%m|%U|%G|%s|%T@|%l|%n\n' | LC_ALL=C sort
   find . -type f -size -64M -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
   getfattr -Rhd -m - . 2>/dev/null | grep -v '^# file\|posix_acl' | LC_ALL=C sort) || true
  umount "$dir"
}
same() { # ONE OTHER
  listing "$1" >/ram/one; listing "$2" >/ram/other
  if [ -s /ram/one ] && cmp -s /ram/one /ram/other; then echo "same $2"; else
    echo "FAULT $2 differs:"; diff /ram/one /ram/other | head -n 5; fi
}
mkdir -p /ram/tank; cp --sparse=always /share/tank.img /ram/tank/d0.img; zpool import -N -d /ram/tank tank
SCRIPT
{ cat "$work/common"; cat <<'SCRIPT'
zfs send -R tank@three >/share/theirs/tree
zfs send tank/from@one | head -c 300000 >/ram/cut
truncate -s 512M /ram/got.img; zpool create -O mountpoint=none -O acltype=posix got /ram/got.img
zfs receive -su got/cut </ram/cut 2>/dev/null
zfs get -Ho value receive_resume_token got/cut >/share/theirs/token
SCRIPT
} >"$work/first"
{ cat "$work/common"; cat <<'SCRIPT'
mkdir -p /ram/mine; cp --sparse=always /share/mine/d0.img /ram/mine/; zpool import -N -d /ram/mine mine
truncate -s 512M /ram/got.img; zpool create -O mountpoint=none -O acltype=posix got /ram/got.img
zfs receive -u got/all </share/ours/tree || echo "FAULT tree"
zfs send -R tank@one | zfs receive -u got/next 2>/dev/null || true
zfs receive -uF got/next </share/ours/increments || echo "FAULT increments"
zfs send tank/from@one | zfs receive -u got/props
zfs receive -u got/props </share/ours/properties || echo "FAULT properties"
[ "$(zfs get -Ho value,source recordsize got/props)" = "1M	received" ] || echo "FAULT no property"
zfs send tank/from@one | head -c 300000 | zfs receive -su got/cut 2>/dev/null
zfs receive -su got/cut </share/ours/resumed || echo "FAULT resumed"
zfs send -t "$(zfs get -Ho value receive_resume_token mine/cut)" | zfs receive -su mine/cut || echo "FAULT cut"
for name in from@one from@two from@three volume@two clone@two clone@three; do
  same "tank/$name" "got/all/$name"; same "tank/$name" "mine/$name"
done
same tank/from@three got/next/from@three; same tank/from@two got/props@two
same tank/from@one got/cut@one; same tank/from@one mine/cut@one
for pool in got mine; do
  zpool scrub -w $pool; zpool status $pool | grep -q 'errors: No known data errors' || echo "FAULT scrub $pool"
done
zpool export mine
zdb -e -p /ram/mine -bcc mine >/ram/zdb 2>&1 && grep -q 'No leaks' /ram/zdb || echo "FAULT zdb"
SCRIPT
} >"$work/second"

tar --zstd -xf "$fixture" -C "$work"
mkdir "$work/drives"; mv "$work"/sent/d0.img "$work/drives/"
"$poolhouse" zpool import -N -d "$work/drives" tank
"$poolhouse" zfs snapshot -r tank@three
"$poolhouse" zfs send -R tank@three >"$share/ours/tree"
"$poolhouse" zfs send -R -I @one tank@three >"$share/ours/increments"
"$poolhouse" zfs send -p -i @one tank/from@two >"$share/ours/properties"
{ "$poolhouse" zfs send tank/from@one 2>/dev/null || true; } | head -c 300000 >"$share/ours/cut"
"$poolhouse" zpool export tank
cp --sparse=always "$work/drives/d0.img" "$share/tank.img"
"$vm" run --share "$share" --mem 4G --timeout 300 -- "$work/first"
truncate -s 512M "$share/mine/d0.img"
"$poolhouse" zpool import -N -d "$work/drives" tank
"$poolhouse" zpool create -O mountpoint=none -O acltype=posix mine "$share/mine/d0.img"
"$poolhouse" zfs send -t "$(cat "$share/theirs/token")" >"$share/ours/resumed"
"$poolhouse" zfs receive -Fdu mine <"$share/theirs/tree"
"$poolhouse" zfs receive -su mine/cut <"$share/ours/cut" 2>/dev/null || true
"$poolhouse" zpool export mine; "$poolhouse" zpool export tank
"$vm" run --share "$share" --mem 4G --timeout 400 -- "$work/second" | tee "$work/report"
! grep -q FAULT "$work/report"
