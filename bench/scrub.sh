#!/usr/bin/env bash
# A scrub of a raidz2 of six files, beside the kernel's scrub of a btrfs raid6 and its check of an md raid6 on files of the
# same size, and beside libzpool's (zdb -cc of the same pool). And how fast a program reads while a scrub goes on.
#
#   bench/scrub.sh [FOLDER, default /dev/shm] [ROUNDS, default 5]
#   POOLHOUSE=PROGRAM bench/scrub.sh ...      with a program that is built already
#   MIB=1024 bench/scrub.sh                   so much data (768)
#
# In every round each of them runs once, so that other load affects all equally. Figures are MiB a second of the drives'
# bytes, parity included; the ratio is the median of the rounds' ratios. btrfs and md need root and loop devices, and are
# left out where the kernel has none; their files are behind loop devices, ours are read directly. md checks free space,
# too: its array is as large as the data. A reader reads with O_DIRECT, in turns alone and beside a scrub.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-/dev/shm} rounds=${2:-5} mib=${MIB:-768}
. bench/scratch-daemon.sh
scratch_daemon scrub "$base"
loops=() md= btrfs=

end_peers() {
  [[ -z $btrfs ]] || umount "$scratch/btrfs" || true
  [[ -z $md ]] || mdadm --quiet --stop "$md" || true
  for loop in "${loops[@]}"; do losetup -d "$loop" || true; done
  end_scratch_daemon
}
trap end_peers EXIT

# NAME MIB: six files of so many MiB, as loop devices, in the array `made`
loop_devices() {
  made=()
  for drive in 1 2 3 4 5 6; do
    truncate -s "$2M" "$scratch/$1.$drive"
    made+=("$(losetup --show -f "$scratch/$1.$drive")") || return 1
    loops+=("${made[-1]}")
  done
}

drives=()
for drive in 1 2 3 4 5 6; do
  truncate -s "$((mib / 2 + 256))M" "$scratch/drive.$drive"
  drives+=("$scratch/drive.$drive")
done
"$ours" zpool create -R "$scratch/m" -O recordsize=128k -O primarycache=metadata tank raidz2 "${drives[@]}"
head -c "${mib}M" /dev/urandom >"$scratch/data"
cp "$scratch/data" "$scratch/m/tank/data"
"$ours" zpool sync tank
pool_mib=$(($("$ours" zpool list -Hpo allocated tank) >> 20))

if [[ $EUID == 0 ]] && grep -qw btrfs /proc/filesystems && loop_devices btrfs $((mib / 2 + 256)) 2>/dev/null &&
  mkfs.btrfs -q -f -d raid6 -m raid1c3 "${made[@]}" >/dev/null 2>&1 && mkdir "$scratch/btrfs" &&
  mount "${made[0]}" "$scratch/btrfs"; then
  btrfs=yes
  cp "$scratch/data" "$scratch/btrfs/data"
  sync -f "$scratch/btrfs"
else
  echo "no btrfs raid6 here" >&2
fi
if [[ $EUID == 0 ]] && [[ -e /proc/mdstat ]] && grep -qw raid6 /proc/mdstat && loop_devices md $((mib / 4 + 8)) 2>/dev/null &&
  mdadm --quiet --create /dev/md/poolhouse --run --assume-clean --level=6 --raid-devices=6 "${made[@]}" 2>/dev/null; then
  md=$(readlink -f /dev/md/poolhouse)
  echo max >"/sys/block/${md##*/}/md/sync_speed_max" 2>/dev/null || true
else
  echo "no md raid6 here" >&2
fi

# NAME MIB COMMAND...: notes the MiB a second
rate() {
  local name=$1 amount=$2 begin end
  shift 2
  begin=${EPOCHREALTIME/./}
  "$@" >/dev/null 2>&1
  end=${EPOCHREALTIME/./}
  echo $((amount * 1000000 / (end - begin))) >>"$scratch/rates.$name"
}

check_md() {
  echo check >"/sys/block/${md##*/}/md/sync_action"
  while [[ $(cat "/sys/block/${md##*/}/md/sync_action") != idle ]]; do sleep 0.02; done
}

read_all() { dd if="$scratch/m/tank/data" of=/dev/null bs=1M iflag=direct; }

scrub_until_told() { while [[ ! -e $scratch/stop ]]; do "$ours" zpool scrub -w tank >/dev/null 2>&1 || true; done; }

for round in $(seq "$rounds"); do
  rate ours "$pool_mib" "$ours" zpool scrub -w tank
  [[ -z $btrfs ]] || rate btrfs $((mib * 6 / 4)) btrfs scrub start -B "$scratch/btrfs"
  [[ -z $md ]] || rate md $(((mib / 4 + 8) * 6)) check_md
  rate alone "$mib" read_all
  rm -f "$scratch/stop"
  scrub_until_told &
  sleep 0.2
  rate beside "$mib" read_all
  touch "$scratch/stop"
  wait
  if command -v zdb >/dev/null; then
    "$ours" zpool export tank
    rate zdb "$pool_mib" zdb -e -p "$scratch" -cc tank
    "$ours" zpool import -R "$scratch/m" -d "$scratch" tank
  fi
  echo "round $round of $rounds" >&2
done

median() { sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }
# FIRST SECOND TEXT: prints both medians and the median of the ratios
compare() {
  [[ -e $scratch/rates.$1 && -e $scratch/rates.$2 ]] || return 0
  local ratio
  ratio=$(paste "$scratch/rates.$1" "$scratch/rates.$2" | awk '{ printf "%.2f\n", $1 / $2 }' | median)
  printf '%-42s %7s %7s %6s\n' "$3" "$(median <"$scratch/rates.$1")" "$(median <"$scratch/rates.$2")" "$ratio"
}
printf '%-42s %7s %7s %6s\n' "MiB/s" first second ratio
compare ours btrfs "scrub: ours, btrfs raid6"
compare ours md "scrub: ours, md raid6 check"
compare ours zdb "scrub: ours, libzpool (zdb -cc)"
compare beside alone "a reader: beside a scrub, alone"
