#!/usr/bin/env bash
# syncoid.sh: sanoid's syncoid, unchanged, replicates a pool by poolhouse's `zfs` and `zpool`.
#
#   syncoid.sh POOLHOUSE SENT.tar.zst
#
# SENT.tar.zst is the fixture `sent`; syncoid must be in PATH. Each run must succeed, and the copies must have
# the guids of the source's snapshots.
set -euo pipefail

poolhouse=$(readlink -f "$1") fixture=$(readlink -f "$2")
work=$(mktemp -d)
export POOLHOUSE_STATE=$work/state
finish() { "$poolhouse" serve --stop >/dev/null 2>&1 || true; rm -rf "$work"; }
trap finish EXIT
mkdir -p "$work"/{bin,other}
for name in zfs zpool; do
  printf '#!/bin/sh\nexec %s %s "$@"\n' "$poolhouse" "$name" >"$work/bin/$name"; chmod +x "$work/bin/$name"
done
PATH=$work/bin:$PATH
tar --zstd -xf "$fixture" -C "$work"
truncate -s 512M "$work/other/d0.img"
zpool import -N -d "$work/sent" tank
zpool create -O mountpoint=none backup "$work/other/d0.img"

sync() { echo "== syncoid $*"; timeout 120 syncoid --no-privilege-elevation "$@"; }
newest() { zfs list -Hpd1 -o guid -t snapshot -s createtxg "$1" | tail -n 1; }
same() { [[ $(newest "$1") == "$(newest "$2")" ]] || { echo "FAULT $2 lacks the newest snapshot"; exit 1; }; }

sync tank/from backup/from; same tank/from backup/from
sync tank/from backup/from; same tank/from backup/from
sync -r tank backup/all
for name in from volume clone; do same "tank/$name" "backup/all/$name"; done
zfs snapshot tank/from@more
sync --no-sync-snap --create-bookmark tank/from backup/from; same tank/from backup/from
# a transfer that was cut is resumed by its token
zfs send tank/from@one | head -c 300000 | zfs receive -su backup/cut 2>/dev/null || true
sync --no-sync-snap tank/from backup/cut; same tank/from backup/cut
# snapshots that the source destroyed are destroyed at the target
zfs snapshot tank/from@last; sync --no-sync-snap tank/from backup/from
zfs destroy tank/from@last; zfs snapshot tank/from@other
sync --no-sync-snap tank/from backup/from; same tank/from backup/from
echo "all runs succeeded"
