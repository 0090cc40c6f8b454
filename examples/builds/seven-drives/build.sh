#!/usr/bin/env bash
# $1320, seven drives (2008): a 7-wide raidz of 750 GB drives. Which drive is slow, which ports share a bus, and which
# part of the drives' speed reaches the files?
#
#   examples/builds/seven-drives/build.sh [PROGRAM]
#
# nbdkit limits the speed of the drives to a quarter of those of 2008.
source "$(dirname "$0")/../lib.sh"

section plan
say "Seven drives that stream 81 MB/s: raidz, or no redundancy at all?"
run "poolhouse plan --drives 7x750GB --drive-speed 81MB --layout 'raidz 7' --layout 'stripe 7' | sed -n 1,3p"
check "striped, seven drives stream 567 MB/s" \
  "poolhouse plan --drives 7x750GB --drive-speed 81MB --layout 'stripe 7' | grep 'read 567 MB/s'"

measuring || exit 0
need nbdkit nbdkit
need nbdfuse libnbd-bin

figures drives
say "Five drives at ports of their own, and two at one that carries hardly more than one of them. Drive d5 is worn."
for name in d1 d2 d3 d4 d5 d6 d7; do drive $name 750M; done
for name in d1 d2 d3 d4; do port $name 162M 0 $name; done
port d5 80M 0 d5
port shared 174M 0 d6 d7
run "poolhouse bench disk dev/d[1-7] --seconds 0.5 --zones 2 -q -o drives.json"
check "the slow drive is named" 'grep "dev/d5 reads" drives.json'
check "the drives of the shared port are named" 'grep "While all are read, dev/d6 .* and dev/d7 " drives.json'

figures pool
say "The five good ports alone, as a raidz and striped: what of the drives' speed reaches files?"
run "poolhouse bench array dev/d[1-46] --layout raidz,stripe --size 48M --seconds 1 --files 20 --only write-1m-q1,read-1m-q1 \\
  -q -o pools | grep -E '^ +raidz|^sequential'"
run "poolhouse bench plan pools/raidz1-5-ashift-12.json drives.json | head -5"
run "poolhouse bench plan pools/stripe-5-ashift-12.json drives.json | head -5"

figures iostat
say "The five in a pool, while a film of 60 MB is written: each drive has its share, and the slowest would show."
run "poolhouse zpool create -m none -R $work/files tank raidz dev/d[1-46]"
run "poolhouse zfs create -o mountpoint=/films -o recordsize=1M tank/films"
random_file film 60
(cp film files/films/film && poolhouse zpool sync tank) &
copy=$!
run "poolhouse zpool iostat -v -y tank 2 1"
wait "$copy"
check "the film is there" 'cmp film files/films/film'
