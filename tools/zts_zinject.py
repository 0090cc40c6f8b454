#!/usr/bin/env python3
"""A stand-in for zinject(8), for tools/zts.py: real damage on the devices of a test pool, no faults in the program.

  zts_zinject.py ZPOOL STATE -t data -e checksum|io [-f 100] [-a] [-m] [-C COPY,...] [-T read] FILE
  zts_zinject.py ZPOOL STATE -d DEVICE -A fault POOL
  zts_zinject.py ZPOOL STATE -d DEVICE -D MILLISECONDS:LANES POOL
  zts_zinject.py ZPOOL STATE -c all

The blocks of FILE are overwritten on the devices while the pool is exported, and OpenZFS's zdb says where they are.
-c all writes the old bytes back where the damage still is. Only pools without raidz and dRAID can be damaged. A delay of
a device lets scans stand still for some seconds. Faults of labels and of metadata, and `-A degrade` are not there: the
status is 1.
"""
import getopt, json, os, re, subprocess, sys, time
from pathlib import Path

LABELS_BEFORE_DATA = 4 << 20
SUSPENSION = Path("/sys/module/zfs/parameters/zfs_scan_suspend_progress")
SECONDS_OF_DELAY = 6


def run(*command, check=True):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if check and done.returncode != 0:
        sys.exit(f"zinject: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def leaves(vdev):
    """The devices of a vdev of `zpool status -j`."""
    below = vdev.get("vdevs") or {}
    return [leaf for child in below.values() for leaf in leaves(child)] if below else [vdev["name"]]


def data_vdevs(zpool, pool):
    found = json.loads(run(zpool, "status", "-j", pool))["pools"][pool]
    root = next(iter(found["vdevs"].values()))
    return list(root["vdevs"].values())


def damage(zpool, state, file, copies):
    mounts = [line.split()[:2] for line in Path("/proc/self/mounts").read_text().splitlines()]
    dataset, _ = max((mount for mount in mounts if file.startswith(mount[1].rstrip("/") + "/")), key=lambda mount: len(mount[1]))
    number = os.stat(file).st_ino
    pool = dataset.split("/")[0]
    tops = data_vdevs(zpool, pool)
    if any(re.match("raidz|draid", top["name"]) for top in tops):
        sys.exit("zinject: not supported by this stand-in: raidz and dRAID")
    devices = sorted({leaf for top in tops for leaf in leaves(top)})
    folders = sorted({os.path.dirname(device) for device in devices})
    search = [word for folder in folders for word in ("-d", folder)]
    run(zpool, "export", pool)
    try:
        places = [word for folder in folders for word in ("-p", folder)]
        of_zdb = dataset if "/" in dataset else f"{dataset}/"   # a bare name is the pool's own object set
        listed = run("/sbin/zdb", "-e", *places, "-ddddd", of_zdb, str(number), check=False)
        blocks = re.findall(r"^\s+[0-9a-f]+\s+L0 ((?:\d+:[0-9a-f]+:[0-9a-f]+ )+)(?:[0-9a-f]+L/([0-9a-f]+)P)", listed, flags=re.M)
        if not blocks and "Indirect blocks" not in listed:   # a file of zeros has none
            sys.exit(f"zinject: zdb names no blocks of {dataset}, object {number}")
        kept = json.loads(state.read_text()) if state.exists() else []
        for addresses, size in blocks:
            for copy, address in enumerate(addresses.split()):
                vdev, offset, _ = address.split(":")
                if copies is not None and copy not in copies:
                    continue
                for device in leaves(tops[int(vdev)]):
                    kept.append(overwrite(device, int(offset, 16) + LABELS_BEFORE_DATA, int(size, 16)))
        state.write_text(json.dumps(kept))
    finally:
        run(zpool, "import", *search, pool)


def overwrite(device, offset, size):
    with open(device, "r+b") as file:
        file.seek(offset)
        old = file.read(size)
        new = bytes(byte ^ 0x5A for byte in old)
        file.seek(offset)
        file.write(new)
        file.flush()
        os.fsync(file.fileno())
    return [device, offset, old.hex()]


def delay(state):
    """Suspends scans; a process that stays behind ends that, unless a later delay does."""
    mark = state.with_suffix(".delay")
    own = str(os.getpid())
    mark.write_text(own)
    SUSPENSION.write_text("1\n")
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        time.sleep(SECONDS_OF_DELAY)
        if mark.exists() and mark.read_text() == own:
            SUSPENSION.write_text("0\n")


def restore(state):
    for device, offset, old in json.loads(state.read_text()) if state.exists() else []:
        old = bytes.fromhex(old)
        try:
            with open(device, "r+b") as file:
                file.seek(offset)
                if file.read(len(old)) == bytes(byte ^ 0x5A for byte in old):
                    file.seek(offset)
                    file.write(old)
                    file.flush()
                    os.fsync(file.fileno())
        except FileNotFoundError:
            pass
    state.unlink(missing_ok=True)


def main():
    zpool, state = sys.argv[1], Path(sys.argv[2])
    options, rest = getopt.gnu_getopt(sys.argv[3:], "t:e:f:amqC:T:c:d:A:D:P:s:b:l:r:uI")
    asked = dict(options)
    if asked.get("-c") == "all":
        mark = state.with_suffix(".delay")
        if mark.exists():
            mark.unlink()
            SUSPENSION.write_text("0\n")
        return restore(state)
    if "-d" in asked and "-D" in asked and len(rest) == 1:
        return delay(state)
    if asked.get("-t") == "data" and asked.get("-e") in ("checksum", "io") and asked.get("-f", "100") == "100" and len(rest) == 1:
        copies = asked.get("-C")
        return damage(zpool, state, rest[0], copies and {int(copy) for copy in copies.split(",")})
    if "-d" in asked and asked.get("-A") == "fault" and len(rest) == 1:
        return run(zpool, "offline", "-f", rest[0], asked["-d"])
    sys.exit(f"zinject: not supported by this stand-in: {' '.join(sys.argv[3:])}")


main()
