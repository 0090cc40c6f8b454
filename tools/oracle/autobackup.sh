#!/usr/bin/env bash
# autobackup.sh: zfs-autobackup (PyPI, unchanged) replicates a pool by poolhouse's `zfs` and `zpool`.
#
#   autobackup.sh POOLHOUSE SENT.tar.zst
#
# SENT.tar.zst is the fixture `sent`; zfs-autobackup must be in PATH. Each run must succeed, and the copies must have
# the guids of the source's snapshots.
set -euo pipefail

# shellcheck source=tools/oracle/replicas.sh
. "$(dirname "$0")/replicas.sh" "$1" "$2"
backup() { echo "== zfs-autobackup $*"; timeout 120 zfs-autobackup --no-progress --strip-path 1 "$@" off backup; sleep 1; }

zfs set autobackup:off=true tank/from
zfs set autobackup:off=true tank/volume
backup --verbose; same tank/from backup/from; same tank/volume backup/volume
# an incremental one, with properties cleared, and a transfer of the snapshots that others made
zfs snapshot tank/from@hand
backup --other-snapshots --clear-mountpoint; same tank/from backup/from
# thinning: one snapshot is kept at each side
backup --keep-source 1 --keep-target 1; same tank/from backup/from
[[ $(zfs list -Ho name -t snapshot -d1 tank/from | grep -c '@off-') == 1 ]] || { echo "FAULT thinning"; exit 1; }
# holds of the target are released, and what changed there is rolled back
backup --rollback --no-holds; same tank/from backup/from
backup --raw; same tank/from backup/from
echo "all runs succeeded"
