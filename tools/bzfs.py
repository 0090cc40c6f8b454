#!/usr/bin/env python3
"""bzfs's own integration tests (PyPI's bzfs, installed by name) with Poolhouse as zpool and zfs.

  tools/bzfs.py POOLHOUSE [-o OUT] [-t SECONDS] [-m MODE] [-c] [NAME ...]     a NAME is a part of a test's name
  tools/bzfs.py -r OUT                                                    OUT's results as the table of docs/bzfs.md

Each test runs as root in a process of its own with a time limit. All run in mount and process namespaces: the home
folder is an overlay, and what the tests mount or leave running ends with the namespaces. MODE is a part of a group's
name: local, encrypted, affix, affix-pipe, ssh, ssh-pipe, other. The modes over ssh need sshd (Debian's openssh-server),
which listens on 127.0.0.1 and 127.0.0.2 with keys made for the run.

OUT has a log for each test, and results.tsv: group, test, result, seconds, reason. With -c, tests that passed in OUT
are left out. The time limit is 120 s a test.
"""
import argparse, os, re, shutil, signal, socket, subprocess, sys, tempfile, time, unittest
from collections import Counter, defaultdict
from pathlib import Path

from scratch import enter_namespaces, remove_tree


def group_of(test):
    """The name of a test's group of parameters."""
    param = getattr(test, "param", None) or {}
    if "ssh_mode" not in param:
        return "other"
    if not param["affix"]:
        return "encrypted" if param["encrypted_dataset"] else "local"
    pipe = "-pipe" if param["min_pipe_transfer_size"] == 0 else ""
    return ("affix" if param["ssh_mode"] == "local" else "ssh") + pipe


def suite():
    """All tests of bzfs's suite: (group, name, the test)."""
    from bzfs_tests.itest import test_integrations
    waiting, found = [test_integrations.suite()], []
    while waiting:
        test = waiting.pop(0)
        if isinstance(test, unittest.TestSuite):
            waiting[0:0] = list(test)
        else:
            found.append((group_of(test), f"{type(test).__name__}.{test._testMethodName}", test))
    return found


def run_one(group, name):
    """The body of a test's process: exit status 0 (passed), 1 (failed), 4 (skipped)."""
    from bzfs_main.loggers import set_logging_runtime_defaults
    set_logging_runtime_defaults()   # the suite's first test does so for all others
    test = next(test for g, n, test in suite() if (g, n) == (group, name))
    result = unittest.TextTestRunner(verbosity=2).run(test)
    sys.exit(1 if not result.wasSuccessful() else 4 if result.skipped else 0)


