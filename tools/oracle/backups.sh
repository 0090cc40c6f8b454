#!/usr/bin/env bash
# backups.sh: snapshots restored out of a backup repository into new pools, judged by the real OpenZFS.
#
#   backups.sh POOLHOUSE ZFS-VM
#
# A pool with a plain and an encrypted file system gets a history of three snapshots, each of which goes into a repository.
# Then the pool is lost, the first snapshots are pruned, and a new pool receives the rest out of the repository, the encrypted
# ones without their key. Debian's zdb reads the new pool where it is installed. OpenZFS, in the VM, imports it, loads the
# key, scrubs, and every entry of every snapshot must be as in the lost pool. Mounts with fuse, so that it runs as root.
set -euo pipefail

poolhouse=$(readlink -f "$1") vm=$(readlink -f "$2")
work=$(mktemp -d)
export POOLHOUSE_STATE=$work/state
finish() {
  "$poolhouse" serve --stop >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT
mkdir -p "$work"/{bin,share/new,lost,root}
for name in zfs zpool; do
  printf '#!/bin/sh\nexec %q %s "$@"\n' "$poolhouse" "$name" >"$work/bin/$name"
  chmod +x "$work/bin/$name"
done
PATH=$work/bin:$PATH
printf 'correct horse battery staple' >"$work/share/key"
repository=file://$work/repository

# The entries of a folder with their facts, checksums and extended attributes. Both sides have it.
cat >"$work/share/listing" <<'LISTING'
listing() { # FOLDER
  (cd "$1"; find . -printf '%P|%y|%m|%U|%G|%s|%T@|%l|%n\n' | LC_ALL=C sort
   find . -type f -size -64M -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
   getfattr -Rhd -m - . 2>/dev/null | grep -v '^# file' | LC_ALL=C sort)
}
LISTING
. "$work/share/listing"

truncate -s 512M "$work/lost/d0"
zpool create -O compression=lz4 -R "$work/root" tank "$work/lost/d0"
zfs create -o recordsize=16K -o xattr=sa tank/plain
zfs create -o encryption=on -o keyformat=passphrase -o keylocation="file://$work/share/key" tank/secret
"$poolhouse" backup init "$repository"
for part in one two three; do
  for name in plain secret; do
    dir=$work/root/tank/$name
    for i in {1..120}; do head -c $((i * 173)) /dev/urandom >"$dir/$part-$i"; done
    mkdir -p "$dir/folder-$part" && ln -s "../$part-1" "$dir/folder-$part/link" && ln "$dir/$part-2" "$dir/folder-$part/hard"
    setfattr -n user.of -v "$part" "$dir/$part-3"
    seq 1 60000 >"$dir/numbers-$part"
    dd if=/dev/urandom of="$dir/sparse" bs=64K count=2 seek=$((${#part} * 5000)) conv=notrunc status=none
    [[ $part == one ]] || rm "$dir/one-"{10..40} -f
    zfs snapshot "tank/$name@$part"
    listing "$dir" >"$work/share/$name@$part"
  done
  "$poolhouse" backup run "$repository" "tank/plain@$part" "tank/secret@$part"
done
zpool destroy tank
"$poolhouse" backup prune "$repository" --keep-last 2
"$poolhouse" backup check "$repository"

truncate -s 512M "$work/share/new/d0"
zpool create -O mountpoint=none new "$work/share/new/d0"
for name in plain secret; do
  "$poolhouse" backup send -w "$repository" "tank/$name@two" | zfs receive -u "new/$name"
  "$poolhouse" backup send -w -i "tank/$name@two" "$repository" "tank/$name@three" | zfs receive -u "new/$name"
done
[[ $(zfs get -Ho value keystatus new/secret) == unavailable ]] || echo "FAULT the key was needed"
zpool export new
if command -v zdb >/dev/null; then zdb -e -p "$work/share/new" -bcc new >"$work/zdb" 2>&1 || { tail -n 5 "$work/zdb"; echo "FAULT zdb"; exit 1; }; fi

cat >"$work/share/judge" <<'JUDGE'
set -u
. /share/listing
mkdir -p /ram/new && cp --sparse=always /share/new/d0 /ram/new/
zpool import -N -d /ram/new new || echo "FAULT import"
zfs load-key -L file:///share/key new/secret || echo "FAULT the key"
for name in plain secret; do
  for part in two three; do
    mkdir -p "/m/$name@$part"
    mount -t zfs "new/$name@$part" "/m/$name@$part" || echo "FAULT $name@$part cannot be mounted"
    listing "/m/$name@$part" >found
    if [ -s found ] && cmp -s found "/share/$name@$part"; then echo "same $name@$part"
    else echo "FAULT $name@$part"; diff found "/share/$name@$part" | head -n 5; fi
  done
done
zpool scrub -w new
zpool status new | grep -q 'errors: No known data errors' || echo "FAULT scrub"
JUDGE
"$vm" run --share "$work/share" --timeout 600 -- "$work/share/judge" | tee "$work/said"
[[ $(grep -c '^same ' "$work/said") == 4 ]] && ! grep -q FAULT "$work/said"
