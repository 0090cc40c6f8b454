#!/usr/bin/env bash
# Volumes over the network against their peers on loopback, in the same run and in turns: iSCSI against tgt, NBD against
# nbdkit's `file` plugin on a file of our own mount.
#
#   bench/targets.sh [ROUNDS, default 5] [FOLDER in memory, default /dev/shm]
#   POOLHOUSE=PROGRAM bench/targets.sh ...        with a program that is built already
#   SIZE=256M SECONDS_PER_RUN=3 bench/targets.sh  less data, shorter runs
#
# Like with like: the pool and the peers' files are in memory; every figure is of SIZE (512M) of data that cannot be
# compressed, read or written by the same client over the same kernel. Sequential transfers are of 1 MiB, 4 at a time,
# random ones of 4 KiB, 16 at a time. iSCSI: iscsi-perf reads, qemu-img writes. NBD: nbdcopy reads and writes with 4
# connections; our writes and nbdkit's end with a flush. tgt writes to a file in the page cache, which has no checksums:
# it promises less. The two alternate, and the first one changes from round to round. Before the first round every side
# writes all data WARM_UPS (8) times, so that the memory of drives and caches is in use already: a page that is touched
# for the first time costs the kernel more than a whole write. The pool is synced before each measurement.
#
# Printed are the medians, the median of the pairs' ratios, the target, and the seconds of processor time of each server
# per GiB. The script fails if a ratio misses its target. On a busy machine such a failure means little.
# Packages: libiscsi-bin tgt libnbd-bin nbdkit qemu-utils qemu-block-extra. Run it as root, for tgt and the mount.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} memory=${2:-/dev/shm}
size=${SIZE:-512M} seconds=${SECONDS_PER_RUN:-4}
for program in iscsi-perf tgtd tgtadm nbdcopy nbdkit qemu-img python3; do
  command -v "$program" >/dev/null || { echo "left out: $program is missing; see the head of $0"; exit 0; }
