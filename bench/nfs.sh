#!/usr/bin/env bash
# NFS beside the mount of the same pool, raidz2 of six files, and beside nfs-ganesha over that mount, in turns.
#
#   bench/nfs.sh [FOLDER, default /dev/shm or else a temporary one] [ROUNDS, default 5] [MIB of a file, default 512]
#   POOLHOUSE=PROGRAM MEASURE=PROGRAM bench/nfs.sh ...     with programs that are built already
#
# The client is sharing/nfs/examples/measure.rs, over loopback, without a kernel mount. Medians and ratios of pairs of one round
# are printed. The FOLDER needs twelve times the size of a file. Data cannot be compressed. Before the first round each side
# writes its file six times, so that the memory of drives and caches is in use already; the pool is synced before each
# measurement. The first read after a write is of the drives for us, whose cache keeps no written files, and of the kernel's
# memory for ganesha. After two more reads both read memory.
# The client keeps its memory (MALLOC_MMAP_THRESHOLD_): it would fault in new pages for each request. nfs-ganesha runs if
# its program and its module vfs are installed (Debian: nfs-ganesha-vfs), as root.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-$([[ -d /dev/shm ]] && echo /dev/shm || echo "${TMPDIR:-/tmp}")} rounds=${2:-5} mib=${3:-512}
. bench/scratch-daemon.sh
scratch_daemon nfs "$base"
measure=${MEASURE:-${CARGO_TARGET_DIR:-target}/release/examples/measure}
[[ -n ${MEASURE:-} ]] || cargo build --quiet --locked --release -p nfs --example measure
measure=$(readlink -f "$measure")

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

truncate -s $((mib * 2))M "$scratch"/drive{1..6}
"$ours" zpool create -R "$scratch/m" -O compression=lz4 -O atime=off tank raidz2 "$scratch"/drive{1..6}
data=$scratch/m/tank port=$(free_port)
"$ours" config set nfs.listen "$port" >/dev/null
"$ours" share add nfs tank -o path=/tank -o squash=none >/dev/null
measure() { MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 "$measure" "$@"; }
over_nfs() { measure "127.0.0.1:$port" /tank "$@"; }

