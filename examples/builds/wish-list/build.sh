#!/usr/bin/env bash
# The wish list (2015): a raidz2 that grows, by larger drives, a second vdev, and one drive at a time; drives that are
# taken away; and no space lost by a wrong width. What can be done, and what is refused.
#
#   examples/builds/wish-list/build.sh [PROGRAM]
source "$(dirname "$0")/../lib.sh"

section plan
say "Are there wrong widths? With records of 128 KiB some widths lose a few percent; with 1 MiB it is 1 % at most."
echo '$ for width in 6 7 8 9 10 11 12; do poolhouse plan --drives ${width}x4TB --layout "raidz2 $width"; done'
echo 'width  records   data     parity   padding'
for width in 6 7 8 9 10 11 12; do
  poolhouse plan --drives ${width}x4TB --layout "raidz2 $width" |
    awk -v width=$width '$1 == "128K" || $1 == "1M" {printf "%5d  %7s  %5s %%  %5s %%  %5s %%\n", width, $1, $2, $4, $6}'
done
padding() { # WIDTH RECORDS: tenths of a percent
  poolhouse plan --drives "$1x4TB" --layout "raidz2 $1" | awk -v records="$2" '$1 == records {print 10 * $6}'
}
check "no width of 6 to 12 pads records of 1 MiB by more than 1 %" \
  'for width in {6..12}; do (( $(padding $width 1M) <= 10 )) || exit 1; done'
say "Twelve drives in one raidz2, or in two of six: the second one can be added later."
run "poolhouse plan --drives 12x4TB --layout 'raidz2 12' --layout 'raidz2 6 raidz2 6' | sed -n 1,3p"

section grow
for number in {01..12}; do drive d$number 1000M; done
run "poolhouse zpool create -m none -o autoexpand=on -R $work/files tank raidz2 d{01..06}"
run "poolhouse zfs create -o mountpoint=/data tank/data"
random_file files/data/old 200
sha256sum <files/data/old >old.sha256
say "Six larger drives take the place of the six, one after the other; the pool grows with the last one."
for number in {01..06}; do
  drive e$number 2000M
  run "poolhouse zpool replace -w tank $work/d$number e$number"
done
run "poolhouse zpool list -o name,size,health"
check "the pool has grown to twice its size" '(( $(poolhouse zpool list -Hpo size tank) > 11000000000 ))'
say "Six more drives as a second raidz2."
rm d0[1-6]
for number in {01..06}; do drive f$number 2000M; done
run "poolhouse zpool add tank raidz2 f{01..06}"
run "poolhouse zpool list -o name,size,health"
check "old files are what they were" '[[ $(sha256sum <files/data/old) == $(cat old.sha256) ]]'
say "Old data stay on the first vdev. A copy spreads them over both, by the free space of each."
run "cp files/data/old files/data/new"
run "poolhouse zpool sync tank"
alloc() { poolhouse zpool list -v -Hp -o name,alloc tank | awk -v name="$1" '$1 == name {print $2}'; }
check "the copy is on both vdevs" '(( $(alloc raidz2-1) > 100000000 ))'

section expand
say "A raidz2 of six drives becomes one of twelve, one drive at a time, with its data in place."
for number in {01..12}; do drive w$number 1000M; done
run "poolhouse zpool create -m none -R $work/files wide raidz2 w{01..06}"
run "poolhouse zfs create -o mountpoint=/wide -o recordsize=1M wide/data"
random_file files/wide/old 100
sha256sum <files/wide/old >old.sha256
run "poolhouse zpool sync wide"
wide_alloc() { poolhouse zpool list -Hpo alloc wide; }
before=$(wide_alloc)
for number in {07..12}; do run "poolhouse zpool attach -w wide raidz2-0 w$number"; done
run "poolhouse zpool list -v -o name,size,health wide"
check "old files are what they were" '[[ $(sha256sum <files/wide/old) == $(cat old.sha256) ]]'
say "Old blocks keep two blocks of parity for four of data. Written anew, they have two for ten."
run "poolhouse zfs rewrite files/wide/old"
run "poolhouse zpool sync wide"
check "the file takes at least a tenth less" '(( $(wide_alloc) * 10 <= before * 9 ))'
check "and is what it was" '[[ $(sha256sum <files/wide/old) == $(cat old.sha256) ]]'
run "poolhouse zpool scrub -w wide"
check "the scrub finds no error" 'poolhouse zpool status wide | grep "with 0 errors"'

section remove
say "Drives can be taken away from a pool of single drives or mirrors: here one of three mirrors."
for number in {1..6}; do drive m$number 1000M; done
run "poolhouse zpool create -m none -R $work/files pairs mirror m1 m2 mirror m3 m4 mirror m5 m6"
run "poolhouse zfs create -o mountpoint=/pairs pairs/data"
random_file files/pairs/kept 100
sha256sum <files/pairs/kept >kept.sha256
run "poolhouse zpool remove -w pairs mirror-1"
run "poolhouse zpool list -o name,size,health pairs"
check "nothing is lost" '[[ $(sha256sum <files/pairs/kept) == $(cat kept.sha256) ]]'

section refused
say "A raidz cannot be taken out of a pool, as in OpenZFS."
refused "poolhouse zpool remove tank raidz2-1"
say "There is no fourth parity."
refused "poolhouse zpool create more raidz4 w{07..12}"
check "nothing came of it" 'pool_is tank ONLINE && ! poolhouse zpool list more'
