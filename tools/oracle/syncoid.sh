#!/usr/bin/env bash
# syncoid.sh: sanoid's syncoid, unchanged, replicates a pool by poolhouse's `zfs` and `zpool`.
#
#   syncoid.sh POOLHOUSE SENT.tar.zst
#
# SENT.tar.zst is the fixture `sent`; syncoid must be in PATH. Each run must succeed, and the copies must have
# the guids of the source's snapshots.
set -euo pipefail

# shellcheck source=tools/oracle/replicas.sh
. "$(dirname "$0")/replicas.sh" "$1" "$2"
# the names of its snapshots have a second: two runs in one would collide
sync() { echo "== syncoid $*"; timeout 120 syncoid --no-privilege-elevation "$@"; sleep 1; }

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
