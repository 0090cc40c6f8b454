#!/usr/bin/env bash
# Many file systems and many snapshots: time and memory, against a daemon that runs.
#
#   bench/many.sh [FOLDER, default /dev/shm or else a temporary one]
#   DATASETS=300 SNAPSHOTS=10000 MEMORY=256M bench/many.sh    how many file systems, how many snapshots of one of them
#   DATASETS=1000 ROUNDS=10 bench/many.sh                     how many recursive snapshots of all file systems
#   POOLHOUSE=PROGRAM bench/many.sh                           with a program that is built already
#
# The daemon, its pool (a sparse file of 64 GiB) and its mounts are of this script alone and are gone afterwards. Run as
# root, each file system is mounted as it is created. The snapshots are created one by one, which takes most of the
# time, and destroyed by one command. The destroy is printed for a tenth of the snapshots and then for all: ten times
# as many should take about ten times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-$([[ -d /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")}
datasets=${DATASETS:-300} snapshots=${SNAPSHOTS:-10000} rounds=${ROUNDS:-1} memory=${MEMORY:-256M}
. bench/scratch-daemon.sh
scratch_daemon many "$base"
"$ours" serve --memory "$memory" >/dev/null 2>&1 &
daemon=$!
until [[ -S $POOLHOUSE_STATE/socket ]]; do sleep 0.1; done

# Prints the milliseconds since the last call, and the daemon's memory and threads.
last=${EPOCHREALTIME/./}
report() {
  local now=${EPOCHREALTIME/./} resident peak threads
  resident=$(awk '/^VmRSS/ {print int($2 / 1024)}' "/proc/$daemon/status")
  peak=$(awk '/^VmHWM/ {print int($2 / 1024)}' "/proc/$daemon/status")
  threads=$(awk '/^Threads/ {print $2}' "/proc/$daemon/status")
  printf '%-44s %8d ms  %5d MiB (most %d)  %3d threads\n' "$1" $(((now - last) / 1000)) "$resident" "$peak" "$threads"
  last=${EPOCHREALTIME/./}
}

truncate -s 64G "$scratch/drive"
"$ours" zpool create -R "$scratch/m" tank "$scratch/drive"
"$ours" zfs create tank/snapshots
report 'pool created'
for number in $(seq "$datasets"); do "$ours" zfs create "tank/d$number"; done
report "$datasets file systems created and mounted"
for round in $(seq "$rounds"); do
  "$ours" zfs snapshot -r "tank@r$round"
  report "snapshot $round of each"
done
sleep 1
report 'a second later'
"$ours" zfs destroy -r tank@r1%
report "these destroyed"
for count in $((snapshots / 10)) "$snapshots"; do
  for number in $(seq "$count"); do "$ours" zfs snapshot "tank/snapshots@n$number"; done
  report "$count snapshots of one file system created"
  "$ours" zfs destroy "tank/snapshots@n1%n$count"
  report "these destroyed by one command"
done
"$ours" zpool export tank
sleep 1
report 'exported, a second later'