done
[[ $(id -u) == 0 ]] || { echo "left out: tgt and the mount need root"; exit 0; }
. bench/scratch-daemon.sh
scratch_daemon targets "$memory"
peers=()
end() {
  # tgtd does not end by SIGTERM while it has targets
  for pid in "${peers[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  end_scratch_daemon
}
trap end EXIT

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
wait_for_port() { # PORT
  for _ in {1..100}; do (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.1; done
  echo "nothing listens on port $1" >&2
  exit 1
}

bytes=$(numfmt --from=iec "$size")
head -c "$bytes" /dev/urandom >"$scratch/data"
mkdir "$scratch/pool" "$scratch/mnt"
truncate -s $((bytes * 8)) "$scratch/pool/drive"
"$ours" zpool create -O mountpoint="$scratch/mnt" -O atime=off tank "$scratch/pool/drive"
iscsi_port=$(free_port)
"$ours" config set iscsi.listen "$iscsi_port" >/dev/null
nbd_port=$(free_port)
"$ours" config set nbd.listen "$nbd_port" >/dev/null
name=iqn.2026-11.org.example
"$ours" zfs create -V "$bytes" -o volblocksize=16K tank/iscsi >/dev/null 2>&1
"$ours" zfs create -V "$bytes" -o volblocksize=16K tank/nbd >/dev/null 2>&1
"$ours" share add iscsi tank/iscsi -o "target=$name:ours" >/dev/null
"$ours" share add nbd tank/nbd -o name=ours >/dev/null
our_pid=$(pgrep -f -n "$ours serve" || true)

export TGT_IPC_SOCKET=$scratch/tgt
tgt_port=$(free_port)
tgtd -f -C 18 --iscsi "portal=127.0.0.1:$tgt_port" >"$scratch/tgtd.log" 2>&1 &
tgt_pid=$! && peers+=("$tgt_pid")
tgt() { tgtadm -C 18 --lld iscsi "$@"; }
until tgt --op show --mode target >/dev/null 2>&1; do sleep 0.2; done
truncate -s "$bytes" "$scratch/tgt-disk"
tgt --op new --mode target --tid 1 -T "$name:tgt"
tgt --op new --mode logicalunit --tid 1 --lun 1 -b "$scratch/tgt-disk"
tgt --op bind --mode target --tid 1 -I ALL

truncate -s "$bytes" "$scratch/mnt/nbdkit"
kit_port=$(free_port)
nbdkit -f -i 127.0.0.1 -p "$kit_port" file "$scratch/mnt/nbdkit" >"$scratch/nbdkit.log" 2>&1 &
kit_pid=$! && peers+=("$kit_pid")
wait_for_port "$nbd_port"
wait_for_port "$kit_port"

declare -A iscsi=(
  [ours]="iscsi://127.0.0.1:$iscsi_port/$name:ours/0"
  [peer]="iscsi://127.0.0.1:$tgt_port/$name:tgt/1"
)
declare -A nbd=([ours]="nbd://127.0.0.1:$nbd_port/ours" [peer]="nbd://127.0.0.1:$kit_port")
# The processes that serve: nbdkit's file is in our mount, so that our own daemon works for it, too.
declare -A iscsi_pids=([ours]="$our_pid" [peer]="$tgt_pid") nbd_pids=([ours]="$our_pid" [peer]="$our_pid $kit_pid")

cpu_ticks() { # PID...
  for pid in "$@"; do cut -d' ' -f14,15 "/proc/$pid/stat"; done | awk '{ sum += $1 + $2 } END { print sum }'
}
mib_per_second() { # COMMAND...: the seconds that a copy of all data takes
  local start end
  start=$(date +%s%N)
  "$@" >/dev/null
  end=$(date +%s%N)
  awk -v bytes="$bytes" -v ns=$((end - start)) 'BEGIN { print bytes / 1048576 / (ns / 1e9), bytes }'
}
perf_rate() { # BLOCK_BYTES OPTION...: operations a second of iscsi-perf, and the bytes that were read
  local block=$1
  shift
  timeout $((seconds + 20)) iscsi-perf -t "$seconds" "$@" 2>&1 | tr '\r' '\n' |
    awk -v block="$block" -v seconds="$seconds" '/iops average/ { rate = $3 } END { print rate, rate * block * seconds }'
}
warm_up() {
  for ((time = 1; time <= ${WARM_UPS:-8}; time++)); do
    echo "warm-up $time of ${WARM_UPS:-8}" >&2
    for item in iscsi-write-1m nbd-write; do
      for side in ours peer; do measure "$item" "$side" >/dev/null; done
    done
  done
}
measure() { # WORK SIDE
  case $1 in
  iscsi-write-1m) mib_per_second qemu-img convert -n -W -m 4 -t writeback -f raw -O raw "$scratch/data" "${iscsi[$2]}" ;;
  iscsi-read-1m) perf_rate 1048576 -m 4 -b 2048 "${iscsi[$2]}" ;;
  iscsi-random-4k) perf_rate 4096 -r -m 16 -b 8 "${iscsi[$2]}" ;;
  nbd-write) mib_per_second nbdcopy --connections=4 --flush "$scratch/data" "${nbd[$2]}" ;;
  nbd-read) mib_per_second nbdcopy --connections=4 "${nbd[$2]}" null: ;;
  esac
}
run() { # WORK SIDE: a line of results
  local pids before after rate moved
  "$ours" zpool sync tank && sleep 1
  if [[ $1 == nbd-* ]]; then pids=${nbd_pids[$2]}; else pids=${iscsi_pids[$2]}; fi
  before=$(cpu_ticks $pids)
  read -r rate moved < <(measure "$1" "$2")
  after=$(cpu_ticks $pids)
  echo "$1 $2 $rate $(awk -v ticks=$((after - before)) -v moved="$moved" \
    'BEGIN { print (moved > 0 ? ticks / 100 / (moved / 1073741824) : 0) }')" >>"$scratch/results"
}

warm_up
work="iscsi-write-1m iscsi-read-1m iscsi-random-4k nbd-write nbd-read"
for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds" >&2
  for item in $work; do
    if ((round % 2)); then run "$item" ours && run "$item" peer; else run "$item" peer && run "$item" ours; fi
  done
done

WORK=$work python3 - "$scratch/results" <<'END'
import os, statistics, sys
rows = [line.split() for line in open(sys.argv[1])]
targets = {"iscsi-random-4k": 2.0}
is_missed = False
print(f"{'':18}{'ours':>10}{'peer':>10}{'ratio':>8}{'target':>8}   CPU s/GiB: ours, peer")
for work in os.environ["WORK"].split():
    side = lambda name, field: [float(row[field]) for row in rows if row[:2] == [work, name]]
    ours, peer = side("ours", 2), side("peer", 2)
    ratio = statistics.median(one / other for one, other in zip(ours, peer))
    target = targets.get(work, 1.5)
    cpu = [statistics.median(side(name, 3)) for name in ("ours", "peer")]
    is_missed |= ratio < target
    unit = "/s" if work == "iscsi-random-4k" else "MiB/s"
    print(f"{work:18}{statistics.median(ours):10.0f}{statistics.median(peer):10.0f}{ratio:8.2f}{target:8.1f}"
          f"   {cpu[0]:.2f}, {cpu[1]:.2f}  {unit}{'  MISSED' if ratio < target else ''}")
sys.exit(is_missed)
END
