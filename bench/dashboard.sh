#!/usr/bin/env bash
# The first page of the dashboard while a scrub runs: with 24 drives and 3 pools, and with 50 browsers at once.
#
#   bench/dashboard.sh [FOLDER, default /dev/shm or else a temporary one] [SECONDS, default 60]
#   POOLHOUSE=PROGRAM bench/dashboard.sh ...      with a program that is built already
#
# It prints the milliseconds from the request to the last byte of the page (median, 95 %, slowest of 100), then the part of
# a core that the daemon takes with 50 browsers, which fetch the page every 3 seconds as its script does; the part that it
# takes without browsers stands beside it. The daemon and its pools are of this script alone and are gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-$([[ -d /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")} seconds=${2:-60}
. bench/scratch-daemon.sh
scratch_daemon dashboard "$base"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$scratch/state"
{
  printf '[health]\nsmartctl = "/bin/false"\n'
  for number in $(seq 24); do
    truncate -s 256M "$scratch/drive$number"
    printf '[[health.drives]]\npath = "%s"\n' "$scratch/drive$number"
  done
  printf '[web]\nlisten = %s\n' "$port"
} >"$scratch/state/config.toml"
first=1
for pool in tank archive backup; do
  members=()
  for number in $(seq "$first" $((first + 7))); do members+=("$scratch/drive$number"); done
  "$ours" zpool create -m none "$pool" raidz2 "${members[@]}"
  first=$((first + 8))
done
trap '"$ours" zpool export -f archive backup >/dev/null 2>&1 || true; end_scratch_daemon' EXIT
# a scrub that runs all the time: it begins again as soon as it ends
while "$ours" zpool scrub tank >/dev/null 2>&1 || [[ -e $scratch/state/socket ]]; do sleep 0.2; done &
scrubs=$!
link=$("$ours" web setup | grep -o 'http://[^ ]*')
python3 bench/dashboard.py "$port" "$link" "$seconds" "$scratch/state"
kill "$scrubs"
