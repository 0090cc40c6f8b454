#!/usr/bin/env bash
# Four bays, mixed drives (2015): one drive of 1 TB and three of 2 TB as a raidz, then the three alone. A drive is pulled
# and put back under load; a log and a cache come to a fifth port and go again; clients come by NFS.
#
#   examples/builds/four-bays/build.sh [PROGRAM]
source "$(dirname "$0")/../lib.sh"
need nfs-cp libnfs-utils
port=$(free_port)
show_as "\\b$port\\b" 2049

section plan
say "What four equal drives give, net: the table that the buyer of 2015 drew by hand."
net() { poolhouse plan --drives "$1" --layout "$2" | sed -n 's/^advertised net *//p'; }
printf '%-8s %-10s %-10s %-10s\n' drives raidz raidz2 mirrors
for size in 3TB 4TB 6TB 8TB; do
  printf '%-8s %-10s %-10s %-10s\n' 4x$size "$(net 4x$size 'raidz 4')" "$(net 4x$size 'raidz2 4')" \
    "$(net 4x$size 'mirror 2 mirror 2')"
done
say "One drive of 1 TB and three of 2 TB: a raidz takes 1 TB of each."
run "poolhouse plan --drives 1x1TB,3x2TB --layout 'raidz 4' --layout 'raidz2 4' --layout 'mirror 2 mirror 2' | sed -n 1,4p"
say "The three of 2 TB alone give more, and the fourth bay stays free."
run "poolhouse plan --drives 3x2TB --layout 'raidz 3' --layout 'mirror 3' | sed -n 1,3p"
check "1 TB + 3 x 2 TB in raidz are 3 TB net" '[[ $(net 1x1TB,3x2TB "raidz 4") == "3.00 TB" ]]'
check "3 x 2 TB in raidz are 4 TB net" '[[ $(net 3x2TB "raidz 3") == "4.00 TB" ]]'

if measuring; then
  need nbdkit nbdkit
  need nbdfuse libnbd-bin
  figures pools
  say "Both pools, of drives that stream 16 MB/s (a tenth of those of 2015), beside what the drives themselves do."
  drive small 1000M && drive large1 2000M && drive large2 2000M && drive large3 2000M
  for name in small large1 large2 large3; do port $name 128M 0 $name; done
  run "poolhouse bench disk dev/* --seconds 0.5 --zones 2 -q -o drives.json | grep -E '^ +mean|at 0 %|at once  '"
  run "poolhouse bench array dev/large* dev/small --layout raidz --disks 3,4 --size 48M --seconds 1 --files 20 \\
  --only write-1m-q1,read-1m-q1 -q -o pools | grep -E '^ +raidz|^sequential|^resilver'"
  for disks in 3 4; do
    run "poolhouse bench plan pools/raidz1-$disks-ashift-12.json drives.json | head -5"
  done
fi

section pool
for name in a b c; do drive $name 2000M; done
run "poolhouse zpool create -m none -R $work/files tank raidz a b c"
run "poolhouse zfs create -o mountpoint=/data tank/data"
run "poolhouse config set nfs.listen $port"
run "poolhouse share add nfs tank/data -o path=/data -o squash=none"

if measuring; then
  need smbclient smbclient
  need smbd "samba samba-vfs-modules"
  figures wire
  say "A wire of 100 Mbit/s, a tenth of the gigabit of 2015 as the drives are: what NFS and SMB get through it."
  share_ports
  nfs_wire=$(free_port) smb_wire=$(free_port)
  run "poolhouse config set smb.listen $smb_port"
  add_anna
  run "poolhouse share add smb tank/data -o name=data -o users=anna"
  wait_until '! poolhouse share status --json | grep "\"problem\": \""'
  for pair in "$nfs_wire $port" "$smb_wire $smb_port"; do
    # shellcheck disable=SC2086
    python3 "$repository/examples/builds/four-bays/wire.py" $pair 12500000 </dev/null &
    processes+=($!)
  done
  wait_until "(: </dev/tcp/127.0.0.1/$nfs_wire) && (: </dev/tcp/127.0.0.1/$smb_wire)"
  random_file song 60
  through() { # NAME WRITE READ
    local begin=$EPOCHREALTIME middle
    eval "$2" >copied 2>&1 </dev/null || { cat copied; return 1; }
    middle=$EPOCHREALTIME
    rm -f back
    eval "$3" >copied 2>&1 </dev/null || { cat copied; return 1; }
    awk -v name="$1" -v begin="$begin" -v middle="$middle" -v end="$EPOCHREALTIME" 'BEGIN {
      write = 62.9 / (middle - begin); read = 62.9 / (end - middle)
      printf "%-6s %6.1f MB/s %4.0f %% %10.1f MB/s %4.0f %%\n", name, write, 8 * write, read, 8 * read}'
    cmp song back
  }
  printf '%-6s %17s %22s\n' "" "write, of the wire" "read, of the wire"
  song="nfs://127.0.0.1/data/song?version=3&nfsport=$nfs_wire&mountport=$nfs_wire"
  through NFS "nfs-cp song '$song'" "nfs-cp '$song' back"
  through SMB "smbclient -A login -p $smb_wire //127.0.0.1/data -c 'put song song2'" \
    "smbclient -A login -p $smb_wire //127.0.0.1/data -c 'get song2 back'"
  check "both copies are what was sent" 'cmp song files/data/song && cmp song files/data/song2'
  rm files/data/song files/data/song2
