#!/usr/bin/env bash
# Household server with an offsite copy (2012): six drives, shares for the family, snapshots by the clock, and a second
# box elsewhere that keeps copies of them, encrypted ones without their key. The second box is away for a week; nothing is
# lost by that.
#
#   examples/builds/household/build.sh [PROGRAM]
#
# Two daemons of this machine are the two boxes; a script in the place of ssh leads from one to the other.
source "$(dirname "$0")/../lib.sh"
need smbclient smbclient
need smbd "samba samba-vfs-modules"
need nfs-cp libnfs-utils
share_ports

section pool
for name in d1 d2 d3 d4 d5 d6; do drive $name 2000M; done
run "poolhouse zpool create -m none -R $work/files tank raidz2 d[1-6]"
run "poolhouse zfs create -o mountpoint=/photos -o compression=zstd tank/photos"
run "poolhouse zfs create -o mountpoint=/media -o recordsize=1M tank/media"
run "poolhouse zfs create -o mountpoint=/projects tank/projects"

section shares
say "A service listens once its address is configured. These addresses admit this machine alone; 0.0.0.0:445 and 0.0.0.0:2049 admit every network."
run "poolhouse config set smb.listen $smb_port"
run "poolhouse config set nfs.listen $nfs_port"
add_anna
run "poolhouse share add smb tank/photos -o users=anna"
run "poolhouse share add smb tank/media -o users=anna -o read_only=true"
run "poolhouse share add nfs tank/projects -o path=/projects -o squash=none"
wait_until '! poolhouse share status --json | grep "\"problem\": \""'
run "poolhouse share list"
random_file holiday.raw 20
smb="smbclient -A login -p $smb_port //127.0.0.1"
nfs="nfs://127.0.0.1/projects/garden.html?version=3&nfsport=$nfs_port&mountport=$nfs_port"
run "$smb/photos -c 'put holiday.raw'"
check "anna's photo is in the pool" "cmp holiday.raw files/photos/holiday.raw"
refused "$smb/media -c 'put holiday.raw'"
echo '<h1>The garden</h1>' >garden.html
run "nfs-cp garden.html '$nfs'"
check "the project is in the pool" "cmp garden.html files/projects/garden.html"

section copies
say "The second box: two larger drives, its own daemon."
drive b1 6000M && drive b2 6000M
box2="--state $work/state2"
run "poolhouse zpool create $box2 -m none -R $work/files2 backup mirror b1 b2"
cat >ssh <<'END'
#!/bin/sh
# in the place of ssh: runs the command with the daemon of the second box, unless that is away
[ ! -e "${0%/*}/away" ] || { echo "ssh: connect to host box2 port 22: No route to host" >&2; exit 255; }
while [ "$1" != -- ]; do shift; done
eval "set -- $3"
exec poolhouse "$@" --state "${0%/*}/state2"
END
chmod +x ssh
cat >>state/config.toml <<END

[[policy]]                  # which snapshots are taken and kept
dataset = "tank/photos"
daily = 3

[[replica]]                 # and where they are copied to
name = "offsite"
source = "tank/photos"
target = "ssh://anna@box2/backup/photos"
every = "daily"
ssh = ["$work/ssh"]
END
run "tail -n 11 state/config.toml"
wait_until 'poolhouse config show | grep offsite'
say "The daemon does both by the clock; these two commands do them now."
quiet "poolhouse policy run"
quiet "poolhouse replicate run offsite"
snapshots() { poolhouse zfs list -Ho name -s creation -t snapshot "$@" | sed 's/.*@//'; }
copied() { [[ $(snapshots tank/photos) == $(snapshots $box2 backup/photos) ]]; }
check "the second box has every snapshot" copied

section away
say "The second box is away for a week. Each day has its snapshot; three are kept, if there are copies of them."
touch away
for day in 1 2 3 4 5 6 7; do
  random_file files/photos/day$day.raw 1
  poolhouse zfs snapshot tank/photos@autosnap_2012-06-0${day}_00:00:00_daily
done
cp files/photos/day3.raw day3.raw
refused "poolhouse replicate run offsite"
quiet "poolhouse policy run"
check "no snapshot of the week was destroyed" '[[ $(snapshots tank/photos | grep -c 2012-06-0) == 7 ]]'
check "the status tells that seven have no copy" \
  '(poolhouse replicate status --json || true) | grep "\"missing\": 7"'
