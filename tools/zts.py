#!/usr/bin/env python3
"""OpenZFS's own test suite (Debian's zfs-test, installed by name) with Poolhouse as zpool and zfs.

  tools/zts.py POOLHOUSE [-o OUT] [-t SECONDS] [-b SECONDS] [-n POOL] [-f] GROUP[/TEST,...] ...      e.g. cli_root/zfs_get snapshot acl/posix
  tools/zts.py -r OUT                                                                  OUT's results as the table of docs/zts.md

Runs the groups of common.run and linux.run (setup, tests, cleanup) as root, in mount and process namespaces of
its own: /etc is laid over, /sys/module/zfs and /proc/spl are stand-ins, what the tests kill or mount is ours alone.
Of the module's parameters, zfs_scan_suspend_progress and zfs_removal_suspend_progress have an effect.
Three loop devices of 4 GiB (sparse) are the disks; -f: plain files. -t: limit of a test (90; some, as mmap_mixed, run longer by themselves), -b: of a group (600).
-n: the begin of the pools' names (testpool); two runs at the same time need different ones, since they share mount points.
OUT gets GROUP/TEST.log and results.tsv (group, test, result, seconds, why). Last line of each group and of all: counts.
"""
import argparse, ast, gzip, os, re, signal, subprocess, sys, tempfile, time
from pathlib import Path

from scratch import enter_namespaces, remove_tree

SUITE = Path("/usr/share/zfs")
PARAMETERS = Path("/sys/module/zfs/parameters")
# Their branch for Linux asserts that a busy file system cannot be unmounted by force. Here it can, as on other systems.
UNMOUNT_BY_FORCE = ("zfs_unmount/zfs_unmount_005_pos", "zfs_unmount/zfs_unmount_009_pos", "zfs_unmount/zfs_unmount_all_001_pos",
                    "zfs_destroy/zfs_destroy_004_pos")
HARMLESS = ("udevadm", "modprobe", "lsmod", "swapon", "swapoff", "mkswap", "sudo_reboot")
TUNABLES = {"zfs_txg_timeout": 5, "zfs_scan_suspend_progress": 0, "zfs_dbgmsg_enable": 1, "zfs_async_block_max_blocks": 100000,
            "zfs_commit_timeout_pct": 10, "zfs_resilver_min_time_ms": 3000, "zfs_scrub_min_time_ms": 1000, "zfs_compressed_arc_enabled": 1,
            "zfs_multihost_interval": 1000, "zfs_multihost_history": 0, "zfs_vdev_async_write_active_min_dirty_percent": 30,
            "zvol_inhibit_dev": 0, "zfs_max_missing_tvds": 0, "zfs_spa_discard_memory_limit": 16777216, "zfs_no_scrub_prefetch": 0,
            "zfs_initialize_chunk_size": 1048576, "zfs_initialize_value": 16045690984833335022, "metaslab_force_ganging": 16777217,
            "zfs_recover": 0, "spa_load_verify_metadata": 1, "spa_load_verify_data": 1, "zfs_livelist_condense_zthr_pause": 0,
            "zfs_delete_blocks": 20480, "zfs_removal_suspend_progress": 0, "zfs_trim_extent_bytes_min": 32768, "zfs_snapshot_history_enabled": 1,
            "zfs_max_recordsize": 16777216, "zfs_bclone_enabled": 1, "zfs_dmu_offset_next_sync": 1, "zfs_xattr_compat": 0,
            "zfs_resilver_disable_defer": 0, "zfs_rebuild_scrub_enabled": 1, "zfs_prefetch_disable": 0, "zfs_vdev_min_ms_count": 16}


def tunables():
    """The module's parameters with the defaults that zfs(4) states, so that tests which save and restore one can run."""
    page = gzip.open("/usr/share/man/man4/zfs.4.gz", "rt").read()
    stated = re.findall(r"^\.It Sy (\w+)(?: Ns = Ns Sy (\w+))?", page, flags=re.M)
    return {**{name: 2**64 - 1 if value == "UINT64_MAX" else value or 0 for name, value in stated}, **TUNABLES}


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)


