#!/usr/bin/env bash
# The time of small commands against a daemon that runs, with `true` beside them as the floor.
#
#   bench/commands.sh [FOLDER, default /dev/shm or else a temporary one] [ROUNDS, default 21]
#   POOLHOUSE=PROGRAM bench/commands.sh ...      with a program that is built already
#
# The daemon, its pool (a file of 1 GiB) and its mounts are of this script alone and are gone afterwards.
# In every round each command runs once, so that other load affects all equally; medians
# in milliseconds are printed. DATASETS (0) file systems are made first: with some hundreds of them a
# command that reads all of them is slower. As root, `zfs create` mounts the new file system.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-$([[ -d /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")} rounds=${2:-21}
datasets=${DATASETS:-0}
. bench/scratch-daemon.sh
scratch_daemon commands "$base"

truncate -s 1G "$scratch/drive"
"$ours" zpool create -R "$scratch/m" tank "$scratch/drive"
for number in $(seq "$datasets"); do "$ours" zfs create -u "tank/made$number"; done

# NAME COMMAND...: runs it and notes its microseconds
timed() {
  local name=$1 begin end
  shift
  begin=${EPOCHREALTIME/./}
  "$@" >/dev/null
  end=${EPOCHREALTIME/./}
  echo $((end - begin)) >>"$scratch/times.$name"
}

names='true list get status set snapshot create destroy-snapshot'
for round in $(seq "$rounds"); do
  timed true /bin/true
  timed list "$ours" zfs list
  timed get "$ours" zfs get compression tank
  timed status "$ours" zpool status
  timed set "$ours" zfs set "user:round=$round" tank
  timed snapshot "$ours" zfs snapshot "tank@$round"
  timed create "$ours" zfs create "tank/round$round"
  timed destroy-snapshot "$ours" zfs destroy "tank@$round"
done
printf '%-18s %s\n' command 'median ms'
for name in $names; do
  median=$(sort -n "$scratch/times.$name" | sed -n "$(((rounds + 1) / 2))p")
  printf '%-18s %d.%d\n' "$name" $((median / 1000)) $((median % 1000 / 100))
done
