#!/usr/bin/env bash
# How fast over the wire (2011): one file by NFS, SMB and rsync, from memory to memory and to an array; and why writes
# that a client waits for are slow.
#
#   examples/builds/over-the-wire/build.sh [PROGRAM]
#
# Server and client are this machine, so that the wire is its loopback. nbdkit gives the drives the speed of disks.
source "$(dirname "$0")/../lib.sh"
need nfs-cp libnfs-utils
need smbclient smbclient
need smbd "samba samba-vfs-modules"
need nbdkit nbdkit
need nbdfuse libnbd-bin
need rsync rsync
share_ports
net_port=$(free_port)
show_as "\\b$net_port\\b" 7476

section shares
say "An array of four drives that stream 60 MB/s and take 8 ms for each request, and a pool in memory beside it."
for name in d1 d2 d3 d4; do drive $name 2000M; done
for name in d1 d2 d3 d4; do port $name 480M 8 $name; done
mkdir "/dev/shm/${work##*/}"
ln -s "/dev/shm/${work##*/}" memory
drive memory/m1 1000M
run "poolhouse zpool create -m none -R $work/files tank raidz dev/d[1-4]"
run "poolhouse zpool create -m none -R $work/files ram memory/m1"
run "poolhouse config set nfs.listen $nfs_port"
run "poolhouse config set smb.listen $smb_port"
add_anna
for pool in tank ram; do
  poolhouse zfs create -o mountpoint=/$pool $pool/data
  poolhouse share add nfs $pool/data -o path=/$pool -o squash=none
  poolhouse share add smb $pool/data -o name=$pool -o users=anna
done
wait_until '! poolhouse share status --json | grep "\"problem\": \""'
run "poolhouse share list"
random_file memory/film 30

figures wire
say "The wire itself: TCP between the two ends, with the buffers that the system chooses and with others."
poolhouse bench net --listen 127.0.0.1:$net_port -q >listening &
processes+=($!)
wait_until 'grep listening listening'
run "poolhouse bench net 127.0.0.1:$net_port --seconds 0.5 -q -o net.json | grep -E '^ +mean|^(latency|one|4 )'"

figures copies
say "30 MB from memory, in MB/s: how each protocol writes, and how it reads."
seconds() { # COMMAND: how long it took
  local begin=$EPOCHREALTIME
  eval "$1" >"$work/timed" 2>&1 </dev/null || { cat "$work/timed" >&2; return 1; }
  awk -v begin="$begin" -v end="$EPOCHREALTIME" 'BEGIN {print end - begin}'
}
row() { # NAME POOL WRITE READ
  local write read
  write=$(seconds "$3")
  rm -f memory/back
  read=$(seconds "$4")
  cmp memory/film memory/back
  # what the array makes of it, against the pool in memory
  local change=
  if [[ $2 == tank ]]; then
    change=$(awk -v name="$1" -v write="$write" -v read="$read" -F '\t' \
      '$1 == name {printf "%+7.0f %% %+6.0f %%", 100 * ($2 / write - 1), 100 * ($3 / read - 1)}' in-memory)
  else
    printf '%s\t%s\t%s\n' "$1" "$write" "$read" >>in-memory
  fi
  awk -v name="$1" -v pool="$2" -v write="$write" -v read="$read" -v change="$change" \
    'BEGIN {printf "%-22s %-6s %8.0f %8.0f %s\n", name, pool, 31.5 / write, 31.5 / read, change}'
}
printf '%-22s %-6s %8s %8s %s\n' way pool write read "   array against memory"
for pool in ram tank; do
  nfs="nfs://127.0.0.1/$pool/nfs?version=3&nfsport=$nfs_port&mountport=$nfs_port"
  smb="smbclient -A login -p $smb_port //127.0.0.1/$pool"
  row "mount, cp" $pool "cp memory/film files/$pool/cp" "cp files/$pool/cp memory/back"
  row "mount, rsync" $pool "rsync memory/film files/$pool/rsync" "rsync -I files/$pool/rsync memory/back"
  row "NFS, nfs-cp" $pool "nfs-cp memory/film '$nfs'" "nfs-cp '$nfs' memory/back"
  row "SMB, smbclient" $pool "$smb -c 'put memory/film smb'" "$smb -c 'get smb memory/back'"
done
check "every copy, there and back, is the same" 'for copy in files/{ram,tank}/{cp,rsync,nfs,smb}; do cmp memory/film $copy; done'

figures sync
say "Writes that wait for the drives: each waits for requests of 8 ms. A log device without seeks takes them instead."
nfs="nfs://127.0.0.1/tank/synced?version=3&nfsport=$nfs_port&mountport=$nfs_port"
write_both() { # O_SYNC on the mount, and by NFS: seconds of each
  seconds "dd if=memory/film of=files/tank/synced bs=128k count=40 oflag=sync"
  rm files/tank/synced
  seconds "nfs-cp memory/film '$nfs'"
}
slow=$(write_both)
check "what was written by NFS is there" 'cmp memory/film files/tank/synced'
rm files/tank/synced
drive memory/log 500M
run "poolhouse zpool add tank log memory/log"
fast=$(write_both)
check "and again, with a log device" 'cmp memory/film files/tank/synced'
paste <(echo "$slow") <(echo "$fast") | awk 'BEGIN {
    size[1] = 5.24; size[2] = 31.5; name[1] = "O_SYNC, 128 KiB at a time"; name[2] = "NFS, nfs-cp"
    printf "%-28s %10s %10s %10s\n", "MB/s", "no log", "with a log", "faster"
  } {printf "%-28s %10.1f %10.1f %9.0fx\n", name[NR], size[NR] / $1, size[NR] / $2, $1 / $2}'
