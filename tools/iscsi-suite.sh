#!/usr/bin/env bash
# iscsi-test-cu of libiscsi against our iSCSI target and against tgt, in the same run: part of `make test-clients`.
#
#   tools/iscsi-suite.sh        takes a minute
#
# It needs iscsi-test-cu (Debian: libiscsi-bin) and tgtd (tgt), root for the latter. POOLHOUSE names a program that is
# built already. Both serve a disk of the same size, with blocks of 512 and of 4096 bytes. Each suite runs by itself with
# a time limit; a suite that exceeds it has failed. It fails if other tests fail here than those that docs/iscsi.md names,
# if one of the suites below skips a test, or if tgt passes more tests than we do.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in iscsi-test-cu tgtd; do
  command -v "$program" >/dev/null || {
    echo "tools/iscsi-suite.sh: $program is missing: apt-get install libiscsi-bin tgt" >&2
    exit 1
  }
done
ours=${POOLHOUSE:-${CARGO_TARGET_DIR:-target}/debug/poolhouse}
[[ -n ${POOLHOUSE:-} ]] || cargo build --quiet --locked -p poolhouse
ours=$(readlink -f "$ours")
work=$(mktemp -d)
export POOLHOUSE_STATE=$work/state TGT_IPC_SOCKET=$work/tgt
tgtd_pid=
end() {
  # tgtd does not end by SIGTERM while it has targets
  [[ -z $tgtd_pid ]] || kill -9 "$tgtd_pid" 2>/dev/null || true
  "$ours" serve --stop >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap end EXIT

# Suites that may not skip a test.
whole="CompareAndWrite ExtendedCopy GetLBAStatus PrinReadKeys PrinServiceactionRange PrinReportCapabilities
  ProutRegister ProutReserve ProutClear ProutPreempt Reserve6 ReceiveCopyResults Unmap Verify10 Write10 Write16
  WriteSame10 WriteSame16 iSCSIResiduals iSCSITMF iSCSIcmdsn iSCSIdatasn MultipathIO"
# Tests that fail here, by the size of a block; docs/iscsi.md has the reasons.
declare -A expected=([512]="GetLBAStatus.UnmapSingle WriteSame10.UnmapUntilEnd" [4096]="WriteSame10.UnmapUntilEnd")
# SECONDS of one suite
limit=30

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

tests=$(iscsi-test-cu --list)

# Runs all suites against a URL. Writes a line of each suite to FILE: its name, tests, passed tests, messages of skipped
# tests, the names of failed tests. A suite that does not come to its end has no passed tests.
run_suites() { # URL FILE
  local suite name output=$work/output
  for suite in $(grep -xE 'ALL\.[^.]+' <<<"$tests"); do
    name=${suite#ALL.}
    # two paths to the same disk, for the suites that need them
    timeout "$limit" iscsi-test-cu --dataloss --normal -t "$suite" "$1" "$1" >"$output" 2>&1 || true
    echo "$name $(grep -c "^$suite\." <<<"$tests")" \
      "$(awk '$1 == "tests" { passed = $4 } END { print passed + 0 }' "$output")" \
      "$(grep -c '\[SKIPPED\]' "$output" || true)" \
      "$(sed -n "s/^Suite $name, Test \(.*\) had failures:.*/$name.\1/p" "$output" | sort -u | xargs)" >>"$2"
  done
}

report() { # NAME FILE
  awk -v name="$1" '{ tests += $2; passed += $3; skips += $4 }
    END { printf "%s: %d of %d tests pass; %d messages of skipped tests\n", name, passed, tests, skips }' "$2"
}

passed() { # FILE
  awk '{ sum += $3 } END { print sum }' "$1"
}

mkdir "$work/pool" "$work/results"
truncate -s 2G "$work/pool/drive"
"$ours" zpool create -O mountpoint=none tank "$work/pool/drive"
port=$(free_port)
"$ours" config set iscsi.listen "$port"
tgt_port=$(free_port)
tgtd -f -C 17 --iscsi "portal=127.0.0.1:$tgt_port" >"$work/tgtd.log" 2>&1 &
tgtd_pid=$!
tgt() { tgtadm -C 17 --lld iscsi "$@"; }
until tgt --op show --mode target >/dev/null 2>&1; do sleep 0.2; done

status=0
number=0
for block in 512 4096; do
  number=$((number + 1))
  # with 512 bytes 16 KiB in the pool, so that blocks are parts of others. One WRITE SAME can name the whole disk, which
  # has enough blocks for the suites of parallel commands
  size=24M stored=16K
  [[ $block == 512 ]] || size=64M stored=4K
  "$ours" zfs create -s -V $size -o volblocksize=$stored "tank/disk$block" 2>/dev/null
  "$ours" share add iscsi "tank/disk$block" -o "target=iqn.2026-11.org.example:disk$block" -o "block_size=$block"
  truncate -s $size "$work/disk$block"
  name=iqn.2026-11.org.example:tgt$block
  tgt --op new --mode target --tid $number -T "$name"
  tgt --op new --mode logicalunit --tid $number --lun 1 --blocksize $block -b "$work/disk$block"
  tgt --op update --mode logicalunit --tid $number --lun 1 --params thin_provisioning=1
  tgt --op bind --mode target --tid $number -I ALL
  ours_file=$work/results/ours-$block
  tgt_file=$work/results/tgt-$block
  run_suites "iscsi://127.0.0.1:$port/iqn.2026-11.org.example:disk$block/0" "$ours_file"
  run_suites "iscsi://127.0.0.1:$tgt_port/$name/1" "$tgt_file"
  report "poolhouse, blocks of $block bytes" "$ours_file"
  report "tgt, blocks of $block bytes" "$tgt_file"
  failed=$(awk '{ for (i = 5; i <= NF; i++) print $i }' "$ours_file" | xargs)
  ended=$(awk '$3 == 0 { print $1 }' "$ours_file" | xargs)
  if [[ $failed != "${expected[$block]}" || -n $ended ]]; then
    echo "not ok: failed '$failed', expected '${expected[$block]}'; suites without an end: '$ended'"
    status=1
  fi
  # with 4096 bytes some tests have nothing to do, as a block is not a part of another
  [[ $block == 512 ]] || whole=
  for suite in $whole; do
    if ! awk -v suite="$suite" '$1 == suite { found = 1; if ($4 > 0) exit 1 } END { if (!found) exit 1 }' "$ours_file"; then
      echo "not ok: $suite is not there or skips tests: $(grep "^$suite " "$ours_file" || true)"
      status=1
    fi
  done
  if [[ $(passed "$ours_file") -le $(passed "$tgt_file") ]]; then
    echo "not ok: tgt passes as many tests"
    status=1
  fi
  echo "suites with skipped tests here: $(awk '$4 > 0 { print $1 }' "$ours_file" | xargs)"
done
exit "$status"
