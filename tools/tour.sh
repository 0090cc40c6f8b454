#!/usr/bin/env bash
# The tour: a pool made by real OpenZFS is read, and one of our own is made, mounted, broken and read.
# No root, no kernel module. The NAS is left running; `make run` again begins anew.
set -uo pipefail
cd "$(dirname "$0")/.."

mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(realpath "${CARGO_TARGET_DIR:-target}")
[[ $target != "$PWD"/* ]] || target=${target#"$PWD"/} # short in what is shown
tour=$target/tour
pools=$tour/pools
nas=$tour/nas
failed=0
mkdir -p "$pools" "$nas"
PATH=$(realpath -m "$target/quick"):$PATH
export POOLHOUSE_STATE=$nas/state

unpack() { # NAME: the pool's disks, as someone would find them in a drawer
  [[ -d $pools/$1 ]] || cargo run --quiet --locked --profile quick \
    -p fixtures --example unpack -- "$1" "$pools"
}

show() { # WORDS...: a command and the first lines of what it says (of the last ones, where `last` is set)
  printf '\n\033[1m$ %s\033[0m\n' "$*"
  if [[ -n ${last:-} ]]; then "$@" 2>&1 | tail -n "$last"; else "$@" 2>&1 | sed -n "1,${lines:-20}p"; fi
  local status=${PIPESTATUS[0]}
  if [[ $status -ne ${wanted:-0} ]]; then
    echo "(exit status $status)"
    failed=1
  fi
}

say() { printf '\n%s\n' "$*"; }

unpack raidz3-8-mixed-trouble
say "A raidz3 of OpenZFS; of its eight disks one is gone, and two were silently overwritten in places."
say "Every block of it is read, each copy, and parity; what is damaged is named, and nothing is lost:"
last=8 wanted=1 show poolhouse rescue verify -d "$pools/raidz3-8-mixed-trouble" tank
lines=6 show poolhouse rescue ls -l -d "$pools/raidz3-8-mixed-trouble" tank:/

# what an earlier tour left
poolhouse serve --stop 2>/dev/null
rm -rf "$nas/state" "$nas/drives" "$nas/case" "$nas/restored"
mkdir -p "$nas/drives"
drives=()
for number in 1 2 3 4 5 6; do
  truncate -s 1G "$nas/drives/d$number"
  drives+=("$nas/drives/d$number")
done

say "A NAS on six files of 1 GiB that take no room yet, of which any two may fail:"
mounted=
if [[ -e /dev/fuse ]] && command -v fusermount3 >/dev/null; then mounted=yes; fi
root=$(realpath -m "$nas/files")
# without FUSE nothing can be mounted; an ordinary user may be kept from mounting one file system within another
nowhere=() unmounted=()
[[ -n $mounted ]] || nowhere=(-m none)
[[ $(id -u) == 0 ]] || grep -qx user_allow_other /etc/fuse.conf 2>/dev/null || unmounted=(-u)
show poolhouse zpool create "${nowhere[@]}" -R "$root" -O compression=zstd tank raidz2 "${drives[@]}"
show poolhouse zfs create "${unmounted[@]}" -o recordsize=1M tank/media
if [[ -n $mounted ]] && mountpoint -q "$root/tank"; then
  mountpoint -q "$root/tank/media" && place=tank/media || place=tank
  show cp README.md "$root/$place/"
else
  say "(there is no FUSE here, so that nothing is mounted: see \`poolhouse serve --help\`)"
  mounted=
fi
show poolhouse zfs snapshot -r tank@first
show poolhouse zfs list

say "Snapshots are copied to a second pool, here on the same machine; a host with a zfs command would do as well:"
truncate -s 1G "$nas/drives/copy"
show poolhouse zpool create "${nowhere[@]}" -R "$root" -O canmount=off copies "$(realpath "$nas/drives/copy")"
show poolhouse replicate tank/media copies/media
[[ -z $mounted ]] || head -c 3M /dev/urandom >"$root/$place/holiday.jpg"
show poolhouse zfs snapshot -r tank@second
[[ -z $mounted ]] || rm "$root/$place/holiday.jpg"
show poolhouse zfs snapshot -r tank@third
show poolhouse replicate tank/media copies/media
show poolhouse zfs list -t all -o name,used,refer copies -r

say "A backup keeps snapshots as raw blocks in a folder, or in a bucket. Each can be read, mounted and removed alone:"
repository=file://$(realpath "$nas")/backup
rm -rf "$nas/backup"
show poolhouse backup init "$repository"
for snapshot in first second third; do
  show poolhouse backup run "$repository" "${place:-tank/media}@$snapshot"
done
show poolhouse backup list "$repository"
if [[ -n $mounted ]]; then
  mkdir -p "$nas/old"
  poolhouse backup mount "$repository" "$place@second" "$nas/old" >/dev/null 2>&1 &
  for _ in $(seq 50); do mountpoint -q "$nas/old" && break; sleep 0.1; done
  show ls -l "$nas/old"
  fusermount3 -u "$nas/old"
  show poolhouse backup restore "$repository" "$place@first:/README.md" "$nas/restored"
fi
show poolhouse backup prune "$repository" --keep-last 1

say "Two of the six fail: the NAS is stopped, the files are deleted, and whoever asks starts it again."
show poolhouse serve --stop
show rm "$nas/drives/d2" "$nas/drives/d5"
show poolhouse zpool status tank
if [[ -n $mounted ]]; then
  show cmp README.md "$root/$place/README.md"
  lines=3 show cat "$root/$place/.zfs/snapshot/first/README.md"
fi

if command -v python3 >/dev/null; then
  say "A simulated case has two fans, three warm drives and a UPS:"
  mkdir -p "$nas/case"
  tools/chassis.py "$nas/case" 34930 </dev/null >/dev/null 2>&1 &
  disown
  for _ in $(seq 50); do [[ -e $nas/case/ups ]] && break; sleep 0.1; done
  cat >>"$nas/state/config.toml" <<EOF
[fans]
hwmon = "$(realpath "$nas/case/hwmon")"
interval = 1
[[fans.fan]]
name = "front"
chip = "simfan"
pwm = 1
min = 20
[[fans.fan]]
name = "rear"
chip = "simfan"
pwm = 2
min = 20
follows = "both"
[ups]
server = "nut://127.0.0.1:34930/demo"
interval = 1
shutdown_command = ["true"]
EOF
  sleep 3
  show poolhouse fans status
  show poolhouse ups status
fi

say "The dashboard says so, too, and tells what to do next:"
show poolhouse config set web.listen 127.0.0.1:8080
wanted=1 show poolhouse alerts list
show poolhouse web setup

say "Volumes are shared by NBD, file systems by NFS, and by SMB where Samba is installed; here with this machine alone:"
show poolhouse zfs create -s -V 1G tank/disk
show poolhouse config set nbd.listen 10809
show poolhouse share add nbd tank/disk -o name=disk
show poolhouse config set nfs.listen 12049
show poolhouse share add nfs tank/media -o path=/media
smb=
if [[ -n $mounted ]] && PATH=$PATH:/usr/sbin command -v smbd >/dev/null; then
  smb=yes
  password=$(head -c 6 /dev/urandom | od -An -tx1 | tr -d ' \n')
  show poolhouse config set smb.listen 4450
  poolhouse user add guest --system-user "$(id -un)" <<<"$password"
  show poolhouse share add smb "$place" -o name=files
fi
show poolhouse share status

say "The NAS is running. Its state is in $nas; try:
  export POOLHOUSE_STATE=$(realpath "$nas/state") PATH=$(realpath "$target/quick"):\$PATH"
if [[ -n $mounted ]]; then
  say "  cp -r docs $nas/files/$place/        it is a file system like any other
  ls $nas/files/$place/.zfs/snapshot   what was there at each snapshot"
fi
[[ -z $smb ]] || echo "  smbclient -p 4450 -U guest%$password //127.0.0.1/files -c ls
  mount -t cifs -o port=4450,username=guest,password=$password //127.0.0.1/files /mnt"
cat <<EOF
  mount -t nfs -o vers=4.2,port=12049 127.0.0.1:/media /mnt
  nbdinfo nbd://127.0.0.1/disk             the volume over the network
  nbd-client 127.0.0.1 -N disk /dev/nbd0   the same as a disk of this machine
  poolhouse zfs snapshot tank/media@now    a moment to come back to
  poolhouse zfs list -o space              where the room goes
  poolhouse zpool status                   how it is
  curl --unix-socket $nas/state/socket http://nas/api/v1/pools
  poolhouse zpool export tank; poolhouse rescue verify -d $nas/drives tank
  poolhouse serve --stop                   end it; any command starts it again
  echo OB >$nas/case/ups                   the power fails; \`echo OL\` brings it back
  poolhouse plan --drives 6x4TB            what six real drives would give
  poolhouse rescue scan -d /dev            pools on disks of your own
  examples/builds/household/build.sh       one of eight real servers, rebuilt: $(cd examples/builds && echo */ | tr -d /)
EOF
exit "$failed"
