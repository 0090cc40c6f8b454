# The commands that tests/it/words.rs compares with OpenZFS. `run` prints a command, what it said and its exit status.
# The recording in openzfs-2.3.2.txt is what this script printed in a directory with OpenZFS's zpool and zfs.
truncate -s 256M a b c d e f g h l s
D=$PWD
run zpool status
run zpool list
run zpool list -H
run zfs list
run zpool create -O canmount=off tank mirror $D/a $D/b
run zpool status
run zpool status tank
run zpool status -x
run zpool status -x tank
run zpool status -s
run zpool status -D
run zpool status -t
run zpool status -i
run zpool status -e
run zpool list
run zpool list tank
run zpool list -v
run zpool list -H -o name,health,altroot
run zpool list -o name,dedup,frag,cap
run zpool get size,free,health nopool
run zpool get health,altroot,readonly tank
run zpool get -H -o value failmode,autotrim,comment tank
run zpool get -H autoexpand,autoreplace,delegation,listsnapshots,multihost,ashift,bootfs,compatibility,cachefile tank
run zpool get nonsense: tank
run zpool iostat
run zpool iostat -v
run zpool iostat -l
run zfs create -o canmount=off tank/fs
run zfs create -o canmount=off tank/fs
run zfs create -V 8M tank/vol
run zfs create -V 8M tank/vol
run zfs create -V 9000 tank/vol2
run zfs create -o canmount=off tank/a/b/c
run zfs create -o canmount=off nopool/x
run zfs create tank
run zfs create -o canmount=off tank/vol/below
run zfs create -o compression=nonsense tank/x
run zfs create -o quota=abc tank/x
run zfs create -o nonsense=1 tank/x
run zfs create -o recordsize=3000 tank/x
run zfs create tank/-bad
run zfs create tank//x
run zfs create tank/x/
run zfs create 'tank/x*'
run zfs snapshot tank/fs@one
run zfs snapshot tank/fs@one
run zfs snapshot tank/nothere@one
run zfs snapshot -r tank@two
run zfs list
run zfs list -t all
run zfs list -t snapshot
run zfs list -r tank/fs
run zfs list -o name,type,used,usedsnap tank
run zfs list -o name,compression,sync,checksum tank
run zfs list -o name,quota,reservation,recordsize,atime tank/fs
run zfs list -H -o name,mounted,origin tank/fs
run zfs list nopool
run zfs list tank/nothere
run zfs list tank@nothere
run zfs get compression,atime,quota tank/fs
run zfs get -r compression tank
run zfs get -s local all tank/fs
run zfs get -H -o name,property,value type,copies tank/vol
run zfs get used nopool
run zfs get used tank/nothere
run zfs set compression=nonsense tank/fs
run zfs set quota=abc tank/fs
run zfs set atime=maybe tank/fs
run zfs set copies=7 tank/fs
run zfs set recordsize=3000 tank/fs
run zfs set readonly=on tank/nothere
run zfs set compression=lz4 tank/fs
run zfs inherit compression tank/fs
run zfs inherit compression tank/nothere
run zfs bookmark tank/fs@one tank/fs#mark
run zfs bookmark tank/fs@nothere tank/fs#mark2
run zfs bookmark tank/fs@one tank/fs#mark
run zfs list -t bookmark
run zfs hold keep tank/fs@one
run zfs hold keep tank/fs@one
run zfs holds tank/fs@one
run zfs holds tank/nothere@one
run zfs destroy tank/fs@one
run zfs release other tank/fs@one
run zfs release keep tank/fs@one
run zfs clone tank/fs@one tank/clone
run zfs clone tank/fs@nothere tank/clone2
run zfs clone tank/fs@one tank/clone
run zfs destroy tank/fs@one
run zfs destroy tank/fs
run zfs promote tank/fs
run zfs promote tank/nothere
run zfs promote tank/clone
run zfs promote tank/fs
run zfs rename tank/fs tank/clone
run zfs rename tank/nothere tank/other
run zfs rename tank/fs nopool/fs
run zfs rename tank/fs tank/not/there
run zfs rollback tank/fs@nothere
run zfs destroy tank
run zfs destroy tank/nothere
run zfs destroy tank/fs@nothere
run zfs unmount tank/nothere
run zfs mount tank/nothere
run zfs mount tank/vol
run zfs send tank/fs@nothere
run zfs send -nv tank@nothere
run zfs diff tank@nothere
run zfs allow tank
run zfs groupspace tank/nothere
run zpool add tank $D/c
run zpool add tank mirror $D/c
run zpool add tank mirror $D/a $D/c
run zpool add tank log $D/l
run zpool add tank spare $D/s
run zpool status
run zpool list -v
run zpool add tank spare $D/s
run zpool create tank $D/d
run zpool create other $D/a
run zpool create mirror $D/d
run zpool create 9tank $D/d
run zpool create log $D/d
run zpool create 'ta*nk' $D/d
run zpool create other mirror $D/d
run zpool create other raidz3 $D/d $D/e
run zpool create other $D/nothere
run zpool create -o ashift=99 other $D/d
run zpool create -o nonsense=1 other $D/d
run zpool create -O nonsense=1 other $D/d
run zpool offline tank $D/nothere
run zpool offline nopool $D/a
run zpool offline tank $D/b
run zpool offline tank $D/a
run zpool status
run zpool status -x
run zpool list
run zpool detach tank $D/a
run zpool online tank $D/b
run zpool online tank $D/nothere
run zpool detach tank $D/l
run zpool detach tank $D/nothere
run zpool attach tank $D/nothere $D/c
run zpool attach tank $D/a $D/a
run zpool replace tank $D/nothere $D/c
run zpool remove tank $D/nothere
run zpool remove tank $D/s
run zpool remove tank $D/l
run zpool clear tank $D/nothere
run zpool clear nopool
run zpool scrub nopool
run zpool scrub -s tank
run zpool scrub -w tank
run zpool status
run zpool set nonsense=1 tank
run zpool set ashift=99 tank
run zpool set failmode=maybe tank
run zpool set size=1 tank
run zpool set comment=box tank
run zpool get comment tank
run zpool destroy nopool
run zpool export nopool
run zpool import nopool -d $D/
run zpool history nopool
run zpool checkpoint tank
run zpool checkpoint tank
run zpool checkpoint -d -w tank
run zpool checkpoint -d tank
run zpool list -j -o name,health
run zfs list -j -o name,mounted tank/clone
run zfs get -j compression tank/clone
run zpool get -j health,failmode tank
run zpool status nopool
run zpool list nopool
run zpool export tank
run zpool import -d $D/
run zpool import -d $D/ tank
run zpool destroy tank
run zpool import -d $D/
run zpool import -D -d $D/
run zpool labelclear $D/d
run zpool create -O canmount=off z2 raidz2 $D/c $D/d $D/e $D/f
run zpool list -v
run zpool offline z2 $D/c $D/d
run zpool offline z2 $D/e
run zpool status
run zpool remove z2 $D/c
run zpool add z2 $D/g
run zpool destroy z2
