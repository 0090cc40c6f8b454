# Words for random recipes, beside those of fixtures/recipes/guest.sh.

churn() { # FOLDER SEED STEPS [synced]: random work on files; what fails is left undone
  python3 - "$@" <<'PY'
import ctypes, fcntl, os, random, stat, subprocess, sys

FICLONE = 0x40049409
root, seed, steps = os.fsencode(sys.argv[1]), sys.argv[2], int(sys.argv[3])
synced = len(sys.argv) > 4
rng = random.Random(seed)
files, folders = [], [root]
for at, below, found in os.walk(root):
    if b".zfs" in below:
        below.remove(b".zfs")
    folders += [os.path.join(at, name) for name in below]
    files += [os.path.join(at, name) for name in found]
LETTERS = ["a", "b", "c", "Z", "0", "_", " ", "-", "e\u0301", "\u00e9", "\u00df", "\u65e5", "\ufb01"]


def name():
    length = rng.choice((1, 2, 5, 9, 20, 49, 50, 90, 200))
    text = "".join(rng.choice(LETTERS) for _ in range(length)).encode()[:200]
    return text.decode(errors="ignore").strip().encode() or b"n"


def place():
    return os.path.join(rng.choice(folders), name())


def bytes_of(size):
    kind = rng.randrange(5)
    if kind == 0:
        return bytes(size)
    if kind == 1:
        return (b"the quick brown fox %d " % rng.randrange(100) * (size // 20 + 1))[:size]
    if kind == 2:
        piece = rng.randbytes(rng.choice((16, 512, 4096)))
        return (piece * (size // len(piece) + 1))[:size]
    return rng.randbytes(size)


def write(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, rng.choice((0o644, 0o600, 0o755, 0o6711)))
    size = os.fstat(fd).st_size
    for _ in range(rng.choice((1, 1, 1, 3))):
        at = rng.choice((0, 0, size, rng.randrange(size + 1), rng.randrange(1 << 22), 4096 * rng.randrange(300)))
        os.pwrite(fd, bytes_of(rng.choice((0, 1, 100, 112, 513, 4096, 5000, 30000, 131072, 200000))), at)
    if synced or rng.randrange(10) == 0:
        os.fsync(fd)
    os.close(fd)
    files.append(path)


def far(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(3):
        os.pwrite(fd, bytes_of(rng.choice((1, 700, 9000))), rng.randrange(1 << rng.choice((20, 24, 30, 40, 60))))
    os.close(fd)
    files.append(path)


def truncate(path):
    os.truncate(path, rng.choice((0, 1, 100, 4096, rng.randrange(1 << 20), rng.randrange(1 << 35))))


def punch(path):
    subprocess.run(["fallocate", "-p", "-o", str(rng.randrange(1 << 18)), "-l", str(rng.randrange(1, 1 << 18)), path])


def rename(path):
    new = place()
    os.rename(path, new)
    files.remove(path)
    files.append(new)


def exchange(path):
    ctypes.CDLL(None).renameat2(-100, path, -100, rng.choice(files), 2)


def link(path):
    new = place()
    os.link(path, new, follow_symlinks=False)
    files.append(new)


def symlink(path):
    new = place()
    os.symlink(rng.choice((path, b"t" * rng.choice((1, 67, 300, 1000, 3000)))), new)
    files.append(new)


def unlink(path):
    os.unlink(path)
    files.remove(path)


def mkdir(path):
    new = place()
    os.mkdir(new, rng.choice((0o755, 0o2770, 0o1777)))
    folders.append(new)


def mode(path):
    os.chmod(path, rng.randrange(0o10000))


def owner(path):
    os.chown(path, rng.choice((0, 1001, 65534, 4000000000)), rng.choice((0, 100, 4000000001)), follow_symlinks=False)


def times(path):
    os.utime(path, ns=(rng.randrange(-10**18, 4 * 10**18), rng.randrange(-10**18, 4 * 10**18)), follow_symlinks=False)


def xattr(path):
    for _ in range(rng.choice((1, 1, 5, 30))):
        key = rng.choice(("user.", "user.", "trusted.")) + "k%d" % rng.randrange(40)
        os.setxattr(path, key, rng.randbytes(rng.choice((0, 1, 30, 200, 1000, 20000))), follow_symlinks=False)


def no_xattr(path):
    for key in os.listxattr(path, follow_symlinks=False)[:3]:
        os.removexattr(path, key, follow_symlinks=False)


def acl(path):
    subprocess.run(["setfacl", "-m", "u:%d:rw,g:50:r" % rng.randrange(1000, 2000), path], stderr=subprocess.DEVNULL)


def clone(path):
    if os.path.islink(path) or not os.path.isfile(path) or os.stat(path).st_size > 1 << 24:
        return  # the kernel goes through a hole of 2^60 bytes block by block
    if not synced:
        os.sync()
    new = place()
    if os.path.exists(new) and not os.path.isfile(new):
        return  # who opens a pipe to write into it waits for a reader
    with open(path, "rb") as old, open(new, "wb") as to:
        fcntl.ioctl(to, FICLONE, old.fileno())
        if synced:
            os.fsync(to.fileno())
    files.append(new)


def node(path):
    new = place()
    kind = rng.choice((stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK))
    os.mknod(new, kind | 0o640, os.makedev(rng.randrange(300), rng.randrange(70000)))
    files.append(new)


def flags(path):
    subprocess.run(["chattr", "+d", path], stderr=subprocess.DEVNULL)


fresh, change = [write] * 5 + [far, mkdir, mkdir, symlink, node], [
    write, write, write, truncate, punch, rename, rename, exchange, link, unlink, unlink, mode, owner, times, times,
    xattr, xattr, xattr, no_xattr, acl, clone, flags]
for _ in range(steps):
    try:
        regular = [f for f in files if os.path.isfile(f) and not os.path.islink(f)]
        if not regular or rng.randrange(100) < 40:
            step = rng.choice(fresh)
            step(rng.choice(files) if step in (symlink, node) and files else place())
        else:
            rng.choice(change)(rng.choice(regular if rng.randrange(4) else files))
    except (OSError, ValueError):
        pass
PY
}

scribble() { # DEVICE SEED: random writes to a volume
  python3 - "$@" <<'PY'
import os, random, sys
rng = random.Random(sys.argv[2])
fd = os.open(sys.argv[1], os.O_RDWR)
size = os.lseek(fd, 0, os.SEEK_END)
for _ in range(40):
    at, length = rng.randrange(size), rng.choice((512, 4096, 10000, 70000))
    os.pwrite(fd, rng.choice((rng.randbytes(length), bytes(length), b"block" * (length // 5)))[:size - at], at)
os.fsync(fd)
os.close(fd)
PY
}

rename_key() { # ROOT NAME: what was noted of an encryption root that has another name now
  local old=/run/keys/${1//\//_} new=/run/keys/${2//\//_}
  sed -i "s#^$1 #$2 #" "$notes/keys"
  cp "$old" "$new"
  zfs set "keylocation=file://$new" "$2"
}
