#!/usr/bin/env bash
# Runs inside the VM: real OpenZFS checks pools that we made, and changes them.
#
#   guest.sh NAME...     the disk of the same place is a tar, in it d0.img, ... of an exported pool `tank`;
#                        /share/NAME may have a list `keys` (DATASET FORMAT SECRET); `logged` has the
#                        number of blocks in the log of its cache drive
#
# Results in /share/NAME: trouble (a line for each failed check), theirs.json (the pool's content
# in OpenZFS), after/ with the images as OpenZFS left them and their manifest, and done.
set -euo pipefail
shopt -s nullglob
source /share/words.sh
# compiled modules are shared by all runs
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=/run/compiled

load_keys() {
  local ds format value file
  mkdir -p /run/keys
  while read -r ds format value; do
    file=/run/keys/${ds//\//_}
    if [[ $format == raw ]]; then python3 -c "import sys; sys.stdout.buffer.write(bytes.fromhex('$value'))" >"$file"
    else printf '%s' "$value" >"$file"; fi
  done <"$from/keys"
}

trouble() { echo "$*" >>"$from/trouble"; }

take() { # OPTION...: imports the images in $place, and mounts what is in them, with no trace there
  local said ds format value n=0
  said=$(zpool import $force -d "$place" -N -o cachefile=none "$@" tank 2>&1) || { trouble "zpool import $*: $said"; return 1; }
  [[ -z $said ]] || trouble "zpool import $*: $said"
  while read -r ds format value; do
    [[ $* == *readonly* ]] || old_key_opens_nothing "$ds" "$format"
    said=$(zfs load-key -L "file:///run/keys/${ds//\//_}" "$ds" 2>&1) || trouble "load-key $ds: $said"
  done <"$from/keys"
  if [[ $* == *readonly* ]]; then
    said=$(zfs list -Ho name -t filesystem -r tank | mount_readonly 2>&1) || trouble "mount: $said"
    return
  fi
  while read -r ds; do
    mkdir -p "/run/mounts/$n"
    said=$(mount -t zfs -o zfsutil "$ds" "/run/mounts/$n" 2>&1) || trouble "mount $ds: $said"
    n=$((n + 1))
  done < <(zfs list -Ho name -t filesystem -r tank)
  # loading a key creates the devices of volumes below its encryption root by name; volumes elsewhere with
  # that root, after a promote, get theirs when the property is set
  while read -r ds value; do
    [[ $value == - || $ds == "$value"* ]] || zfs set volmode=default "$ds"
  done < <(zfs get -Ho name,value -r -t volume encryptionroot tank)
}

old_key_opens_nothing() { # DATASET FORMAT: the key that some had before
  case $2 in
    passphrase) printf 'wrong horse battery' ;;
    hex) printf '0b1e%.0s' {1..16} ;;
    *) printf '\x0b\x1e%.0s' {1..16} ;;
  esac >/run/keys/old
  ! zfs load-key -L file:///run/keys/old "$1" 2>/dev/null || trouble "the old key of $1 opens it"
}

# `zfs userspace` of an unmounted file system never ends in a read-only pool. All at once:
# starting programs takes most of the time here.
mount_readonly() {
  python3 -c '
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for n, name in enumerate(sys.stdin.read().split()):
    place = "/run/mounts/%d" % n
    os.makedirs(place, exist_ok=True)
    if libc.mount(name.encode(), place.encode(), b"zfs", 1, None) != 0:
        sys.exit(name + ": " + os.strerror(ctypes.get_errno()))'
}

l2() { awk -v name="l2_$1" '$1 == name { print $3 }' /proc/spl/kstat/zfs/arcstats; }

l2_troubles() {
  local each
  for each in rebuild_{unsupported,io_errors,dh_errors,cksum_lb_errors,lowmem} cksum_bad io_error writes_error; do
    echo "$each $(l2 $each)"
  done
}

follow_log() { # our cache drive's log: all that we found again by it, OpenZFS finds
  local blocks try; blocks=$(<"$from/logged")
  [[ $blocks != 0 ]] || return 0
  for try in {1..50}; do
    [[ $(l2 rebuild_success) == "${followed[0]}" ]] || break
    sleep 0.3
  done
  found=$(($(l2 rebuild_bufs) - followed[1]))
  [[ $(l2 rebuild_success) != "${followed[0]}" && $found -ge $blocks ]] ||
    trouble "l2arc: $found blocks are found again by a log of $blocks: $(zpool history -i tank | grep L2ARC | tr '\n' '|')"
}

let_go() { # right after an import the pool may be busy for a while
  local try
  for try in 1 2 3 4 5; do zpool export tank && rm -rf /run/mounts && return; sleep 1; done
  trouble "zpool export: busy"
  return 1
}

