#!/usr/bin/env bash
# Runs inside the VM: real OpenZFS judges pools that we made, and goes on with them.
#
#   guest.sh NAME...     each /share/NAME has images d0.img, ... of an exported pool `tank`, maybe
#                        a list `keys` (DATASET FORMAT SECRET)
#
# Left in /share/NAME: trouble (a line for each thing that is not as it should be), theirs.json (what
# OpenZFS sees in the pool), after/ with the images as OpenZFS left them and their manifest, and done.
set -euo pipefail
shopt -s nullglob
source /share/words.sh

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
    # the key that some had before opens nothing
    case $format in
      passphrase) printf 'wrong horse battery' ;;
      hex) printf '0b1e%.0s' {1..16} ;;
      *) printf '\x0b\x1e%.0s' {1..16} ;;
    esac >/run/keys/old
    ! zfs load-key -L file:///run/keys/old "$ds" 2>/dev/null || trouble "the old key of $ds opens it"
    said=$(zfs load-key -L "file:///run/keys/${ds//\//_}" "$ds" 2>&1) || trouble "load-key $ds: $said"
  done <"$from/keys"
  # asking who uses how much of what is not mounted never ends in a pool that is only read
  while read -r ds; do
    mkdir -p "/run/mounts/$n"
    said=$(mount -t zfs -o zfsutil$([[ "$*" != *readonly* ]] || echo ,ro) "$ds" "/run/mounts/$n" 2>&1) ||
      trouble "mount $ds: $said"
    n=$((n + 1))
  done < <(zfs list -Ho name -t filesystem -r tank)
}

let_go() { # right after an import the pool may be busy for a while
  local try
  for try in 1 2 3 4 5; do zpool export tank && rm -rf /run/mounts && return; sleep 1; done
  trouble "zpool export: busy"
  return 1
}

sound() { # WHEN: no warning, no error
  local said; said=$(zpool status -v tank)
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

more() { # OpenZFS's own changes: new files, snapshots, datasets, and some that go
  local n snapshots
  for n in 0 1 2 3; do
    ! mountpoint -q /run/mounts/$n || churn /run/mounts/$n "$name.$n" 15
  done
  zfs snapshot -r tank@theirs
  zfs create tank/theirs
  churn /tank/theirs "$name.theirs" 20
  mapfile -t snapshots < <(zfs list -Ho name -t snapshot -r tank)
  for ((n = 0; n < ${#snapshots[@]}; n += 3)); do zfs destroy "${snapshots[n]}" 2>/dev/null || true; done
  zpool sync tank
}

images() { # FROM TO
  mkdir -p "$2"
  rm -f "$2"/*.img
  cp --sparse=always "$1"/*.img "$2/"
}

manifest() { echo "${1:-}" >/run/notes/state; python3 /share/manifest.py record "$name" tank /run/notes; }

one() { # NAME
  name=$1 from=/share/$1 place=/ram/$1
  mkdir -p /run/notes
  echo "a pool of ours" >/run/notes/about
  [[ ! -s $from/keys ]] || cp "$from/keys" /run/notes/keys
  [[ -e $from/keys ]] || : >"$from/keys"
  load_keys
  images "$from" "$place"
  # the power was cut in it: its logs are replayed when what is in it is mounted
  force=; [[ ! -e $from/cut ]] || force=-f
  take
  force=
  sound "ours"
  manifest ours >"$from/theirs.json"
  scrub "ours"
  more
  sound "gone on with"
  mkdir -p "$from/after"
  manifest exported >"$from/after/manifest.json"
  let_go
  images "$place" "$from/after"
  # the figures are those of the images only in an import that changes nothing
  take -o readonly=on
  python3 /share/manifest.py restate tank "$from/after/manifest.json"
  let_go
  if [[ ! -e $from/cut ]]; then
    images "$from" "$place"
    take -o readonly=on
    python3 /share/manifest.py restate tank "$from/theirs.json"
    let_go
  fi
  : >"$from/done"
}

if [[ $1 == one ]]; then
  one "$2"
  exit
fi
for each; do
  begun=$SECONDS
  if bash "$0" one "$each" >/ram/log 2>&1; then echo "$each: $((SECONDS - begun)) s"
  else
    echo "$each: FAILED ($((SECONDS - begun)) s)"
    tail -n 20 /ram/log >>"/share/$each/trouble"
  fi
  rm -rf /run/keys /run/notes
  zpool list -Ho name | while read -r pool; do zpool export -f "$pool" || true; done
  rm -rf "/ram/${each:?}"
done
