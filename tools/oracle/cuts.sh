#!/usr/bin/env bash
# cuts.sh: streams that are cut at every record, and resumed on the other system.
#
#   cuts.sh POOLHOUSE ZFS-VM SENT.tar.zst [every N-th record, default 1]
#
# SENT.tar.zst is the fixture `sent`. A full stream and an increment of OpenZFS and of poolhouse are cut behind every record.
# OpenZFS receives what poolhouse sent, up to the cut; then poolhouse imports that pool and resumes. Poolhouse receives what
# OpenZFS sent, up to the cut; then OpenZFS imports that pool and resumes. All snapshots must have the content of their
# source, and OpenZFS must find no error and no leak in both pools.
set -euo pipefail
poolhouse=$(readlink -f "$1") vm=$(readlink -f "$2") fixture=$(readlink -f "$3") step=${4:-1}
here=$(dirname "$(readlink -f "$0")") work=$(mktemp -d)
export POOLHOUSE_STATE=$work/state
finish() { "$poolhouse" serve --stop >/dev/null 2>&1 || true; rm -r "$work"; }
trap finish EXIT
share=$work/share
mkdir -p "$share"/{ours,theirs,mine,got}

# Functions of both sides: $streams has the streams and their cuts.
cat >"$share/common" <<'COMMON'
set -eu
receive_cuts() { # POOL: each stream up to each cut
  local stream number offset name
  for stream in full increment; do
    while read -r number offset; do
      name=$1/$stream-$number
      [ $stream = full ] || zfs receive -u "$name" <"$streams/full"
      if head -c "$offset" "$streams/$stream" | zfs receive -su "$name" 2>/dev/null; then
        echo "FAULT $name: a stream of $offset bytes is received"; fi
    done <"$streams/$stream.cuts"
  done
}
resume() { # POOL: all of them
  local name token
  for name in $(zfs list -Ho name -r "$1" | grep -- -); do
    token=$(zfs get -Ho value receive_resume_token "$name")
    if [ "$token" = - ]; then echo "FAULT $name: no token"; continue; fi
    zfs send -t "$token" >"${TMPDIR:-/tmp}/rest" && zfs receive -su "$name" <"${TMPDIR:-/tmp}/rest" || echo "FAULT $name"
  done
}
COMMON
{ echo 'mkdir -p /ram/tank; cp --sparse=always /share/tank.img /ram/tank/d0.img; zpool import -N -d /ram/tank tank'
  echo '. /share/common; export TMPDIR=/ram'; } >"$work/begin"
{ cat "$work/begin"; cat <<'SCRIPT'
zfs send tank/from@one >/share/theirs/full
zfs send -i @one tank/from@two >/share/theirs/increment
truncate -s 1G /ram/got.img; zpool create -O mountpoint=none got /ram/got.img
streams=/share/ours receive_cuts got
zpool export got; cp --sparse=always /ram/got.img /share/got/d0.img
SCRIPT
} >"$work/first"
{ cat "$work/begin"; cat <<'SCRIPT'
listing() {
  local dir=/ram/look; mkdir -p "$dir"; mount -t zfs "$1" "$dir"
  (cd "$dir"; find . -printf '%P|%y|%m|%U|%G|%s|%T@|%l|%n\n' | LC_ALL=C sort
   find . -type f -size -64M -print0 | LC_ALL=C sort -z | xargs -0r sha256sum)
  umount "$dir"
}
for pool in got mine; do
  mkdir -p /ram/$pool; cp --sparse=always /share/$pool/d0.img /ram/$pool/; zpool import -N -d /ram/$pool $pool
done
resume mine
listing tank/from@one >/ram/full; listing tank/from@two >/ram/increment
for name in $(zfs list -Ho name -r got mine | grep -- -); do
  stream=${name#*/}; stream=${stream%-*}; part=one; [ $stream = full ] || part=two
  listing $name@$part >/ram/listing || true
  if [ -s /ram/listing ] && cmp -s /ram/$stream /ram/listing; then echo "same $name"; else
    echo "FAULT $name differs:"; diff /ram/$stream /ram/listing | head -n 5; fi
done
for pool in got mine; do
  zpool scrub -w $pool; zpool status $pool | grep -q 'errors: No known data errors' || echo "FAULT scrub $pool"
  zpool export $pool
  zdb -e -p /ram/$pool -bcc $pool >/ram/zdb 2>&1 && grep -q 'No leaks' /ram/zdb || echo "FAULT zdb $pool"
done
SCRIPT
} >"$work/second"

# The programs of the other side, for the functions.
mkdir "$work/bin"
printf '#!/bin/sh\nexec %q zfs "$@"\n' "$poolhouse" >"$work/bin/zfs"
chmod +x "$work/bin/zfs"
ours() { (PATH=$work/bin:$PATH TMPDIR=$work; . "$share/common"; "$@"); }

tar --zstd -xf "$fixture" -C "$work"
mkdir "$work/drives"; mv "$work"/sent/d0.img "$work/drives/"
cp --sparse=always "$work/drives/d0.img" "$share/tank.img"
"$poolhouse" zpool import -N -d "$work/drives" tank
ours zfs send tank/from@one >"$share/ours/full"
ours zfs send -i @one tank/from@two >"$share/ours/increment"
for stream in full increment; do python3 "$here/cuts.py" "$share/ours/$stream" "$step" >"$share/ours/$stream.cuts"; done
{
"$vm" run --share "$share" --mem 4G --timeout 900 -- "$work/first"
for stream in full increment; do python3 "$here/cuts.py" "$share/theirs/$stream" "$step" >"$share/theirs/$stream.cuts"; done
"$poolhouse" zpool import -N -d "$share/got" got
ours resume got
truncate -s 1G "$share/mine/d0.img"
"$poolhouse" zpool create -O mountpoint=none mine "$share/mine/d0.img"
streams=$share/theirs ours receive_cuts mine
for pool in got mine tank; do "$poolhouse" zpool export "$pool"; done
"$vm" run --share "$share" --mem 4G --timeout 900 -- "$work/second"
} | tee "$work/report"
echo "$(grep -c '^same' "$work/report") cuts, resumed on the other system"
! grep -q FAULT "$work/report"
