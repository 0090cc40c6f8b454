# shellcheck shell=bash
# replicas.sh: the set-up of scripts that run a replication program, unchanged, with poolhouse's `zfs` and `zpool`.
# Sourced with POOLHOUSE and the fixture `sent`: the pool `tank` of the fixture is imported, and `backup` is empty.
poolhouse=$(readlink -f "$1") fixture=$(readlink -f "$2")
work=$(mktemp -d)
export POOLHOUSE_STATE=$work/state
finish() { "$poolhouse" serve --stop >/dev/null 2>&1 || true; rm -rf "$work"; }
trap finish EXIT
mkdir -p "$work"/{bin,other}
for name in zfs zpool; do
  printf '#!/bin/sh\nexec %s %s "$@"\n' "$poolhouse" "$name" >"$work/bin/$name"; chmod +x "$work/bin/$name"
done
PATH=$work/bin:$PATH
tar --zstd -xf "$fixture" -C "$work"
truncate -s 512M "$work/other/d0.img"
zpool import -N -d "$work/sent" tank
zpool create -O mountpoint=none backup "$work/other/d0.img"

newest() { zfs list -Hpd1 -o guid -t snapshot -s createtxg "$1" | tail -n 1; }
same() { [[ $(newest "$1") == "$(newest "$2")" ]] || { echo "FAULT $2 lacks the newest snapshot"; exit 1; }; }
