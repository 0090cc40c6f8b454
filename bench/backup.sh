#!/usr/bin/env bash
# A backup of many small files to a folder, beside restic's of the same files: the first one, and one of 1 % changed.
#
#   bench/backup.sh [FOLDER, default /dev/shm or else a temporary one] [FILES, default 100000]
#   POOLHOUSE=PROGRAM bench/backup.sh ...        with a program that is built already
#
# The daemon, its pool (a sparse file of 8 GiB) and its mounts are of this script alone and are gone afterwards. The files
# have 1 to 16 KiB, half of each is random. restic reads the mounted snapshot, since it reads no pools, with its
# default compression (version 2 of its format) where it has one. Seconds are printed, and the bytes of each
# repository beside those of `zfs send -c`.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-$([[ -d /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")} files=${2:-100000}
command -v restic >/dev/null || { echo "bench/backup.sh: restic is missing: \`apt install restic\`" >&2; exit 77; }
. bench/scratch-daemon.sh
scratch_daemon backup "$base"

truncate -s 8G "$scratch/drive"
"$ours" zpool create -R "$scratch/m" -O compression=lz4 -O atime=off tank "$scratch/drive"
data=$scratch/m/tank

# NUMBERS on standard input: writes the files of these numbers.
write_files() {
  python3 -c '
import os, random, sys
root, seed = sys.argv[1], int(sys.argv[2])
random.seed(seed)
for line in sys.stdin:
    number = int(line)
    folder = f"{root}/{number // 1000}"
    os.makedirs(folder, exist_ok=True)
    size = random.randrange(1024, 16384)
    with open(f"{folder}/{number}", "wb") as out:
        out.write(random.randbytes(size // 2) + b"text " * (size // 10))
' "$data" "$1"
}

# COMMAND...: prints its seconds
timed() {
  local begin=${EPOCHREALTIME/./} end
  "$@" >"$scratch/said" 2>&1 || { cat "$scratch/said" >&2; return 1; }
  end=${EPOCHREALTIME/./}
  printf '%d.%02d' $(((end - begin) / 1000000)) $(((end - begin) / 10000 % 100))
}

bytes() { du -sb "$1" | cut -f1; }
snapshot_dir() { echo "$data/.zfs/snapshot/$1"; }

export RESTIC_PASSWORD=bench RESTIC_CACHE_DIR=$scratch/restic-cache
restic init -q --repo "$scratch/restic"
"$ours" backup init "file://$scratch/ours" >/dev/null

# the caches of both sides are warm alike: each round reads the snapshot once before
round() { # NAME SNAPSHOT
  local ours_time restic_time
  "$ours" zfs snapshot "tank@$2"
  ours_time=$(timed "$ours" backup run -q "file://$scratch/ours" "tank@$2")
  restic_time=$(timed restic backup -q --repo "$scratch/restic" "$(snapshot_dir "$2")" --host bench)
  awk -v name="$1" -v ours="$ours_time" -v restic="$restic_time" \
    'BEGIN {printf "%-24s %10.2f s %10.2f s %9.1fx\n", name, ours, restic, restic / ours}'
}

seq "$files" | write_files 1
"$ours" zpool sync tank
printf '%-24s %12s %12s %10s\n' "$files files" poolhouse restic faster
round "first backup" one
seq 7 100 "$files" | write_files 2
"$ours" zpool sync tank
round "1 % changed" two
stream=$({ "$ours" zfs send -c tank@one && "$ours" zfs send -c -i @one tank@two; } | wc -c)
printf '%-24s %10d KB %9d KB   zfs send -c: %d KB\n' "stored" $(($(bytes "$scratch/ours") / 1000)) \
  $(($(bytes "$scratch/restic") / 1000)) $((stream / 1000))
"$ours" backup check -q "file://$scratch/ours"
