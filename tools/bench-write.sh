#!/usr/bin/env bash
# Writing and reading, in the engine and through a mount, against raw files and against peers.
#
#   tools/bench-write.sh [FOLDER, default a new one in /dev/shm] 
#   ROUNDS=5 MIB=512 FILES=100000 tools/bench-write.sh     how often, how large a file, how many files
#   BENCH_ONLY=write,read tools/bench-write.sh             workloads whose names have one of these words
#   BENCH_PROGRAM=... tools/bench-write.sh                 with a program that is built already
#
# The pools (raidz2 of six files) lie in FOLDER, which should be a tmpfs with 10 GiB of free space. Peers
# are measured if they are available, as root only: btrfs raid6 on six loop devices (Debian: btrfs-progs)
# and zfs-fuse (Debian: zfs-fuse and libfuse2, which are fetched and unpacked, not installed). They run in a
# mount namespace of their own, so nothing of them is left behind.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-5} mib=${MIB:-512} files=${FILES:-100000}
if [[ $(id -u) == 0 && -z ${BENCH_ALONE:-} ]] && unshare -m true 2>/dev/null; then
  BENCH_ALONE=1 exec unshare -m "$0" "$@"
fi
[[ -n ${BENCH_PROGRAM:-} ]] || cargo build --quiet --locked --release -p bench
bench=$(realpath "${BENCH_PROGRAM:-${CARGO_TARGET_DIR:-target}/release/bench}")
scratch=${1:-$(mktemp -d /dev/shm/poolhouse-bench.XXXXXX)}
mkdir -p "$scratch"
scratch=$(realpath "$scratch")
loops=() server='' fifo=''

# Where nothing is there to be ended, that is not a failure.
leave() {
  set +e
  [[ -z $fifo ]] || exec {fifo}>&-
  [[ -z $server ]] || wait "$server"
  if [[ -n ${BENCH_ALONE:-} ]]; then
    umount "$scratch/btrfs" "$scratch/zfs-fuse" 2>/dev/null
    [[ -z ${zfs_fuse:-} ]] || kill "$zfs_fuse"
    for loop in "${loops[@]}"; do losetup -d "$loop"; done
  fi
  rm -rf "$scratch"/engine "$scratch"/ours "$scratch"/*.img
  rmdir --ignore-fail-on-non-empty "$scratch"/* "$scratch" 2>/dev/null
} 2>/dev/null
trap leave EXIT
trap 'exit 143' INT TERM

# SIDE: six files whose pages are all there
images() {
  for index in 0 1 2 3 4 5; do
    dd if=/dev/urandom of="$scratch/$1$index.img" bs=1M count=$((mib / 4 + 256)) status=none
    echo "$scratch/$1$index.img"
  done
}

btrfs_side() {
  command -v mkfs.btrfs >/dev/null || { echo "left out: btrfs: mkfs.btrfs is not installed (btrfs-progs)"; return; }
  local image loop
  for image in $(images btrfs); do
    loop=$(losetup --find --show "$image") || { echo "left out: btrfs: no loop devices"; return; }
    loops+=("$loop")
  done
  mkdir -p "$scratch/btrfs"
  mkfs.btrfs --force --quiet -d raid6 -m raid1c3 "${loops[@]}" >/dev/null 2>&1 &&
    mount -t btrfs "${loops[0]}" "$scratch/btrfs" || { echo "left out: btrfs: the kernel cannot mount it"; return; }
  sides+=("btrfs=$scratch/btrfs")
}

zfs_fuse_side() {
  local unpacked=${CARGO_TARGET_DIR:-target}/bench-zfs-fuse folder name log
  if [[ ! -x $unpacked/sbin/zfs-fuse ]]; then
    mkdir -p "$unpacked"
    (cd "$unpacked" && apt-get download zfs-fuse libfuse2 >/dev/null 2>&1 &&
      for package in ./*.deb; do dpkg -x "$package" .; done) ||
      { echo "left out: zfs-fuse: its packages cannot be had (Debian: zfs-fuse, libfuse2)"; return; }
  fi
  unpacked=$(realpath "$unpacked")
  # it writes to these folders, which must not be the system's
  mount -t tmpfs tmpfs /run && mkdir -p /run/lock/zfs /run/zfs
  mkdir -p "$scratch/over" && mount -t tmpfs tmpfs "$scratch/over"
  for folder in /etc /var/lib; do
    name=$scratch/over${folder//\//_}
    mkdir -p "$name/upper" "$name/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$name/upper,workdir=$name/work" "$folder" ||
      { echo "left out: zfs-fuse: no overlay file systems"; return; }
    mkdir -p "$folder/zfs"
  done
  export LD_LIBRARY_PATH=$unpacked/lib/x86_64-linux-gnu
  log=$scratch/over/log
  "$unpacked/sbin/zfs-fuse" --no-daemon >"$log" 2>&1 {fifo}>&- &
  zfs_fuse=$!
  sleep 2
  local drives
  mapfile -t drives < <(images zfs)
  "$unpacked/sbin/zpool" create -m "$scratch/zfs-fuse" bench raidz2 "${drives[@]}" >>"$log" 2>&1 ||
    { echo "left out: zfs-fuse: $(tail -1 "$log")"; unset LD_LIBRARY_PATH; return; }
  unset LD_LIBRARY_PATH
  sides+=("zfs-fuse=$scratch/zfs-fuse")
}

if [[ -z ${BENCH_ONLY:-} || $BENCH_ONLY == *engine* ]]; then
  mkdir -p "$scratch/engine"
  "$bench" write "$scratch/engine" "$rounds" "$mib"
  rm -rf "$scratch/engine"
  [[ ${BENCH_ONLY:-} != engine ]] || exit 0
fi
[[ -w /dev/fuse ]] || { echo "left out: mounts: /dev/fuse is not there or not yours"; exit 0; }
mkdir -p "$scratch/ours" "$scratch/mounted"
mkfifo "$scratch/ours/end"
"$bench" hold "$scratch/ours" "$scratch/mounted" $((mib / 4 + 256)) <"$scratch/ours/end" >"$scratch/ours/log" 2>&1 &
server=$!
exec {fifo}>"$scratch/ours/end"
while ! grep -q mounted "$scratch/ours/log"; do
  kill -0 "$server" 2>/dev/null || { cat "$scratch/ours/log"; exit 1; }
  sleep 0.2
done
sides=("ours=$scratch/mounted")
if [[ -n ${BENCH_ALONE:-} ]]; then
  btrfs_side
  zfs_fuse_side
else
  echo "left out: btrfs and zfs-fuse: they take root"
fi
"$bench" mounts "$rounds" "$mib" "$files" "PID=$server" "${sides[@]}"