say "It is back: one run brings what it missed, and then only what the policy keeps is kept here."
rm away
quiet "poolhouse replicate run offsite"
check "the second box has the whole week" '[[ $(snapshots $box2 backup/photos | grep -c 2012-06-0) == 7 ]]'
quiet "poolhouse policy run"
check "three snapshots are kept here" '[[ $(snapshots tank/photos | wc -l) == 3 ]]'

section restore
say "One file, as it was on the third day, from the second box."
rm files/photos/day3.raw
run "poolhouse zfs set $box2 mountpoint=/photos backup/photos"
run "cp files2/photos/.zfs/snapshot/autosnap_2012-06-03_00:00:00_daily/day3.raw files/photos/"
check "the file is what it was" "cmp day3.raw files/photos/day3.raw"
say "And everything: a whole file system comes back with one command."
run "poolhouse zfs send $box2 backup/photos@autosnap_2012-06-07_00:00:00_daily |
  poolhouse zfs receive -o mountpoint=/restored tank/restored"
check "all files of that day are there" "diff -r files/photos files/restored"
run "poolhouse zfs list -o name,mountpoint"

section encrypted
say "Letters are encrypted. The second box gets them as they are on the drives, and never has their key."
(umask 077 && printf 'correct horse battery staple' >letters.key)
run "poolhouse zfs create -o mountpoint=/letters -o encryption=on -o keyformat=passphrase -o keylocation=file://$work/letters.key tank/letters"
echo 'my will: the cat inherits' >files/letters/will
cat >>state/config.toml <<END

[[replica]]
name = "letters"
source = "tank/letters"
target = "ssh://anna@box2/backup/letters"
every = "daily"
ssh = ["$work/ssh"]
END
wait_until 'poolhouse config show | grep box2/backup/letters'
run "poolhouse zfs snapshot tank/letters@monday"
quiet "poolhouse replicate run letters"
run "poolhouse zfs get $box2 -o property,value encryption,keystatus backup/letters"
say "The copy comes back as it went, and opens with the key at home."
run "poolhouse zfs send $box2 -w backup/letters@monday | poolhouse zfs receive -u tank/returned"
run "poolhouse zfs load-key -L file://$work/letters.key tank/returned"
run "poolhouse zfs set mountpoint=/returned tank/returned"
check "the letter is what it was" "cmp files/letters/will files/returned/will"

section macs
say "Macs back up by Time Machine, each user's to a file system of its own with a quota."
run "poolhouse zfs create -o mountpoint=/timemachine tank/timemachine"
run "poolhouse timemachine add anna tank/timemachine/anna --quota 200M"
wait_until '! poolhouse share status --json | grep "\"problem\": \""'
run "poolhouse zfs list -o name,refquota,mountpoint tank/timemachine/anna"
random_file band0 60
random_file band1 160
into="cd mac.sparsebundle/bands"
quiet "$smb/timemachine-anna -c 'mkdir mac.sparsebundle; mkdir mac.sparsebundle/bands; $into; put band0'"
check "the backup is in the pool" 'cmp band0 files/timemachine/anna/mac.sparsebundle/bands/band0'
say "A Mac cannot fill the pool: its quota is the size of its disk."
poolhouse zpool sync tank
refused "$smb/timemachine-anna -c '$into; put band1'"
if ((EUID == 0)); then # a second user needs a second user of the system
  poolhouse user add ben --system-user daemon <password >/dev/null
  poolhouse timemachine add ben tank/timemachine/ben --quota 100M >/dev/null
  (umask 077 && printf 'username = ben\npassword = password of anna\n' >login2)
  wait_until "smbclient -A login2 -p $smb_port //127.0.0.1/timemachine-ben -c 'put band0'"
  cmp band0 files/timemachine/ben/band0
  ! smbclient -A login -p "$smb_port" //127.0.0.1/timemachine-ben -c 'get band0 stolen' >/dev/null
fi
say "The copies are on the second box. The drives at home are lost; the whole Mac comes back from there."
run "poolhouse config add replica name=macs source=tank/timemachine target=ssh://anna@box2/backup/timemachine every=daily \\
  ssh='[\"$work/ssh\"]'"
run "poolhouse zfs snapshot -r tank/timemachine@night"
quiet "poolhouse replicate run macs"
run "poolhouse zfs send $box2 backup/timemachine/anna@night | poolhouse zfs receive -o mountpoint=/mac tank/mac"
check "the whole Mac is what it was" 'diff -r files/timemachine/anna files/mac'
