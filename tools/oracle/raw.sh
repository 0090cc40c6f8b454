#!/usr/bin/env bash
# raw.sh: raw streams exchanged with the real OpenZFS, both ways, compared by content.
#
#   raw.sh POOLHOUSE ZFS-VM SENT-RAW-FOLDER
#
# SENT-RAW-FOLDER is the unpacked fixture sent-raw. poolhouse receives its raw trees without a key, sends them on
# raw, and sends raw streams of an encrypted file system that it wrote itself. OpenZFS, in the VM, imports the pool
# that received, loads the keys, and receives what poolhouse sent. Every entry must be as in the original.
# Mounts with fuse, so that it runs as root.
set -euo pipefail

poolhouse=$(readlink -f "$1") vm=$(readlink -f "$2") sent=$(readlink -f "$3")
work=$(mktemp -d)
export POOLHOUSE_STATE=$work/state
finish() {
  "$poolhouse" serve --stop >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT
mkdir -p "$work"/{state,mine,root,sent}
cp --sparse=always "$sent/d0.img" "$work/sent/"

printf 'correct horse battery staple' >"$work/key"
truncate -s 512M "$work/mine/d0.img"
"$poolhouse" zpool create -R "$work/root" mine "$work/mine/d0.img"
"$poolhouse" zfs receive -u mine/secret <"$sent/raw-tree.zstream"
"$poolhouse" zfs receive -u mine/secret <"$sent/raw-tree-incremental.zstream"
"$poolhouse" zfs send -w -R mine/secret@two >"$work/secret.zstream"
"$poolhouse" zfs create -o encryption=on -o keyformat=passphrase -o keylocation="file://$work/key" \
  -o xattr=sa -o dnodesize=auto mine/own
own=$work/root/mine/own
for i in {1..300}; do echo "$i" >"$own/file-$i"; done
seq 1 90000 >"$own/numbers"
setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' x)" "$own/file-1"
truncate -s 5G "$own/sparse"
seq 1 500 | dd of="$own/sparse" bs=1M seek=3000 conv=notrunc status=none
"$poolhouse" zfs snapshot mine/own@a
rm "$own"/file-{100..250}
seq 5 500 | dd of="$own/numbers" bs=1 conv=notrunc status=none
"$poolhouse" zfs snapshot mine/own@b
(cd "$own"; find . -type f -size -64M -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) >"$work/own.sums"
"$poolhouse" zfs send -w mine/own@a >"$work/own-a.zstream"
"$poolhouse" zfs send -w -i @a mine/own@b >"$work/own-b.zstream"
"$poolhouse" zpool export mine
"$poolhouse" serve --stop || true

cat >"$work/judge" <<'JUDGE'
set -u
cd /ram; mkdir -p mine tank
cp --sparse=always /share/mine/d0.img mine/; cp --sparse=always /share/sent/d0.img tank/
listing() {
  (cd "$1"; find . -printf '%P|%y|%m|%U|%G|%s|%T@|%l|%n\n' | LC_ALL=C sort
   find . -type f -size -64M -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
   getfattr -Rhd -m - . 2>/dev/null | grep -v '^# file' | LC_ALL=C sort)
}
show() { # DATASET FOLDER
  mkdir -p "$2"; mount -t zfs "$1" "$2" || echo "FAULT $1 cannot be mounted"
}
same() { # DATASET OTHER
  show "$1" "/m/$1"; show "$2" "/m/$2"
  listing "/m/$1" >one; listing "/m/$2" >other
  if [ -s one ] && cmp -s one other; then echo "same $2"; else echo "FAULT $2"; diff one other | head -n 5; fi
  umount "/m/$1" "/m/$2"
}
unlock() { zfs load-key -L file:///share/key "$1" || echo "FAULT the key of $1"; }
zpool import -N -d /ram/mine mine || echo "FAULT import"
zpool import -N -f -d /ram/tank tank || echo "FAULT import of the original"
unlock tank/secret; unlock mine/secret
for name in secret@one secret@two secret/child@one secret/child@two secret/clone@two; do
  same "tank/$name" "mine/$name"
done
truncate -s 600M got.img; zpool create -O mountpoint=none got /ram/got.img
zfs receive -u got/own </share/own-a.zstream || echo "FAULT full stream"
zfs receive -u got/own </share/own-b.zstream || echo "FAULT increment"
unlock got/own; show got/own@b /m/own
(cd /m/own; sha256sum --quiet -c /share/own.sums) && echo "same own" || echo "FAULT own"
zfs receive -u got/secret </share/secret.zstream || echo "FAULT tree"
unlock got/secret
for name in secret@two secret/child@two secret/clone@two; do same "tank/$name" "got/$name"; done
for pool in mine got; do
  zpool scrub -w "$pool"
  zpool status "$pool" | grep -q 'errors: No known data errors' || echo "FAULT scrub of $pool"
done
JUDGE
"$vm" run --share "$work" --mem 4G --timeout 900 -- "$work/judge" | tee "$work/said"
! grep -q FAULT "$work/said"
