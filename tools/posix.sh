#!/usr/bin/env bash
# What others test file systems with, on a mounted pool of six sparse files; zdb has the last word.
# Takes root, /dev/fuse, fio, git, rsync, zdb; pjdfstest and fsx are built from their crates.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d); trap 'kill "${pool:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
for crate in pjdfstest fsx; do
  [[ -x $target/posix/bin/$crate ]] || cargo install --quiet "$crate" --root "$target/posix"
done
cargo build --quiet --locked -p fuse --example live
mkdir "$work/drives" "$work/mnt"; mkfifo "$work/hold"; chmod 755 "$work"
"$target/debug/examples/live" "$work/drives" "$work/mnt" raidz2 6 1024 compression=lz4 \
  <"$work/hold" >"$work/log" 2>&1 & pool=$!
exec 9>"$work/hold"
until grep -q mounted "$work/log"; do kill -0 "$pool" || { cat "$work/log"; exit 1; }; sleep 0.2; done
mkdir "$work/mnt/pjd"
cat >"$work/pjd.toml" <<'END'
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.05
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
"$target/posix/bin/pjdfstest" -c "$work/pjd.toml" -p "$work/mnt/pjd" >"$work/pjd" ||
  { grep FAILED "$work/pjd"; exit 1; }
grep Summary "$work/pjd"
"$target/posix/bin/fsx" -N 20000 -S 7 "$work/mnt/fsx" | tail -1
fio --name=v --directory="$work/mnt" --size=256m --bs=4k-128k --rw=randrw --verify=crc32c --do_verify=1 \
  --ioengine=psync --end_fsync=1 | grep -E 'err=|READ|WRITE'
git clone -q --no-hardlinks . "$work/mnt/clone" && git -C "$work/mnt/clone" fsck --no-dangling
rsync -aHAX --exclude=/target ./ "$work/mnt/tree/" && rsync -aHAX "$work/mnt/tree/" "$work/back/"
[[ -z $(rsync -aHAXnic --delete --exclude=/target ./ "$work/back/") ]]
exec 9>&-
wait "$pool"; cat "$work/log"; pool=
zdb -e -p "$work/drives" -bcc tank | grep -i leak
