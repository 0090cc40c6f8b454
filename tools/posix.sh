#!/usr/bin/env bash
# Common file system test suites, on a mounted pool of six sparse files; zdb checks the pool at the end.
# Takes root, /dev/fuse, fio, git, python3, rsync, zdb; pjdfstest and fsx are built from their crates.
# Five minutes on two cores: `make test-posix`.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d); chmod 755 "$work"; mnt=$work/files/tank
export POOLHOUSE_STATE=$work/state PATH=$(realpath -m "$target/debug"):$PATH
trap 'poolhouse serve --stop 2>/dev/null || true; rm -rf "$work"' EXIT
for crate in pjdfstest fsx; do
  [[ -x $target/posix/bin/$crate ]] || cargo install --quiet "$crate" --root "$target/posix"
done
cargo build --quiet --locked -p poolhouse
mkdir "$work/drives"; drives=$(echo "$work"/drives/d{1..6}); truncate -s 1G $drives
# shellcheck disable=SC2086 # six words
poolhouse zpool create -R "$work/files" -O compression=lz4 -O acltype=posix tank raidz2 $drives
mkdir "$mnt/pjd"
"$target/posix/bin/pjdfstest" -c tools/pjdfstest.toml -p "$mnt/pjd" >"$work/pjd" ||
  { grep FAILED "$work/pjd"; exit 1; }
grep Summary "$work/pjd"
"$target/posix/bin/fsx" -N 20000 -S 7 "$mnt/fsx" | tail -1
fio --name=v --directory="$mnt" --size=256m --bs=4k-128k --rw=randrw --verify=crc32c --do_verify=1 --verify_state_save=0 \
  --ioengine=psync --end_fsync=1 | grep -E 'err=|READ|WRITE'
python3 tools/handles.py "$mnt"
git clone -q --no-hardlinks . "$mnt/clone" && git -C "$mnt/clone" fsck --no-dangling
rsync -aHAX --exclude=/target ./ "$mnt/tree/" && rsync -aHAX "$mnt/tree/" "$work/back/"
[[ -z $(rsync -aHAXnic --delete --exclude=/target ./ "$work/back/") ]]
cp -a rust-toolchain.toml "$mnt/tree/" && (cd "$mnt/tree" && cargo build --quiet --locked -p units --target-dir out)
poolhouse zpool export tank
zdb -e -p "$work/drives" -bcc tank 2>&1 | grep "No leaks"
