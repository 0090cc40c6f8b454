#!/usr/bin/env bash
# Linux's own clients of network storage, in a virtual machine, use the shares of a NAS on three sparse files:
# `make test-clients`. PROTOCOLS (all but pjdfstest, which takes long) names scripts in tools/clients.
#
# POOLHOUSE_CLIENT_VM is a program that boots a Linux with nbd, cifs, nfs, iscsi_tcp and nvme_tcp and these clients' tools:
#   PROGRAM run --timeout SECONDS --forward [GUESTPORT:]PORT... [--publish PORT:GUESTPORT]... [--share FOLDER] -- SCRIPT
# runs SCRIPT inside as root and exits with its status; inside, 10.0.2.100:GUESTPORT leads to 127.0.0.1:PORT here.
# 127.0.0.1:PORT here leads to a published GUESTPORT inside. The shared FOLDER is /share inside.
#
# tools/clients/NAME.sh defines
#   NAME_port     the port that clients inside know
#   NAME_serve    here: shares something on port $1 of this machine; may add further options of PROGRAM to `forwards`
#   NAME_check    inside: uses it; its last line is shown. It fails if a command fails
#   NAME_beside   here, if it is defined: runs beside the checks, and is ended with them
set -euo pipefail
cd "$(dirname "$0")/.."

vm=${POOLHOUSE_CLIENT_VM:-}
if [[ -z $vm ]]; then
  echo "make test-clients: POOLHOUSE_CLIENT_VM names no virtual machine (see tools/clients.sh)" >&2
  exit 1
fi
cargo build --quiet --locked -p poolhouse
work=$(mktemp -d)
chmod 755 "$work"
export POOLHOUSE_STATE=$work/state PATH=$(realpath -m "${CARGO_TARGET_DIR:-target}/debug"):$PATH
trap 'poolhouse serve --stop 2>/dev/null || true; rm -rf "$work"' EXIT

mkdir "$work/drives"
truncate -s 1G "$work"/drives/d{1..3}
poolhouse zpool create -R "$work/files" -O compression=lz4 tank raidz1 "$work"/drives/d{1..3}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

names=${*:-${PROTOCOLS:-$(basename -s .sh tools/clients/*.sh | grep -vx pjdfstest)}}
forwards=()
{
  cat <<'INSIDE'
check() { # NAME: shows the last line that its check prints
  local out status
  # not in a list with && or ||, where the shell would continue after a failed command
  out=$(set -eEo pipefail; trap 'echo "failed: $BASH_COMMAND"' ERR; "$1_check" 2>&1)
  status=$?
  if [[ $status == 0 ]]; then
    echo "ok $1: ${out##*$'\n'}"
  else
    echo "not ok $1: $out"
    failed=1
  fi
}
failed=0
INSIDE
  for name in $names; do
    # shellcheck source=/dev/null
    source "tools/clients/$name.sh"
    port=$(free_port)
    "${name}_serve" "$port" >&2
    inside=${name}_port
    forwards+=(--forward "${!inside}:$port")
    declare -f $(compgen -A function "${name}_")
    echo "check $name"
  done
  echo 'exit "$failed"'
} >"$work/inside"

beside=()
for name in $names; do
  if declare -F "${name}_beside" >/dev/null; then
    "${name}_beside" >&2 &
    beside+=($!)
  fi
done
status=0
"$vm" run --timeout "${SECONDS_LIMIT:-900}" "${forwards[@]}" -- "$work/inside" || status=$?
[[ ${#beside[@]} == 0 ]] || kill "${beside[@]}" 2>/dev/null || true
poolhouse share status
exit "$status"
