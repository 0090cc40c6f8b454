# The common part of all builds: the program, a folder that is removed at the end, and the functions that print.
#
#   source "$(dirname "$0")/../lib.sh"
#
# A build prints, and its chapter in docs/manual/builds shows:
#
#   == plan ==                 section plan        a part of the chapter begins
#   == speed (figures) ==      figures speed       the same, with figures that differ from run to run
#   # Two drives may fail.     say TEXT            what comes next, or why
#   $ poolhouse zpool ...      run 'COMMAND'       a command and all that it prints; the build ends if it fails
#   $ ...                      quiet 'COMMAND'     the same without its output, which may differ
#   $ poolhouse drives list    finds 'COMMAND'     the same for a command that has to find something: status 1
#   $ ...                      refused 'COMMAND'   the same for a command that has to fail
#   ok: nothing is lost        check TEXT 'COMMAND'    the build ends if the command fails
#
# QUICK=1 skips measurements. Drives are sparse files at a thousandth of their size. Dates, and the folder of
# the run, are shown by placeholders.
set -euo pipefail

repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")

# The program: the argument of the build, or the one built here.
find_program() {
  local program candidates=("${CARGO_TARGET_DIR:-$repository/target}"/{release,debug}/poolhouse)
  [[ $# == 0 ]] || candidates=("$1")
  for program in "${candidates[@]}"; do
    if [[ -x $program ]]; then
      realpath "$program"
      return
    fi
  done
  echo "There is no program ${candidates[*]}: type \`cargo build --release -p poolhouse\`, or name another one." >&2
  return 1
}

program=$(find_program "$@")
work=$(mktemp -d /tmp/nas-XXXXXX) # short, as sockets have a path of 107 bytes at most
readonly repository program work
processes=()
chmod 711 "$work" # users of shares pass through it
mkdir "$work/bin"
ln -s "$program" "$work/bin/poolhouse"
export PATH=$work/bin:$PATH:/usr/sbin:/sbin
export POOLHOUSE_STATE=$work/state
unset CDPATH
cd "$work"

# Ends the processes started here, and removes the folder; also after a failure or Ctrl-C.
clean_up() {
  local status=$? state mount
  cd /
  for state in "$work"/state*; do
    [[ ! -d $state ]] || poolhouse serve --stop --state "$state" >/dev/null 2>&1 || true
  done
  for mount in $(grep -o " $work/[^ ]* " /proc/self/mounts || true); do
    umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" 2>/dev/null || true
  done
  [[ ${#processes[@]} == 0 ]] || kill "${processes[@]}" 2>/dev/null || true
  rm -rf "$work" "/dev/shm/${work##*/}"
  [[ $status == 0 || $status == 77 ]] || echo "FAILED with status $status" >&2
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Replaces what differs from run to run.
placeholders=(-e "s#$work#/tmp/nas-folder#g" -e "s#$repository#/usr/src/poolhouse#g"
  -e 's/[0-9]{2,}:[0-9]{2}:[0-9]{2}/HH:MM:SS/g'
  -e 's/ on [A-Z][a-z]{2} [A-Z][a-z]{2} +[0-9]+ HH:MM:SS [0-9]{4}/ on DATE/g'
  -e 's/20[2-9][0-9]-[0-9]{2}-[0-9]{2}([ _]HH:MM:SS|[ _][0-9]{2}:[0-9]{2})([+-][0-9]{2}:[0-9]{2})?/DATE/g'
  -e 's/resilvered [0-9.]+[KMG]?/resilvered SIZE/'
  -e 's/ \([0-9.]+ kb\/s\).*//'
  -e '/ processors?, .*Linux/d')

# show_as TEXT PLACEHOLDER: the same for a port or a name that this run made up.
show_as() { placeholders+=(-e "s#$1#$2#g"); }

shown() { sed -E "${placeholders[@]}"; }

measuring() { [[ -z ${QUICK:-} ]]; }

section() { printf '\n== %s ==\n' "$1"; }
figures() {
  local machine=machine build=development load
  read -r load _ </proc/loadavg
  ! grep -q '^flags.* hypervisor' /proc/cpuinfo || machine='virtual machine'
  [[ $program != */release/* ]] || build=release
  printf '\n== %s (figures) ==\n' "$1"
  LC_ALL=C printf '# Measured in %(%B %Y)T by a %s build on a %s with %s processors, load %s.\n' \
    -1 "$build" "$machine" "$(nproc)" "$load"
}
say() { printf '# %s\n' "$*" | shown; }

run() {
  echo "$ $1" | shown
  eval "$1" 2>&1 </dev/null | shown
}

quiet() {
  echo "$ $1" | shown
  eval "$1" >"$work/said" 2>&1 </dev/null || { cat "$work/said"; return 1; }
}

finds() {
  echo "$ $1" | shown
  local status=0
  eval "$1" >"$work/found" 2>&1 </dev/null || status=$?
  shown <"$work/found"
  [[ $status == 1 ]] || { echo "not ok: status $status instead of 1"; return 1; }
}

refused() {
  echo "$ $1" | shown
  if (eval "$1") >"$work/refused" 2>&1 </dev/null; then
    echo "not ok: this command should have failed"
    return 1
  fi
  shown <"$work/refused"
}

check() {
  if ! eval "$2" >"$work/checked" 2>&1; then
    echo "not ok: $1: $2"
    cat "$work/checked"
    return 1
  fi
  echo "ok: $1" | shown
}

# need COMMAND PACKAGE: ends the build with status 77 where a client is missing.
need() {
  command -v "$1" >/dev/null && return
  echo "skipped: $1 is missing: \`apt install $2\`"
  exit 77
}

# wait_until 'COMMAND' [SECONDS]: waits for an event. In a pipe the status of grep counts, not that of the command before it.
wait_until() {
  local end=$((SECONDS + ${2:-60}))
  while ((SECONDS <= end)); do
    ! (set +o pipefail; eval "$1") >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  echo "not ok: waited ${2:-60} seconds for: $1"
  return 1
}

free_port() {
  local port
  for port in $(shuf -i 20000-30000 -n 100); do
    (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null || { echo "$port" && return; }
  done
}

# share_ports: sets smb_port and nfs_port to free ports, shown as 4450 and 12049, and me to the name of this user.
share_ports() {
  smb_port=$(free_port) nfs_port=$(free_port) me=$(id -un)
  show_as "\\b$smb_port\\b" 4450
  show_as "\\b$nfs_port\\b" 12049
  show_as "--system-user $me" "--system-user me"
}

# add_anna: a user of shares with the rights of this one; smbclient logs in by the file login.
add_anna() {
  echo 'password of anna' >password
  run "poolhouse user add anna --system-user $me <password"
  (umask 077 && printf 'username = anna\npassword = password of anna\n' >login)
}

# drive NAME SIZE: a sparse file that stands for a drive.
drive() { truncate -s "$2" "$1"; }

# random_file NAME MEGABYTES: data that cannot be compressed.
random_file() { dd if=/dev/urandom of="$1" bs=1M count="$2" iflag=fullblock status=none; }

# port NAME RATE MILLISECONDS DRIVE...: a port through which drives are reached, and appear in the folder dev. Together
# they get RATE bits a second, such as 160M; each request takes MILLISECONDS.
port() {
  local name=$1 rate=$2 delay=$3 drive
  shift 3
  mkdir -p "ports/$name" dev
  for drive in "$@"; do mv "$drive" "ports/$name/"; done
  nbdkit -f -U "$work/ports/$name.socket" --filter=rate --filter=delay file dir="ports/$name" \
    rate="$rate" burstiness=0.1 rdelay="${delay}ms" wdelay="${delay}ms" </dev/null &
  processes+=($!)
  wait_until "[[ -S ports/$name.socket ]]"
  for drive in "$@"; do
    touch "dev/$drive"
    nbdfuse "$work/dev/$drive" "nbd+unix:///$drive?socket=$work/ports/$name.socket" </dev/null >/dev/null 2>&1 &
    processes+=($!)
    wait_until "[[ -s dev/$drive ]]"
  done
}

# pool_is POOL HEALTH
pool_is() { [[ $(poolhouse zpool list -H -o health "$1") == "$2" ]]; }

# smart_report DRIVE [well|failed]: the SMART report of a drive from now on: a recording, with or without a failed self-test.
smart_report() {
  local name log
  name=$(basename "$1")
  log='"count": 0'
  [[ ${2:-well} == well ]] || log='"count": 1, "table": [{"type": {"value": 2, "string": "Extended offline"},
    "status": {"value": 112, "string": "Completed: read failure", "passed": false}, "lifetime_hours": 1610}]'
  sed -e "s/S24ZN902000L/SERIAL-$name/; s/X SSD 850 PRO 128GB/SIMULATED/; s/128035676160/2000398934016/" \
    -e "/ata_smart_self_test_log/,/count/ s/\"count\": 0/${log//$'\n'/}/" \
    "$repository/house/health/tests/data/scrutiny/smart-ata2.json" >"smart/$name.json"
}

# simulate_smartctl DRIVE...: a program in the place of smartctl prints recorded reports of these drives.
simulate_smartctl() {
  local drive
  mkdir smart
  cat >smart/smartctl <<'END'
#!/bin/sh
for last; do :; done
file=${0%/*}/${last##*/}.json
[ -e "$file" ] || { echo '{}'; exit 2; }
cat "$file"
END
  chmod +x smart/smartctl
  mkdir -p "$POOLHOUSE_STATE"
  {
    printf '[health]\nsmartctl = "%s"\n' "$work/smart/smartctl"
    for drive in "$@"; do
      smart_report "$drive"
      printf '[[health.drives]]\npath = "%s"\n' "$work/$drive"
    done
  } >>"$POOLHOUSE_STATE/config.toml"
}
