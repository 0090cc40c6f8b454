#!/usr/bin/env bash
# The suites of pynfs for NFSv4.0 and NFSv4.1 against the NFS server, on a pool in memory: part of `make test-clients`.
#
#   tools/pynfs.sh [0|1]...     the minor versions, 0 and 1 without arguments; each takes ten minutes
#
# It needs python3 with its module ply (Debian: python3-ply). PYNFS is the address or the folder of a clone of pynfs.
# It fails if other tests fail than those that docs/nfs.md names, or if fewer do.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -c 'import ply' 2>/dev/null || {
  echo "tools/pynfs.sh: python3 has no module ply: apt-get install python3-ply" >&2
  exit 1
}
cargo build --quiet --locked -p nfs --example serve_pool
server=$(realpath -m "${CARGO_TARGET_DIR:-target}/debug/examples/serve_pool")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet --depth 1 "${PYNFS:-https://github.com/kofemann/pynfs}" "$work/pynfs"
(cd "$work/pynfs" && ./setup.py build) >"$work/build.log" 2>&1 || {
  cat "$work/build.log" >&2
  exit 1
}

# The tests: those of delegations by a client of 4.0 are not among all.
declare -A flags=([0]="all delegations writedelegations" [1]="all")
# Tests that fail, and why.
declare -A expected=(
  [0]=""
  # on a busy machine DELEG5 fails as well: its clients are silent for longer than the lease
  # they want the attribute open_arguments of RFC 9754
  [1]="DELEG24 DELEG25"
)
# A lease must be longer than the 35 s after which a delegation is revoked, or else as short as possible.
declare -A lease=([0]=15 [1]=45)

# Changes a file as a program on the server, or restarts the server: `serverhelper MINOR-VERSION unlink FILE`,
# `serverhelper MINOR-VERSION reboot`. Returns when that is done.
cat >"$work/serverhelper" <<EOF
#!/usr/bin/env bash
answers=$work/ready.\$1
count() { grep -cE '^(done|failed|restart|ready)' "\$answers"; }
before=\$(count)
request=\${*:2}
echo "\${request/#reboot/restart}" >"$work/stdin.\$1"
for _ in {1..600}; do
  [[ \$(count) == "\$before" ]] || exit 0
  sleep 0.1
done
EOF
chmod 755 "$work/serverhelper"

run() { # MINOR-VERSION
  local port output failed
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  mkfifo "$work/stdin.$1"
  "$server" "127.0.0.1:$port" "${lease[$1]}" <"$work/stdin.$1" >"$work/ready.$1" &
  exec 9>"$work/stdin.$1"
  until grep -q ready "$work/ready.$1"; do sleep 0.2; done
  output=$work/output.$1
  # the suite exits with an error if a test fails
  # shellcheck disable=SC2086 # words
  (cd "$work/pynfs/nfs4.$1" && timeout 2400 python3 testserver.py "127.0.0.1:$port/tank" --maketree --minorversion="$1" \
    --serverhelper="$work/serverhelper" --serverhelperarg="$1" ${flags[$1]}) >"$output" 2>&1 9>&- || true
  exec 9>&-
  wait
  failed=$(awk '/: FAILURE$/ { print $1 }' "$output" | sort -u | xargs)
  echo "NFSv4.$1: $(tail -n 1 "$output")"
  if [[ $failed != "${expected[$1]}" || $(tail -n 1 "$output") != *Passed* ]]; then
    echo "not ok NFSv4.$1: failed '$failed', expected '${expected[$1]}'"
    grep -A 3 ': FAILURE$' "$output" || tail -n 20 "$output"
    return 1
  fi
}

status=0
[[ $# -gt 0 ]] || set -- 0 1
for version in "$@"; do
  run "$version" || status=1
done
exit "$status"
