# The kernel's NFS client with versions 3, 4.0, 4.1 and 4.2.
nfs_port=2049
# shellcheck disable=SC2154 # of clients.sh
nfs_dir=$work/files/tank/nfs

nfs_serve() { # PORT
  poolhouse zfs create -o acltype=nfsv4 tank/nfs
  poolhouse zfs create tank/nfs/child
  mkdir "$nfs_dir/many"
  (cd "$nfs_dir/many" && seq -f 'entry-%05g' 10000 | xargs touch)
  poolhouse zfs snapshot tank/nfs@before
  poolhouse config set nfs.listen "$1"
  # clients of 4.0 do not say that they have reclaimed all: a restart takes the time of a lease
  poolhouse config set nfs.lease 30
  poolhouse share add nfs tank/nfs -o path=/nfs -o squash=none
  poolhouse share add nfs tank/nfs/child -o path=/nfs/child -o squash=none
}

# Restarts the daemon when a client asks for it by a file.
nfs_beside() {
  while true; do
    until [[ -e $nfs_dir/restart ]]; do sleep 0.5; done
    rm "$nfs_dir/restart"
    poolhouse serve --stop
    poolhouse share status
    touch "$nfs_dir/restarted"
  done
}

nfs_mount() { # VERSION DIRECTORY
  mkdir -p "$2"
  local options=vers=$1,hard,port=2049
  [[ $1 != 3 ]] || options+=,nolock,proto=tcp,mountproto=tcp,mountport=2049
  mount -t nfs -o "$options" 10.0.2.100:/nfs "$2"
}

nfs_check_files() { # VERSION: in a directory of its own
  head -c 8M /dev/urandom >/tmp/data
  dd if=/tmp/data of=data bs=1M conv=fsync status=none
  for number in $(seq 60); do
    echo "$number" >"file $number ü"
    mv "file $number ü" "moved $number"
  done
  rm moved\ ?
  [[ $(ls | wc -l) == 52 ]]
  echo 3 >/proc/sys/vm/drop_caches
  cmp /tmp/data data
  cp --reflink=auto data copy
  cmp data copy
  truncate -s 20M sparse
  echo end | dd of=sparse bs=1 seek=15000000 conv=notrunc status=none
  cp --sparse=always sparse copy
  cmp sparse copy
  ln data hard
  ln -s data soft
  mkfifo pipe
  [[ $(stat -c %h data) == 2 && $(readlink soft) == data && -p pipe ]]
  chmod 640 data
  chown 12:34 data
  touch -d '2001-02-03 04:05:06.789' data
  [[ $(stat -c '%a %u %g %y' hard) == '640 12 34 2001-02-03 04:05:06.789'* ]]
  python3 -c '
import os
f = os.open("x", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
os.unlink("x")
os.write(f, b"unlinked")
assert os.pread(f, 9, 0) == b"unlinked"
a = os.open("append", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
for number in range(10):
    os.write(a, b"%d" % number)
os.truncate("append", 5)
assert open("append").read() == "01234"
'
}

nfs_check_v42() {
  cp --reflink=always data clone
  cmp data clone
  python3 -c '
import os, ctypes
f = os.open("sparse", os.O_RDWR)
assert os.lseek(f, 0, os.SEEK_HOLE) == 0 and 0 < os.lseek(f, 0, os.SEEK_DATA) <= 15000000
os.setxattr("sparse", "user.colour", b"red")
assert os.getxattr("sparse", "user.colour") == b"red" and "user.colour" in os.listxattr("sparse")
os.removexattr("sparse", "user.colour")
'
  fallocate -l 30M sparse
  fallocate -p -o 14M -l 2M sparse
  [[ $(stat -c %s sparse) == $((30 << 20)) ]]
  nfs4_setfacl -a A::1000:RW data
  nfs4_getfacl data | grep -q '^A::1000:r'
}

nfs_check_many() { # the names of a large directory change under its reader
  python3 -c '
import os
names = os.listdir("many")
assert len(names) == len(set(names)) == 10000, len(names)
reader = os.scandir("many")
seen = [next(reader).name for _ in range(100)]
for number in range(1, 201):
    os.unlink(f"many/entry-{number:05}")
seen += [entry.name for entry in reader]
assert len(seen) == len(set(seen)) and set(names[:0]) <= set(seen)
left = {f"entry-{number:05}" for number in range(201, 10001)}
assert left <= set(seen), len(left - set(seen))
for number in range(1, 201):
    open(f"many/entry-{number:05}", "w").close()
'
}

nfs_check_locks() { # DIRECTORY: two processes
  python3 -c '
import fcntl, os, sys
one = open("lock", "w+")
fcntl.lockf(one, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
if os.fork() == 0:
    two = open("lock", "r+")
    try:
        fcntl.lockf(two, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
        os._exit(1)
    except OSError:
        pass
    fcntl.lockf(two, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 10)
    os._exit(0)
assert os.wait()[1] == 0
'
}

nfs_check_restart() { # lines that were acknowledged are there, and locks are held, when the server has restarted
  python3 -c '
import fcntl, os, time
log = os.open("log", os.O_CREAT | os.O_RDWR | os.O_APPEND)
lock = open("lock", "r+")
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
count, end = 0, time.time() + 240
while not os.path.exists("/mnt/nfs/restarted") and time.time() < end:
    os.write(log, b"line %06d\n" % count)
    os.fsync(log)
    count += 1
    if count == 5:
        open("/mnt/nfs/restart", "w").close()
assert os.path.exists("/mnt/nfs/restarted")
os.unlink("/mnt/nfs/restarted")
lines = open("log").read().splitlines()
assert lines == ["line %06d" % number for number in range(count)], (len(lines), count)
if os.fork() == 0:
    try:
        fcntl.lockf(open("lock", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        os._exit(1)
    except OSError:
        os._exit(0)
assert os.wait()[1] == 0
'
}

nfs_check_delegations() { # another client changes a file that this one has a delegation of
  echo before >delegated
  exec 9<delegated
  read -r line <&9
  [[ $line == before ]]
  nfs_mount 3 /mnt/other
  echo after >/mnt/other/work/delegated
  exec 9<&-
  [[ $(cat delegated) == after ]]
  umount /mnt/other
  grep -A 200 'mounted on /mnt/nfs ' /proc/self/mountstats | awk '/DELEGRETURN:/ && $2 > 0 { found = 1 } END { exit !found }'
}

nfs_check() {
  for version in 3 4.0 4.1 4.2; do
    nfs_mount $version /mnt/nfs
    mkdir /mnt/nfs/work
    cd /mnt/nfs/work
    nfs_check_files
    [[ $version != 4.2 ]] || nfs_check_v42
    cd /mnt/nfs
    nfs_check_many
    [[ $(stat -c %d child/.) != $(stat -c %d .) ]] # the kernel mounts it when it is entered
    df child >/dev/null
    ls .zfs/snapshot/before/many/entry-00001 >/dev/null
    cd /mnt/nfs/work
    [[ $version == 3 ]] || nfs_check_locks
    [[ $version != 4.[12] ]] || nfs_check_delegations
    [[ $version != 4.[02] ]] || nfs_check_restart
    cd /
    rm -r /mnt/nfs/work
    umount -R /mnt/nfs
  done
  echo "3 to 4.2: storms, 10,000 names, holes, clones, xattrs, ACLs, locks, delegations, snapshots, restarts of the server"
}