sound() { # WHEN: no warning, no error; but for features that the pool was to do without
  local said; said=$(zpool status -v tank)
  [[ ! -e $from/fewer ]] || said=$(sed '/^status: Some supported and requested features are not enabled/,/^config:/{/^config:/!d}' <<<"$said")
  grep -q '^errors: No known data errors$' <<<"$said" && grep -q '^ state: ONLINE$' <<<"$said" &&
    ! grep -qE '^(status|action):|[1-9][0-9]*K? +[0-9]+ +[0-9]+$|^.* [0-9]+ +[0-9.]+[KM]? +[1-9][0-9]*$' <<<"$(grep -v 'scan:' <<<"$said")" ||
    trouble "$1: $(tr '\n' '|' <<<"$said")"
}

scrub() { # WHEN
  zpool scrub -w tank
  zpool status tank | grep -qE 'scrub repaired 0B in .* with 0 errors' ||
    trouble "$1: $(zpool status tank | tr '\n' '|')"
  sound "$1, after its scrub"
}

unless_full() { # COMMAND...: a pool may have no room for it
  local said
  said=$("$@" 2>&1) || [[ $said == *"out of space"* ]] || trouble "$*: $said"
}

more() { # OpenZFS's own changes: new files, snapshots, datasets, and some that go
  local n snapshots
  for n in 0 1 2 3; do
    ! mountpoint -q /run/mounts/$n || churn /run/mounts/$n "$name.$n" 15
  done
  unless_full zfs snapshot -r tank@theirs
  unless_full zfs create tank/theirs
  ! mountpoint -q /tank/theirs || churn /tank/theirs "$name.theirs" 20
  mapfile -t snapshots < <(zfs list -Ho name -t snapshot -r tank)
  for ((n = 0; n < ${#snapshots[@]}; n += 3)); do zfs destroy "${snapshots[n]}" 2>/dev/null || true; done
  zpool sync tank
}

images() { # ours, in $place
  mkdir -p "$place"
  rm -f "$place"/*.img
  tar -C "$place" -xf "$disk"
}

manifest() { echo "${1:-}" >/run/notes/state; python3 /share/manifest.py draft "$name" tank /run/notes; }

one() { # NAME DISK
  name=$1 disk=$2 from=/share/$1 place=/ram/$1
  mkdir -p /run/notes
  echo "a pool of ours" >/run/notes/about
  [[ ! -s $from/keys ]] || cp "$from/keys" /run/notes/keys
  [[ -e $from/keys ]] || : >"$from/keys"
  load_keys
  images
  # after a power cut: its logs are replayed when its file systems are mounted
  force=; [[ ! -e $from/cut ]] || force=-f
  followed=("$(l2 rebuild_success)" "$(l2 rebuild_bufs)") found=
  before=$(l2_troubles) hits=$(l2 hits)
  take
  force=
  [[ ! -e $from/logged ]] || follow_log
  while read -r said; do trouble "$said"; done < <(dmesg -c | grep -o 'ZFS replay .*')
  sound "ours"
  manifest ours >"$from/theirs.json"
  [[ -z $found ]] || echo ", $found blocks of the cache found again, $(($(l2 hits) - hits)) times used" >"$from/cached"
  [[ ! -e $from/logged || $before == "$(l2_troubles)" ]] ||
    trouble "l2arc: $(diff <(echo "$before") <(l2_troubles) | grep '^>' | tr '\n' '|')"
  scrub "ours"
  more
  sound "gone on with"
  # OpenZFS may show attributes from memory only: if an ACL does not fit, its mode is shown
  # until the file system is mounted again
  let_go
  take
  mkdir -p "$from/after"
  manifest exported >"$from/after/manifest.json"
  let_go
  cp --sparse=always "$place"/*.img "$from/after/"
  [[ ! -e $from/logged ]] || cp "$from/logged" "$from/after/"
  # the figures are those of the images only in an import that changes nothing
  take -o readonly=on
  python3 /share/manifest.py restate tank "$from/after/manifest.json"
  let_go
  if [[ ! -e $from/cut ]]; then
    images
    take -o readonly=on
    python3 /share/manifest.py restate tank "$from/theirs.json"
    let_go
  fi
  : >"$from/done"
}

if [[ $1 == one ]]; then
  one "$2" "$3"
  exit
fi
disks=(/dev/vd?)
for each; do
  begun=$SECONDS disk=${disks[0]} disks=("${disks[@]:1}")
  if bash "$0" one "$each" "$disk" >/ram/log 2>&1; then echo "$each: $((SECONDS - begun)) s$(cat "/share/$each/cached" 2>/dev/null)"
  else
    echo "$each: FAILED ($((SECONDS - begun)) s)"
    tail -n 20 /ram/log >>"/share/$each/trouble"
  fi
  rm -rf /run/keys /run/notes
  zpool list -Ho name | while read -r pool; do zpool export -f "$pool" || true; done
  rm -rf "/ram/${each:?}"
done