# nfs-ganesha exports the mount. It must answer a client before it counts.
peer_port=$(free_port) peer= peer_process=
trap '[[ -z $peer_process ]] || kill "$peer_process" 2>/dev/null || true; end_scratch_daemon' EXIT
start_ganesha() {
  command -v ganesha.nfsd >/dev/null || { echo "(no nfs-ganesha: apt install nfs-ganesha-vfs)"; return; }
  cat >"$scratch/ganesha.conf" <<CONF
NFS_CORE_PARAM { Protocols = 4; NFS_Port = $peer_port; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { Graceless = true; RecoveryRoot = "$scratch/recovery"; }
EXPORT { Export_Id = 1; Path = "$data"; Pseudo = /tank; Protocols = 4; Access_Type = RW; Squash = none;
  SecType = sys; Filesystem_Id = 1.1; FSAL { Name = VFS; } }
CONF
  mkdir -p "$scratch/recovery"
  ganesha.nfsd -F -L "$scratch/ganesha.log" -f "$scratch/ganesha.conf" -p "$scratch/ganesha.pid" >/dev/null 2>&1 &
  peer_process=$!
  for _ in {1..100}; do
    "$measure" "127.0.0.1:$peer_port" /tank create probe 1 10 >/dev/null 2>&1 && { peer=1; return; }
    kill -0 "$peer_process" 2>/dev/null || break
    sleep 0.2
  done
  kill "$peer_process" 2>/dev/null || true
  echo "(nfs-ganesha does not serve this mount: $(tail -n 1 "$scratch/ganesha.log" 2>/dev/null))"
}
over_ganesha() { measure "127.0.0.1:$peer_port" /tank "$@"; }

# A file on the mount, in order: MiB/s.
on_mount() { # write|read NAME MIB
  python3 - "$1" "$data/$2" "$3" <<'PYTHON'
import os, sys, time
action, path, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
size = 512 << 10
block = os.urandom(size)
flags = os.O_RDONLY if action == "read" else os.O_WRONLY | os.O_CREAT
file = os.open(path, flags, 0o644)
if action == "read":
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
begin = time.monotonic()
for _ in range(mib * (1 << 20) // size):
    if action == "read":
        assert len(os.read(file, size)) == size
    else:
        assert os.write(file, block) == size
if action == "write":
    os.fsync(file)
print(f"{mib / (time.monotonic() - begin):.1f}")
PYTHON
}

creates_on_mount() { # MS
  python3 - "$data" "$1" <<'PYTHON'
import os, sys, time
root, seconds, count = sys.argv[1], int(sys.argv[2]) / 1000, 0
begin = time.monotonic()
while time.monotonic() - begin < seconds:
    directory = os.open(root, os.O_RDONLY)
    os.close(os.open(f"{root}/mount-{begin}-{count}", os.O_CREAT | os.O_WRONLY, 0o644))
    os.fsync(directory)
    os.close(directory)
    count += 1
print(f"{count / seconds:.1f}")
PYTHON
}

record() { # SERIES VALUE
  "$ours" zpool sync tank && sleep 1
  echo "$2" >>"$scratch/$1.values"
}

median() { sort -g | awk '{ all[NR] = $1 } END { if (NR) printf "%.2f", all[int((NR + 1) / 2)]; else printf "-" }'; }

# The median of both series, and that of the ratios of their rounds.
compare() { # TITLE SERIES SERIES UNIT
  [[ -s $scratch/$2.values && -s $scratch/$3.values ]] || return 0
  local ratio
  ratio=$(paste "$scratch/$2.values" "$scratch/$3.values" | awk '{ print $1 / $2 }' | median)
  printf '%-44s %10s %10s %-8s %6sx\n' "$1" "$(median <"$scratch/$2.values")" "$(median <"$scratch/$3.values")" "$4" "$ratio"
}

round() {
  record write-mount "$(on_mount write file-mount "$mib")"
  record write-nfs "$(over_nfs write file-nfs "$mib")"
  record read-mount "$(on_mount read file-mount "$mib")"
  record first-read-nfs "$(over_nfs read file-nfs "$mib")"
  for _ in 1 2; do over_nfs read file-nfs "$mib" >/dev/null; done
  record read-nfs "$(over_nfs read file-nfs "$mib")"
  record sync-1 "$(over_nfs sync sync 1 1500)"
  record sync-8 "$(over_nfs sync sync 8 1500)"
  record create-mount "$(creates_on_mount 1500)"
  record create-nfs "$(over_nfs create create 1 1500)"
  [[ -n $peer ]] || return 0
  record write-peer "$(over_ganesha write file-peer "$mib")"
  record first-read-peer "$(over_ganesha read file-peer "$mib")"
  for _ in 1 2; do over_ganesha read file-peer "$mib" >/dev/null; done
  record read-peer "$(over_ganesha read file-peer "$mib")"
  record create-peer "$(over_ganesha create peer 1 1500)"
}

start_ganesha
for _ in {1..6}; do
  on_mount write file-mount "$mib" >/dev/null
  over_nfs write file-nfs "$mib" >/dev/null
  [[ -z $peer ]] || over_ganesha write file-peer "$mib" >/dev/null
done
for _ in $(seq "$rounds"); do
  round
done
printf '%-44s %10s %10s %-8s %7s\n' "" first second "" ratio
compare "sequential write: NFS, the mount" write-nfs write-mount MiB/s
compare "first read: NFS, the mount" first-read-nfs read-mount MiB/s
compare "4 KiB FILE_SYNC: eight clients, one" sync-8 sync-1 writes/s
compare "creates: NFS, the mount with fsync" create-nfs create-mount files/s
compare "sequential write: NFS, ganesha" write-nfs write-peer MiB/s
compare "first read: NFS, ganesha" first-read-nfs first-read-peer MiB/s
compare "read of memory: NFS, ganesha" read-nfs read-peer MiB/s
compare "creates: NFS, ganesha" create-nfs create-peer files/s
