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
  # clients of 3 ask port 111 for the port of the lock manager, and get the one of this machine
  local portmapper
  portmapper=$(free_port)
  poolhouse config set nfs.portmapper "$portmapper"
  forwards+=(--forward "111:$portmapper" --forward "$1:$1")
  # the server calls the portmapper, the status monitor and the lock manager of clients of 3
  forwards+=(--publish 111:111 --publish 32765:32765 --publish 32768:32768)
  # and a program of clients of 4.0, to recall delegations
  forwards+=(--publish 32769:32769)
  uname -n >"$nfs_dir/server-name"
  poolhouse config set nfs.listen "$1"
  # clients of 4.0 do not say that they have reclaimed all: a restart takes the time of a lease
  poolhouse config set nfs.lease 30
  poolhouse share add nfs tank/nfs -o path=/nfs -o squash=none
  poolhouse share add nfs tank/nfs/child -o path=/nfs/child -o squash=none
}

# Does here what a client requests by a file: restarts the daemon, or locks a file over the mount of this machine.
nfs_beside() {
  while true; do
    if [[ -e $nfs_dir/restart ]]; then
      rm "$nfs_dir/restart"
      poolhouse serve --stop
      poolhouse share status
      touch "$nfs_dir/restarted"
    elif [[ -e $nfs_dir/lock-here ]]; then
      rm "$nfs_dir/lock-here"
      nfs_lock_here || true
    fi
    sleep 0.5
  done
}

# Whether bytes 0 to 9 can be locked here goes to a file; this holds bytes 100 to 109 until the client says that it has
# looked. The caches of a client may show it the file a minute late.
nfs_lock_here() {
  rm -f "$nfs_dir/looked"
  python3 - "$nfs_dir" <<'EOF'
import fcntl, os, sys, time
os.chdir(sys.argv[1])
file = open("work/lock", "r+")
fcntl.lockf(file, fcntl.LOCK_EX, 10, 100)
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
    result = "granted"
except OSError:
    result = "refused"
with open("locked-here.new", "w") as out:
    out.write(result)
os.rename("locked-here.new", "locked-here")
end = time.time() + 180
while not os.path.exists("looked") and time.time() < end:
    time.sleep(0.2)
# meanwhile the client begins to wait for the lock
time.sleep(3)
EOF
}

nfs_mount() { # VERSION DIRECTORY
  mkdir -p "$2"
  local options=vers=$1,hard,port=2049
  [[ $1 != 3 ]] || options+=,proto=tcp,mountproto=tcp,mountport=2049
  # the server sees the clients at this address
  [[ $1 != 4.0 ]] || options+=,clientaddr=127.0.0.1
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

nfs_start_monitor() { # what clients of 3 need for locks, and those of 4.0 for delegations
  echo 32769 >/sys/module/nfs/parameters/callback_tcpport 2>/dev/null || modprobe nfs callback_tcpport=32769
  mkdir -p /run/rpcbind /run/sendsigs.omit.d /var/lib/nfs/sm /var/lib/nfs/sm.bak
  echo 32768 >/proc/sys/fs/nfs/nlm_tcpport 2>/dev/null || modprobe lockd nlm_tcpport=32768
  pidof rpcbind >/dev/null || rpcbind -w
  pidof rpc.statd >/dev/null || rpc.statd --no-notify -p 32765
}

nfs_check_locks_with_server() { # a lock of this client against one of the server's own mount, and the other way round
  rm -f /mnt/nfs/locked-here /mnt/nfs/looked
  python3 -c '
import errno, fcntl, os, time
lock = open("lock", "w+")
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
open("/mnt/nfs/lock-here", "w").close()
end = time.time() + 120
while not os.path.exists("/mnt/nfs/locked-here") and time.time() < end:
    os.listdir("/mnt/nfs")
    time.sleep(0.5)
assert open("/mnt/nfs/locked-here").read() == "refused"
try:
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
    raise SystemExit("the lock of the server was not seen")
except OSError as why:
    assert why.errno in (errno.EAGAIN, errno.EACCES), why
os.unlink("/mnt/nfs/locked-here")
open("/mnt/nfs/looked", "w").close()
fcntl.lockf(lock, fcntl.LOCK_EX, 10, 100)
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
# the server has the lock again
time.sleep(15)
end = time.time() + 60
while True:
    open("/mnt/nfs/lock-here", "w").close()
    while not os.path.exists("/mnt/nfs/locked-here"):
        assert time.time() < end + 120
        os.listdir("/mnt/nfs")
        time.sleep(0.5)
    result = open("/mnt/nfs/locked-here").read()
    os.unlink("/mnt/nfs/locked-here")
    open("/mnt/nfs/looked", "w").close()
    if result == "refused":
        break
    assert time.time() < end, "the lock was not reclaimed"
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
  # a write delegation: the client says how long the file is without writing it back
  exec 8>>delegated
  echo more >&8
  exec 8>&-
  nfs_mount 3 /mnt/other
  [[ $(stat -c %s /mnt/other/work/delegated) == 12 ]]
  echo after >/mnt/other/work/delegated
  exec 9<&-
  [[ $(cat delegated) == after ]]
  umount /mnt/other
  grep -A 200 'mounted on /mnt/nfs ' /proc/self/mountstats | awk '/DELEGRETURN:/ && $2 > 0 { found = 1 } END { exit !found }'
}

nfs_check() {
  nfs_start_monitor
  for version in 3 4.0 4.1 4.2; do
    nfs_mount $version /mnt/nfs
    if [[ $version == 3 ]]; then
      echo "10.0.2.100 $(cat /mnt/nfs/server-name)" >>/etc/hosts
    fi
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
    nfs_check_locks
    [[ $version != 3 && $version != 4.0 ]] || nfs_check_locks_with_server
    [[ $version == 3 ]] || nfs_check_delegations
    [[ $version == 4.1 ]] || nfs_check_restart
    cd /
    rm -r /mnt/nfs/work
    umount -R /mnt/nfs
  done
  echo "3 to 4.2: storms, 10,000 names, holes, clones, xattrs, ACLs, locks, delegations, snapshots, restarts of the server"
}