def place_all(work, program, pool):
    """The constrained path with our commands first, and stand-ins for what only a kernel module has."""
    for folder in ("etc", "suite"):
        for part in ("upper", "work"):
            (work / folder / part).mkdir(parents=True)
    for folder, over in (("etc", "/etc"), ("suite", str(SUITE))):
        options = f"lowerdir={over},upperdir={work}/{folder}/upper,workdir={work}/{folder}/work"
        subprocess.run(["mount", "-t", "overlay", "zts", "-o", options, over], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "zts", "/sys/module"], check=True)
    PARAMETERS.mkdir(parents=True)
    for name, value in tunables().items():
        (PARAMETERS / name).write_text(f"{value}\n")
    spl = work / "spl"
    (spl / "kstat/zfs").mkdir(parents=True)
    for name in ("dbgmsg", "arcstats", "dbufstats", "zil", "fletcher_4_bench"):
        (spl / "kstat/zfs" / name).write_text("")
    for file in run("grep", "-rlI", "/proc/spl", str(SUITE / "zfs-tests")).stdout.split():   # the overlay's copies, gone at the end
        text = Path(file).read_text(errors="surrogateescape").replace("/proc/spl", str(spl))
        Path(file).write_text(text, errors="surrogateescape")
    for test in UNMOUNT_BY_FORCE:
        script = SUITE / f"zfs-tests/tests/functional/cli_root/{test}.ksh"
        script.write_text(script.read_text().replace("is_linux", "false"))
    names = SUITE / "zfs-tests/include/default.cfg"
    names.write_text(names.read_text().replace("=testpool", f"={pool}"))
    path = work / "bin"
    path.mkdir()
    lists = run("bash", "-c", f". {SUITE}/zfs-tests/include/commands.cfg; echo $SYSTEM_FILES_COMMON $SYSTEM_FILES_LINUX $ZFS_FILES $ZFSTEST_FILES").stdout.split()
    for name in lists:
        for folder in (SUITE / "zfs-tests/bin", *map(Path, ("/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"))):
            if (folder / name).is_file():
                (path / name).symlink_to(folder / name)
                break
    for name, to in (("fsck", "/sbin/fsck.ext4"), ("newfs", "/sbin/mkfs.ext4"), ("compress", path / "gzip"), ("uncompress", path / "gunzip")):
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(to)
    def shim(name, text):
        (path / name).unlink(missing_ok=True)
        (path / name).write_text("#!/bin/sh\n" + text + "\n")
        (path / name).chmod(0o755)
    ours = f"POOLHOUSE_STATE={work}/state POOLHOUSE_PARAMETERS={PARAMETERS}"
    for name in ("zpool", "zfs"):
        shim(name, f'{ours} exec {program} {name} "$@"')
    shim("mount", f'case " $* " in *" -t zfs "*) ;; *) exec /bin/mount "$@";; esac\n'
         'options=; set -- $(printf "%s\\n" "$@" | sed "/^-t$/,/^zfs$/d")\n'
         f'{ours} exec {path}/mount.zfs "$@"')
    (path / "mount.zfs").unlink(missing_ok=True)
    (path / "mount.zfs").symlink_to(program)
    for name in HARMLESS:
        shim(name, "exit 0")
    shim("zinject", f'exec {sys.executable} {Path(__file__).resolve().parent}/zts_zinject.py {path}/zpool {work}/zinject.json "$@"')
    shim("zdb", f'{path}/zpool sync >/dev/null 2>&1; case "$*" in *-e*|*-l*) exec /sbin/zdb "$@";; esac\n'
         f"folders=$({path}/zpool status 2>/dev/null | sed -n 's|^[[:space:]]*\\(/[^ ]*\\)/[^/ ]* .*|-p \\1|p' | sort -u)\n"
         f'exec /sbin/zdb -e $folders -p {work}/files -p /dev "$@"')
    return path


def suite_tests():
    """GROUP: [its tests, its setup, its cleanup, its user], as the run files have it."""
    groups = {}
    for file in ("common.run", "linux.run"):
        text = re.sub(r"^#.*$", "", (SUITE / "runfiles" / file).read_text(), flags=re.M)
        for header, body in re.findall(r"^\[([^\]\n]*)\]\n(.*?)(?=^\[|\Z)", text, flags=re.M | re.S):
            if header == "DEFAULT":
                continue
            name = header.split(":")[0].removeprefix("tests/functional/")
            field = lambda key, other: (re.search(rf"^{key}\s*=[ \t]*(.*)$", body, flags=re.M) or [None, other])[1].strip()
            tests = ast.literal_eval(re.search(r"^tests\s*=\s*(\[.*?\])", body, flags=re.M | re.S)[1])
            group = groups.setdefault(name, [[], field("pre", "setup"), field("post", "cleanup"), field("user", "root")])
            group[0] += [t for t in tests if t not in group[0]]
    return groups