fi

section hotplug
say "A client writes by NFS while a drive is pulled, and while it is put back."
nfs="nfs://127.0.0.1/data/film?version=3&nfsport=$port&mountport=$port"
random_file film 300
# one film after the other until the drive is back, however fast this machine is
copy_films() {
  local number=0
  until [[ -e enough ]]; do
    number=$((number + 1))
    nfs-cp film "${nfs/film/film$number}" >>copied 2>&1 || return 1
  done
}
copy_films &
client=$!
processes+=("$client")
wait_until '[[ -s files/data/film1 ]]'
run "poolhouse zpool offline tank $work/b"
check "the pool is degraded, and the client goes on" 'pool_is tank DEGRADED && kill -0 $client'
run "poolhouse zpool online -w tank $work/b"
touch enough
check "the client ends well" 'wait $client'
check "the pool is whole" 'pool_is tank ONLINE'
check "the films are what the client sent" 'for copy in files/data/film*; do cmp film "$copy" || return 1; done'
run "poolhouse zpool scrub -w tank"
run "poolhouse zpool status tank | grep scan"
check "the drive that was away lacks nothing" 'poolhouse zpool status tank | grep -E "scrub repaired 0B? in .* with 0 errors"'

section fifth-port
say "An SSD at the fifth port: a log for writes that clients wait for, and a cache for what memory does not hold."
drive ssd1 500M && drive ssd2 1000M
run "poolhouse zpool add tank log ssd1"
run "poolhouse zpool add tank cache ssd2"
run "poolhouse zpool list -v -o name,size tank"
say "The daemon is killed right after a write with O_SYNC. The log has what no txg holds yet."
run "dd if=film of=files/data/synced bs=128k count=100 oflag=sync status=none"
kill -9 "$(sed -n 's/.* as process \([0-9]*\).*/\1/p' state/log | tail -1)"
wait_until 'poolhouse zpool list tank && [[ -e files/data/synced ]]'
check "what was written with O_SYNC is there" 'cmp -n 13107200 film files/data/synced'
run "poolhouse zpool remove tank $work/ssd1"
run "poolhouse zpool remove tank $work/ssd2"
check "both are gone, and nothing with them" \
  '! poolhouse zpool status tank | grep -E "logs|cache" && cmp -n 13107200 film files/data/synced'
run "poolhouse zpool export -f tank"
run "poolhouse rescue verify -q -d . tank | tail -1"

section spin-down
say "Four disks took 50 W while they turned, and 30 W in standby. Those of a pool that nothing uses go to standby."
for name in s1 s2 s3 s4; do drive $name 2000M; done
simulate_smartctl s1 s2 s3 s4
sed -i 's/"rotation_rate": 0/"rotation_rate": 5400/' smart/*.json
wait_until 'poolhouse config show | grep smartctl'
run "poolhouse zpool create -m none -O canmount=off archive raidz s1 s2 s3 s4"
poolhouse drives list --now >/dev/null || true
wait_until '[[ $(poolhouse drives list | grep -c archive/raidz1-0) == 4 ]]'
run "poolhouse config add power pool=archive idle_minutes=0.1"
asleep() { [[ $(poolhouse drives list | grep -c "ok (asleep)") == "$1" ]]; }
wait_until 'asleep 4' 120
run "poolhouse drives list | grep -E 'BAY|archive'"
say "The first request wakes one disk, and the daemon the other three at the same time."
run "poolhouse zfs create archive/films"
wait_until 'grep "of its disks were woken" state/log'
check "all four turn again" 'wait_until "asleep 0"'