class Runner:
    def __init__(self, options):
        self.options = options
        self.out = Path(options.o).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix="bzfs."))
        self.state = self.work / "state"
        self.environment = {**os.environ, "POOLHOUSE_STATE": str(self.state), "PATH": f"{self.work}/bin:{os.environ['PATH']}", "TMPDIR": str(self.work / "tmp")}
        self.program = str(Path(options.program).resolve())

    def prepare(self):
        """Lays an overlay over the home folder, and puts our commands and a sudo for root in front."""
        for folder in ("bin", "tmp", "home", "overlay", "empty"):
            (self.work / folder).mkdir()
        home = os.path.expanduser("~")
        options = f"lowerdir={home},upperdir={self.work}/home,workdir={self.work}/overlay"
        subprocess.run(["mount", "-t", "overlay", "bzfs", "-o", options, home], check=True)
        for name, text in (("zpool", f'exec {self.program} zpool "$@"'), ("zfs", f'exec {self.program} zfs "$@"'), ("sudo", '[ "$1" != -n ] || shift; exec "$@"')):
            (self.work / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.work / "bin" / name).chmod(0o755)
        ssh = Path(home) / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        sshd = shutil.which("sshd", path=self.environment["PATH"] + ":/usr/sbin")
        if sshd:
            self.start_sshd(sshd, ssh)

    def start_sshd(self, sshd, folder):
        """Starts sshd on a free port of 127.0.0.1 and 127.0.0.2. It takes the key that bzfs's tests use."""
        for name in ("id_rsa", "host_key"):
            (folder / name).unlink(missing_ok=True)
            (folder / f"{name}.pub").unlink(missing_ok=True)
            subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(folder / name)], check=True)
        shutil.copy(folder / "id_rsa.pub", folder / "authorized_keys")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = folder / "sshd_config"
        config.write_text(f"Port {port}\nListenAddress 127.0.0.1\nListenAddress 127.0.0.2\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\n"
                          f"PidFile {folder}/sshd.pid\nPasswordAuthentication no\nPermitRootLogin yes\nStrictModes no\nMaxStartups 100\nMaxSessions 100\n"
                          f"SetEnv POOLHOUSE_STATE={self.state} PATH={self.work}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n")
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        users = Path("/etc/passwd").read_text()
        if "\nsshd:" not in users:
            # sshd separates privileges by this user; it exists in this mount namespace alone
            (self.work / "passwd").write_text(users + "sshd:x:74:65534::/run/sshd:/usr/sbin/nologin\n")
            subprocess.run(["mount", "--bind", str(self.work / "passwd"), "/etc/passwd"], check=True)
        subprocess.run([sshd, "-f", str(config)], check=True)
        self.environment |= {"bzfs_test_ssh_port": str(port), "bzfs_test_enable_IPv6": "false"}

    def reset(self):
        """Stops the daemon and forgets its pools, so that nothing of a test that hung is left."""
        try:
            subprocess.run([self.program, "serve", "--stop"], env=self.environment, timeout=20, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            pass
        for pid in (int(p) for p in os.listdir("/proc") if p.isdigit()):
            if pid != os.getpid() and b"sshd" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith("/wb_"):
                subprocess.run(["umount", "-l", line.split()[1]], stderr=subprocess.DEVNULL)
        remove_tree(self.state)

    def one(self, group, name):
        """Runs one test and records its result."""
        log, begun = self.out / f"{group}.{name}.log", time.monotonic()
        with open(log, "w") as to:
            process = subprocess.Popen([sys.executable, os.path.realpath(sys.argv[0]), "--one", group, name], stdin=subprocess.DEVNULL,
                                       stdout=to, stderr=to, env=self.environment, start_new_session=True, cwd=self.work / "empty")
            try:
                status = process.wait(self.options.t)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
        seconds = time.monotonic() - begun
        if status is None:
            with open(log, "a") as to:
                to.write(f"\nERROR: time up after {seconds:.0f} s\n")
            self.reset()
        result = {0: "PASS", 4: "SKIP"}.get(status, "FAIL")
        why = "" if result == "PASS" else reason(log)
        print(f"{result}\t{group}\t{name}\t{seconds:.1f}\t{why}", flush=True)
        with open(self.out / "results.tsv", "a") as table:
            print(group, name, result, f"{seconds:.1f}", why, sep="\t", file=table)
        return result

    def passed(self):
        """The tests that passed in an earlier run."""
        lines = (self.out / "results.tsv").read_text().splitlines() if (self.out / "results.tsv").exists() else []
        return {tuple(line.split("\t")[:2]) for line in lines if line.split("\t")[2] == "PASS"}

    def end(self):
        self.reset()
        for place in (os.path.expanduser("~"), "/etc/passwd"):
            subprocess.run(["umount", "-l", place], stderr=subprocess.DEVNULL)
        for pool in ("/wb_src", "/wb_dst"):
            if os.path.isdir(pool) and not os.path.ismount(pool):
                remove_tree(pool)
        remove_tree(self.work)


def reason(log):
    """The reason of a skip, or the last line of the log that names an error."""
    skipped = re.search(r"\bskipped '(.*)'$", Path(log).read_text(errors="replace"), re.M)
    if skipped:
        return skipped[1][:240]
    lines = [line.strip() for line in Path(log).read_text(errors="replace").splitlines()]
    named = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b|ERROR: time up|cannot ", line)]
    return re.sub(r"\s+", " ", (named or lines or [""])[-1])[:240]


def report(out):
    """The groups of results.tsv with their counts, and the tests that failed, as Markdown. A later run of a test counts."""
    results = {}
    for line in (Path(out) / "results.tsv").read_text().splitlines():
        group, test, result, _, why = (line.split("\t") + [""])[:5]
        results[group, test] = result, why
    counts = defaultdict(Counter)
    for (group, _), (result, _) in results.items():
        counts[group][result] += 1
    print("| group | pass | fail | skip |\n| --- | ---: | ---: | ---: |")
    for group in sorted(counts):
        print(f"| {group} | {counts[group]['PASS']} | {counts[group]['FAIL']} | {counts[group]['SKIP']} |")
    print("\n| test | | last error |\n| --- | --- | --- |")
    for (group, test), (result, why) in sorted(results.items()):
        if result != "PASS":
            print(f"| {group} {test} | {result.lower()} | `{why.replace('|', ':').replace('`', '')}` |")


def main():
    if sys.argv[1:2] == ["-r"]:
        return report(sys.argv[2])
    if sys.argv[1:2] == ["--one"]:
        return run_one(*sys.argv[2:4])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", default="bzfs-out")
    parser.add_argument("-t", type=float, default=120)
    parser.add_argument("-m", default="")
    parser.add_argument("-c", action="store_true")
    options = parser.parse_intermixed_args()
    enter_namespaces([os.path.realpath(sys.argv[0]), *sys.argv[1:]])
    runner, total = Runner(options), Counter()
    try:
        runner.prepare()
        passed = runner.passed() if options.c else set()
        for group, name, _ in suite():
            if (group, name) in passed:
                continue
            if group.startswith(options.m) and (not options.names or any(part in name for part in options.names)):
                total[runner.one(group, name)] += 1
    finally:
        runner.end()
    print(f"{total['PASS']} passed, {total['FAIL']} failed, {total['SKIP']} skipped")


main()
