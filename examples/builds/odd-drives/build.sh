#!/usr/bin/env bash
# Odd drives in a small box (2011): three drives of 3 TB and three of 2 TB become a raidz2 of six slices of 2 TB; the
# third terabytes are pools of their own. One drive fails its self-test, is wiped, checked, and put back.
#
#   examples/builds/odd-drives/build.sh [PROGRAM]
source "$(dirname "$0")/../lib.sh"

section plan
say "raidz or raidz2? The smallest of six drives sets what each gives."
run "poolhouse plan --drives 3x3TB,3x2TB --layout 'raidz 6' --layout 'raidz2 6' | sed -n 1,3p"
say "Whole drives, or slices of 2 TB? raidz2 gives the same; the third terabytes are left for pools of their own."
run "poolhouse plan --drives 3x3TB,3x2TB --layout 'raidz2 6' | grep -E 'zfs list|odd sizes|usable of raw'"
run "poolhouse plan --drives 6x2TB --layout 'raidz2 6' | grep -E 'zfs list|usable of raw'"
run "poolhouse plan --drives 1x1TB --layout 'stripe 1' | grep -E 'zfs list'"
say "ashift 9 or 12? Small records pay for large sectors; 128 KiB on a raidz2 of six does not."
run "poolhouse plan --ashift 9 --drives 6x2TB --layout 'raidz2 6' | grep -E 'zfs list|records|  4K|128K '"
run "poolhouse plan --ashift 12 --drives 6x2TB --layout 'raidz2 6' | grep -E 'zfs list|records|  4K|128K '"

if measuring; then
  figures array
  say "The tables of 2011: one drive, raidz, raidz2, slices; sectors of 512 bytes and of 4 KiB."
  for drive in d1 d2 d3 d4 d5 d6; do drive $drive 2000M; done
  table="grep -E '^ +(stripe|raidz)|^(sequential|write|read|scrub|resilver)'"
  workloads='--size 32M --seconds 0.2 --files 20 --only write-1m-q1,read-1m-q1 -q'
  run "poolhouse bench array d1 --layout stripe --ashift 9,12 $workloads | $table"
  run "poolhouse bench array d[1-6] --layout raidz --ashift 9,12 $workloads | $table"
  run "poolhouse bench array d[1-6] --layout raidz2 --ashift 9,12 $workloads | $table"
  run "poolhouse bench array d[1-6] --layout raidz2 --parts whole,1M,32256 $workloads | $table"
  rm d[1-6]
fi

section pool
say "A file stands for each slice: 2 TB of all six drives, and 1 TB more of the large ones."
mkdir slices rest
for name in a b c d e f; do drive slices/$name-2TB 2000M; done
for name in a b c; do drive rest/$name-1TB 1000M; done
simulate_smartctl slices/*-2TB
say "All drives have sectors of 4 KiB, though some say 512: ashift=12. A vdev keeps its ashift for life."
run "poolhouse zpool create -o ashift=12 -R $work/files tank raidz2 slices/[a-f]-2TB"
for name in a b c; do
  run "poolhouse zpool create -o ashift=12 -m none scratch-$name rest/$name-1TB"
done
run "poolhouse zpool list -o name,size,health"
random_file files/tank/photos 100
(cd files/tank && sha256sum photos) >photos.sha256
check "any two of the six drives may fail: 4/6 of 11.7 GiB are usable" \
  '(( $(poolhouse zfs list -Hpo avail tank) > 7500000000 ))'

section failure
say "A drive fails its self-test. The daemon reads drives every half hour; this command reads them now."
smart_report slices/e-2TB failed
wait_until 'poolhouse drives list --now | grep "e-2TB.*tank.*failing"'
finds "poolhouse drives list | grep -E 'BAY|2TB'"
say "It is taken out of service; the pool goes on without it."
run "poolhouse zpool offline tank $work/slices/e-2TB"
check "the pool is degraded" 'pool_is tank DEGRADED'
random_file files/tank/more 20
sync files/tank/more
say "It is wiped, and checks itself over its whole surface; this time the test passes."
run "poolhouse zpool labelclear -f slices/e-2TB"
run "poolhouse drives test --long e-2TB"
smart_report slices/e-2TB
check "its newest self-test passed" "poolhouse drives list --now | grep 'e-2TB.*ok'"
say "It is put back in its own place, and gets all that it held, and what it missed."
run "poolhouse zpool replace -w tank $work/slices/e-2TB"
run "poolhouse zpool status tank"
check "the pool is whole again" 'pool_is tank ONLINE'
check "the files are what they were" '(cd files/tank && sha256sum -c "$work/photos.sha256")'
say "Any two drives may fail. Without two others everything is read with the help of the one that came back."
run "poolhouse zpool export tank"
run "rm slices/a-2TB slices/b-2TB"
quiet "poolhouse rescue get -q -d slices tank:/ rescued"
check "without two drives every byte is right" '(cd rescued && sha256sum -c "$work/photos.sha256")'