class Runner:
    def __init__(self, options, work, path):
        self.options, self.work, self.path, self.loops = options, work, path, []
        self.out = Path(options.o).resolve()
        self.table = open(self.out / "results.tsv", "a")
        self.files = work / "files"
        self.files.mkdir(mode=0o777)
        self.files.chmod(0o1777)
        self.state = work / "state"

    def environment(self):
        base = {"PATH": f"{self.path}:/usr/sbin:/usr/bin:/sbin:/bin", "FILEDIR": str(self.files), "STF_SUITE": str(SUITE / "zfs-tests"), "STF_TOOLS": str(SUITE / "test-runner"),
                "HOME": "/root", "TERM": "dumb", "LC_ALL": "C", "POOLHOUSE_STATE": str(self.state)}
        dump = subprocess.run(["bash", "-c", ". $STF_SUITE/include/default.cfg; env -0"], env=base, stdout=subprocess.PIPE, text=True).stdout
        made = dict(pair.split("=", 1) for pair in dump.split("\0") if "=" in pair)
        return {**made, "PATH": str(self.path), "STF_PATH": str(self.path), "DISKS": " ".join(self.disks), "KEEP": "rpool", "__ZFS_POOL_EXCLUDE": "rpool",
                "TMPDIR": str(self.files), "TESTFAIL_CALLBACKS": "", "KSTAT": "yes", "POOLHOUSE_PARAMETERS": str(PARAMETERS)}

    def begin(self):
        self.disks = []
        self.state.mkdir(exist_ok=True)
        self.state.chmod(0o755)
        (self.state / "config.toml").write_text('[zvol]\ndevices = "/dev/zvol"\n[mounts]\nsnapshot_admin = true\n')
        for i in range(3):
            file = self.files / f"file-vdev{i}"
            with open(file, "wb") as f:
                f.truncate(4 << 30)
            if self.options.f:
                self.disks.append(str(file))
            else:
                loop = run("losetup", "--show", "-f", str(file)).stdout.strip()
                self.loops.append(loop)
                self.disks.append(loop.removeprefix("/dev/"))

    def end(self):
        """Nothing of a group is left for the next."""
        program = self.options.program
        env = {**os.environ, "POOLHOUSE_STATE": str(self.state)}
        try:
            run(program, "zpool", "export", "-a", "-f", env=env, timeout=20)
        except subprocess.TimeoutExpired:
            pass
        for pid in sorted((int(p) for p in os.listdir("/proc") if p.isdigit()), reverse=True):
            if pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            source, where, kind = line.split()[:3]
            if kind.startswith("fuse") or str(self.work) in where or str(self.work) in source:
                if where not in ("/etc", str(SUITE)):
                    subprocess.run(["umount", "-l", where.replace("\\040", " ")], stderr=subprocess.DEVNULL)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        for loop in self.loops:
            run("losetup", "-d", loop)
        self.loops = []
        for folder in (self.state, self.files):
            remove_tree(folder)
            folder.mkdir(mode=0o777, exist_ok=True)
        self.files.chmod(0o1777)
        for name in os.listdir("/"):
            if re.match(re.escape(self.options.n) + r"|test(ctr|fs)|zonepool|poolname50|newpool|mnt_|testdir", name) and not os.path.ismount("/" + name):
                remove_tree("/" + name)

    def one(self, group, script, user, limit, log):
        """(exit status or None where its time was up, seconds)"""
        begun = time.monotonic()
        command = ["ksh", "-p", f"{SUITE}/zfs-tests/tests/functional/{group}/{script}.ksh"]
        if user != "root":
            command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
        with open(log, "w") as to:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=to, stderr=to, env=self.environment(), start_new_session=True, cwd=self.files)
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
        return status, time.monotonic() - begun

    def group(self, name, only, tests, pre, post, user):
        counts = dict.fromkeys(("PASS", "FAIL", "SKIP"), 0)
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        self.begin()
        deadline = time.monotonic() + self.options.b
        def tell(test, result, seconds, log):
            counts[result] += 1
            why = reason(log) if result != "PASS" else ""
            print(f"{result}\t{name}/{test}\t{seconds:.1f}\t{why}", flush=True)
            print(name, test, result, f"{seconds:.1f}", why, sep="\t", file=self.table, flush=True)
        ready = True
        if pre and (SUITE / f"zfs-tests/tests/functional/{name}/{pre}.ksh").exists():
            status, seconds = self.one(name, pre, "root", 120, folder / "setup.log")
            if status != 0:
                ready = False
                for test in only or tests:
                    tell(test, "SKIP" if status == 4 else "FAIL", 0, folder / "setup.log")
        if ready:
            for test in only or tests:
                log = folder / f"{test}.log"
                left = deadline - time.monotonic()
                if left < 1:
                    log.write_text("NOTE: not run: the time of the group was up\nERROR: group's time up")
                    tell(test, "SKIP", 0, log)
                    continue
                status, seconds = self.one(name, test.removesuffix(".ksh"), user, min(self.options.t, left), log)
                if status is None:
                    with open(log, "a") as f:
                        f.write(f"\nERROR: time up after {seconds:.0f} s\n")
                tell(test, {0: "PASS", 4: "SKIP"}.get(status, "FAIL"), seconds, log)
            if post and (SUITE / f"zfs-tests/tests/functional/{name}/{post}.ksh").exists():
                self.one(name, post, "root", 60, folder / "cleanup.log")
        self.end()
        print(f"GROUP {name}: {counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped", flush=True)
        return counts


