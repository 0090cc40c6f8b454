# More commands that tests/it/words.rs compares with OpenZFS, most of which it refuses. See situations.sh.
truncate -s 256M a b c d e f g h l s
D=$PWD
run zpool nonsense
run zfs nonsense
run zpool status -Z
run zfs list -Z
run zpool get
run zpool set
run zpool create
run zpool create tank
run zpool add
run zpool add tank
run zpool attach
run zpool attach tank
run zpool attach tank $D/a
run zpool detach
run zpool detach tank
run zpool replace
run zpool replace tank
run zpool offline
run zpool offline tank
run zpool online
run zpool online tank
run zpool clear
run zpool scrub
run zpool trim
run zpool initialize
run zpool destroy
run zpool export
run zpool remove
run zpool remove tank
run zpool split
run zpool split tank
run zpool reguid
run zpool labelclear
run zpool wait
run zpool upgrade -V 99 tank
run zfs create
run zfs create -V
run zfs destroy
run zfs get
run zfs get all nopool
run zfs set
run zfs set compression=on
run zfs set compression tank
run zfs inherit
run zfs inherit compression
run zfs snapshot
run zfs rollback
run zfs clone
run zfs clone tank@x
run zfs promote
run zfs rename
run zfs rename tank
run zfs bookmark
run zfs hold
run zfs hold keep
run zfs holds
run zfs release
run zfs release keep
run zfs send
run zfs receive
run zfs diff
run zfs allow
run zfs unallow
run zfs mount tank
run zfs unmount
run zfs share
run zfs unshare
run zfs load-key
run zfs unload-key
run zfs change-key
run zfs wait
run zfs userspace
run zfs project
run zpool create -O canmount=off tank raidz $D/a $D/b $D/c
run zpool status
run zpool list -v tank
run zpool list -P -v tank
run zpool list -p -H -o name,readonly,multihost tank
run zpool list -o nonsense tank
run zpool get guid,version,bootfs nopool
run zpool get -p ashift,readonly tank
run zpool get feature@async_destroy,feature@lz4_compress,feature@encryption tank
run zpool get feature@nothere tank
run zpool get -H -o name,property,source comment,cachefile tank
run zpool get -o nonsense health tank
run zpool set feature@encryption=disabled tank
run zpool set feature@nothere=enabled tank
run zpool set cachefile=relative tank
run zpool set bootfs=tank/nothere tank
run zpool set readonly=on tank
run zpool set autotrim=maybe tank
run zpool set org.test:note=word tank
run zpool get org.test:note tank
run zpool set org.test:note= tank
run zpool set comment=$(printf 'x%.0s' $(seq 40)) tank
run zpool upgrade tank
run zpool upgrade
run zpool scrub tank
run zpool wait -t scrub tank
run zpool status tank
run zpool scrub -p tank
run zpool scrub -s -p tank
run zpool trim -w tank
run zpool trim -c tank
run zpool initialize tank
run zpool initialize -c tank
run zpool initialize -s tank
run zpool initialize tank $D/nothere
run zpool status -i tank
run zpool wait -t nonsense tank
run zpool resilver nopool
run zpool reopen nopool
run zpool reguid nopool
run zpool split tank other
run zpool attach tank $D/a $D/d
run zpool detach tank $D/a
run zpool remove tank $D/a
run zpool remove tank raidz1-0
run zpool remove tank mirror-9
run zpool add -n tank mirror $D/d $D/e
run zpool add tank mirror $D/d $D/e
run zpool add -n tank log $D/l
run zpool add tank cache $D/s
run zpool status -L tank
run zpool iostat tank
run zpool iostat -v tank
run zpool iostat nopool
run zpool remove tank $D/s
run zpool offline -t tank $D/b
run zpool status tank
run zpool status -x
run zpool offline tank $D/c
run zpool online -e tank $D/b
run zpool clear tank $D/b
run zpool wait -t resilver tank
run zpool replace tank $D/c $D/c
run zpool replace tank $D/c $D/f
run zpool wait -t replace tank
run zpool status tank
run zpool events -c
run zpool history -x tank
run zfs create -o canmount=off -o quota=20M -o reservation=5M tank/q
run zfs set reservation=30M tank/q
run zfs set refreservation=50M tank/q
run zfs set refquota=10M tank/q
run zfs set quota=1K tank/q
run zfs set reservation=10T tank/q
run zfs set volsize=8M tank/q
run zfs set type=volume tank/q
run zfs set mountpoint=relative tank/q
run zfs set snapdir=maybe tank/q
run zfs set canmount=maybe tank/q
run zfs set recordsize=512 tank/q
run zfs set recordsize=32M tank/q
run zfs set version=1 tank/q
run zfs set utf8only=on tank/q
run zfs set used=1 tank/q
run zfs set org.test:note=word tank/q
run zfs get org.test:note tank/q
run zfs get -s local,inherited -r org.test:note tank
run zfs inherit org.test:note tank/q
run zfs inherit used tank/q
run zfs inherit quota tank/q
run zfs inherit -S compression tank/q
run zfs set userquota@root=10M tank/q
run zfs get userquota@root,groupquota@root tank/q
run zfs get userused@nobody tank/q
run zfs get written@nothere tank/q
run zfs snapshot tank/q@one tank/q@two
run zfs snapshot tank/q@one
run zfs snapshot tank/q@two
run zfs set snapshot_limit=2 tank/q
run zfs get -H -o value snapshot_count,snapshot_limit tank/q
run zfs snapshot tank/q@three
run zfs set snapshot_limit=none tank/q
run zfs snapshot tank/q@one tank/nopool@one
run zfs snapshot tank/q@bad@name
run zfs snapshot tank/q
run zfs get -H -o value written@one,snapshot_limit tank/q
run zfs list -t snapshot -o name,used,clones,userrefs tank/q@one
run zfs list -s name -S used -t snapshot tank/q
run zfs list -d 0 tank
run zfs list -d 1 -o name tank
run zfs list -t nonsense
run zfs list -o nonsense
run zfs list -t filesystem tank/q@one
run zfs get -t nonsense all tank
run zfs get -o nonsense all tank
run zfs get nonsense tank
run zfs get type,creation nopool@x
run zfs get -H -o name,property,value,source readonly,exec,setuid,devices,atime,relatime,sync,logbias tank/q
run zfs rollback tank/q@one
run zfs rollback -r tank/q@one
run zfs destroy tank/q@one%two
run zfs destroy -nv tank/q@one
run zfs destroy -nv tank/q
run zfs destroy -nr tank/q
run zfs clone tank/q@one nopool/x
run zfs clone tank/q@one tank/q
run zfs clone -o canmount=off tank/q@one tank/c
run zfs list -o name,origin,used tank/c
run zfs destroy -r tank/q
run zfs destroy tank/q@one
run zfs destroy -nvR tank/q@one
run zfs rename tank/q@one tank/q@uno
run zfs rename tank/q@uno tank/c@uno
run zfs rename -r tank/q@uno tank/q@one
run zfs rename tank/q tank/q/below
run zfs rename -p tank/c tank/x/y/c
run zfs rename tank other
run zfs promote tank/x/y/c
run zfs promote tank/q@one
run zfs bookmark tank/x/y/c@one tank/x/y/c#m
run zfs bookmark tank/x/y/c#m tank/x/y/c#n
run zfs bookmark tank/x/y/c@one tank/q#m
run zfs destroy tank/x/y/c#m
run zfs destroy tank/x/y/c#nothere
run zfs list -t bookmark -o name tank/x/y/c
run zfs hold -r keep tank/x/y/c@one
run zfs holds -H tank/x/y/c@nothere
run zfs release -r nothere tank/x/y/c@one
run zfs destroy -d tank/x/y/c@one
run zfs release -r keep tank/x/y/c@one
run zfs allow nobody create,mount,snapshot tank
run zfs allow tank
run zfs allow -e hold tank
run zfs allow -s @set destroy,rename tank
run zfs allow -c create tank
run zfs allow tank
run zfs allow nobody nonsense tank
run zfs unallow nobody tank
run zfs unallow -s @set tank
run zfs allow tank
run zfs send -n tank/x/y/c@one
run zfs send -nv tank/x/y/c@one
run zfs send -nP tank/x/y/c@one
run zfs send -i one tank/x/y/c@nothere
run zfs send -i tank@nothere tank/x/y/c@one
run zfs send -R tank/x/y/c
run zfs receive tank/new
run zfs receive -A tank/q
run zfs send -t nonsense
run zfs mount -a
run zfs unmount tank/q
run zfs unmount $D/nothere
run zfs share tank/q
run zfs unshare tank/q
run zfs load-key tank/q
run zfs unload-key tank/q
run zfs change-key tank/q
run zfs create -o encryption=on tank/e
run zfs create -o keyformat=passphrase tank/e
run zfs wait tank/q
run zfs userspace tank/nothere
run zfs project tank/nothere
