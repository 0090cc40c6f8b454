#!/usr/bin/env bash
# `poolhouse bench path` against fio on the same folder in the same run, in turns.
#
#   bench/against-fio.sh [FOLDER, default target/bench-fio] [ROUNDS, default 5]
#   POOLHOUSE=PROGRAM bench/against-fio.sh ...      with a program that is built already
#
# Like with like: every figure is of a file of SIZE (1G) that its side has just made, direct I/O, data
# that cannot be compressed, one operation at a time per thread (fio: psync with as many jobs),
# SECONDS_PER_RUN (3) of random work; rates count until the data is safe (fio: end_fsync). fio makes
# its content once and changes a little of it before every write, as we do (with --refill_buffers it
# would measure its own random numbers). The two alternate, workload by workload, and the first one changes
# from round to round, so that background work of a drive affects both equally.
#
# Medians and the median of the pairs' ratios are printed. The aim is a ratio within 10 % of 1; the
# script fails if one is not. On a busy machine such a failure means little.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/bench-fio} rounds=${2:-5}
size=${SIZE:-1G} seconds=${SECONDS_PER_RUN:-3}
command -v fio >/dev/null || { echo "left out: fio is not installed (Debian: fio)"; exit 0; }
ours=${POOLHOUSE:-${CARGO_TARGET_DIR:-target}/release/poolhouse}
[[ -n ${POOLHOUSE:-} ]] || cargo build --quiet --locked --release -p poolhouse
mkdir -p "$folder"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch" "$folder"/fio-*' EXIT

# NAME RW BLOCK JOBS UNIT: a workload of ours and what fio calls it
work='write-1m-q1 write 1M 1 bw
read-1m-q1 read 1M 1 bw
rewrite-1m-q1 write 1M 1 bw
random-read-4k-q1 randread 4k 1 iops
random-read-4k-q32 randread 4k 32 iops
random-read-128k-q32 randread 128k 32 iops
random-write-4k-q1 randwrite 4k 1 iops
random-write-4k-q32 randwrite 4k 32 iops
random-write-128k-q32 randwrite 128k 32 iops'

fio_on() { # RW BLOCK JOBS [OPTION...]
  local rw=$1 block=$2 jobs=$3
  shift 3
  fio --name=bench --filename="$folder/fio-large" --rw="$rw" --bs="$block" --size="$size" --direct=1 \
    --ioengine=psync --numjobs="$jobs" --thread --group_reporting --end_fsync=1 --fallocate=none \
    --output-format=json "$@"
}

fio_run() { # NAME RW BLOCK JOBS UNIT
  local timed=() side=read
  case $2 in rand*) timed=(--time_based --runtime="$seconds" --norandommap) ;; esac
  case $2 in *write) side=write ;; esac
  rm -f "$folder/fio-large"
  [[ $1 == write-* ]] || fio_on write 1M 1 >"$scratch/made"
  fio_on "$2" "$3" "$4" "${timed[@]}" |
    python3 -c "import json,sys; j=json.load(sys.stdin)['jobs'][0]['$side']
print('fio', '$1', j['bw_bytes'] if '$5' == 'bw' else j['iops'])"
  rm -f "$folder/fio-large"
}

our_run() { # NAME ...
  "$ours" bench path "$folder" -q --json --runs 1 --size "$size" --seconds "$seconds" --only "$1" |
    python3 -c "import json,sys
for m in json.load(sys.stdin)['measures']: print('ours', m['id'], m['runs'][0])"
}

for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds" >&2
  while read -r line; do
    turns=(fio_run our_run)
    ((round % 2)) || turns=(our_run fio_run)
    for side in "${turns[@]}"; do # shellcheck disable=SC2086
      $side $line </dev/null
    done
  done <<<"$work" >>"$scratch/all"
done
python3 - "$scratch/all" <<'EOF'
import statistics, sys
found = {}
for line in open(sys.argv[1]):
    who, name, value = line.split()
    found.setdefault(name, {}).setdefault(who, []).append(float(value))
bad = False
print(f"{'':24}{'fio':>14}{'ours':>14}{'ratio':>8}   spread of fio, ours")
for name, by in found.items():
    fio, ours = statistics.median(by["fio"]), statistics.median(by["ours"])
    ratio = statistics.median(o / f for f, o in zip(by["fio"], by["ours"]))
    miss = not 0.9 <= ratio <= 1.1
    bad |= miss
    scale, unit = (1e6, "MB/s") if "1m" in name else (1, "/s")
    spread = "  ".join(f"{(max(v) - min(v)) / statistics.median(v):6.0%}" for v in (by["fio"], by["ours"]))
    print(f"{name:24}{fio / scale:10.0f}{unit:>4}{ours / scale:10.0f}{unit:>4}{ratio:8.2f}   {spread}"
          + ("   more than 10 % apart" if miss else ""))
sys.exit(bad)
EOF