def reason(log):
    """What the log says first of why: the line before the first ERROR, and that line."""
    lines = [re.sub(r"^\[?\d\d:\d\d:\d\d(\.\d+)?\]?\s*", "", l.strip()) for l in Path(log).read_text(errors="replace").splitlines()]
    lines = [l for l in lines if l and not l.startswith(("For more information", "Usage:", "tip:"))]
    for i, line in enumerate(lines):
        if line.startswith("ERROR:") or "UNSUPPORTED" in line or "Unsupported" in line or line.startswith("NOTE: Test is not"):
            before = next((l for l in reversed(lines[:i]) if not l.startswith(("SUCCESS:", "ASSERTION:", "NOTE:"))), "")
            also = next((l for l in lines[i + 1:i + 3] if not l.startswith(("NOTE: Perf", "SUCCESS:"))), "") if not before else ""
            return re.sub(r"\s+", " ", f"{line} | {before or also}")[:300]
    return re.sub(r"\s+", " ", " / ".join(lines[-2:]))[:300]


def report(out):
    """The groups of results.tsv with their counts, and why tests failed, as Markdown. A later run of a test counts."""
    results = {}
    for line in (Path(out) / "results.tsv").read_text().splitlines():
        group, test, result, _, why = (line.split("\t") + [""])[:5]
        results[group, test] = result, why
    groups = sorted({group for group, _ in results})
    print("| group | pass | fail | skip |\n| --- | ---: | ---: | ---: |")
    for group in groups:
        own = [result for (of, _), (result, _) in results.items() if of == group]
        print(f"| {group} | {own.count('PASS')} | {own.count('FAIL')} | {own.count('SKIP')} |")
    print("\n| test | | what the test says |\n| --- | --- | --- |")
    for (group, test), (result, why) in sorted(results.items()):
        if result != "PASS":
            why = re.sub(r"/tmp/zts\.\w+|/usr/share/zfs/zfs-tests", "", why).replace("|", ":")[:160]
            print(f"| {group}/{test} | {result.lower()} | `{why.replace('`', '')}` |")


def main():
    if sys.argv[1:2] == ["-r"]:
        return report(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("groups", nargs="+")
    parser.add_argument("-o", default="zts-out")
    parser.add_argument("-t", type=float, default=90)
    parser.add_argument("-b", type=float, default=600)
    parser.add_argument("-f", action="store_true")
    parser.add_argument("-n", default="testpool")
    options = parser.parse_args()
    options.program = str(Path(options.program).resolve())
    enter_namespaces([str(Path(sys.argv[0]).resolve()), *sys.argv[1:]])
    for wish in (signal.SIGINT, signal.SIGTERM):   # the first process of a namespace ignores them otherwise
        signal.signal(wish, lambda *_: sys.exit("stopped"))
    Path(options.o).mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="zts."))
    system = {f: f.read_text() for f in map(Path, ("/proc/sys/vm/dirty_expire_centisecs", "/proc/sys/vm/dirty_background_ratio", "/proc/sys/vm/dirty_writeback_centisecs"))}
    work.chmod(0o755)
    runner, total = None, dict.fromkeys(("PASS", "FAIL", "SKIP"), 0)
    try:
        all_groups = suite_tests()
        path = place_all(work, options.program, options.n)
        runner = Runner(options, work, path)
        for wanted in options.groups:
            if wanted in all_groups:
                name, only = wanted, None
            elif os.path.dirname(wanted) in all_groups:
                name, only = os.path.dirname(wanted), os.path.basename(wanted).split(",")
            else:
                print(f"no group {wanted}", flush=True)
                continue
            for key, value in runner.group(name, only, *all_groups[name]).items():
                total[key] += value
    finally:
        if runner:
            runner.end()
        for file, value in system.items():   # a test whose time was up leaves its own
            file.write_text(value)
        for over in (str(SUITE), "/etc", "/sys/module"):
            subprocess.run(["umount", "-l", over], stderr=subprocess.DEVNULL)
        remove_tree(work)
    print(f"{total['PASS']} passed, {total['FAIL']} failed, {total['SKIP']} skipped")


main()
