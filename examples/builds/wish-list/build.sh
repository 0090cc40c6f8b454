#!/usr/bin/env bash
# The wish list (2015): a raidz2 of six that grows, loses drives, and never wastes space by a wrong width. What can be
# done, and what is refused.
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

section refused
say "A raidz cannot be taken out of a pool, as in OpenZFS."
refused "poolhouse zpool remove tank raidz2-1"
say "There is no fourth parity."
refused "poolhouse zpool create more raidz4 d{07..12}"
check "nothing came of it" 'pool_is tank ONLINE && ! poolhouse zpool list more'
