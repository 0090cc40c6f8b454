#!/usr/bin/env python3
"""make test-web: the dashboard of a demonstration NAS in a headless browser.

A daemon gets 24 drive files with recorded SMART reports, one of them failing, and three pools of 21 of them. A proxy
adds the session's cookie, as the browser has no way to log in without a person. Each page is opened in light, in dark
and as wide as a phone. A probe measures that nothing is wider than the screen, axe-core (from npm) finds nothing that
keeps out a keyboard or a screen reader, and the browser must not complain. Then actions run by their forms against
the real pools. The pictures are in target/web. `web.py NAME...` opens only these pages.
"""

import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(os.environ.get("POOLHOUSE", ROOT / "target/debug/poolhouse")).resolve()
RECORDINGS = ROOT / "house/health/tests/data/scrutiny"
REPORTS = ["smart-ata2", "smart-nvme2", "smart-ata-failed-scrutiny", "smart-ata2", "smart-nvme2", "smart-ata2"]
BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
PASSWORD = "correct horse battery"
VIEWS = {
    "light": ["--window-size=1440,900"],
    "dark": ["--window-size=1440,900", "--blink-settings=preferredColorScheme=0"],
    "phone": ["--window-size=390,844"],
}
AXE = "axe-core@4.14.1"
PROBE = b"""<script src="/axe.js"></script><script>
addEventListener("load", async () => {
  const options = { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] };
  const judged = window.axe ? await axe.run(document, options) : { violations: [] };
  const place = document.createElement("pre");
  place.id = "found";
  place.textContent = JSON.stringify({
    wide: document.documentElement.scrollWidth, screen: innerWidth, high: document.documentElement.scrollHeight,
    lowest: Math.max(0, ...["pools", "drives", "bays"].map(
      (id) => document.getElementById(id)?.getBoundingClientRect().bottom ?? 0)),
    axe: judged.violations.map((it) => it.id + ": " + it.nodes[0].html.slice(0, 120)), judged: Boolean(window.axe),
  });
  document.body.append(place);
});
</script></head>"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nas:
    """A daemon with drive files and recorded reports."""

    def __init__(self, place):
        self.place, self.port, self.cookie = place, free_port(), ""
        nut = free_port()
        self.case = subprocess.Popen([sys.executable, ROOT / "tools/chassis.py", place / "case", str(nut)])
        state = place / "state"
        state.mkdir()
        drives = [place / f"sd{letter}" for letter in "abcdefghijklmnopqrstuvwx"]
        self.drives = drives
        reports = REPORTS * 4
        reports[4], reports[9] = "smart-fail2", "smart-scsi"
        serials = []
        for drive, report in zip(drives, reports):
            with open(drive, "wb") as file:
                file.truncate(256 << 20)
            found = json.loads((RECORDINGS / f"{report}.json").read_text())
            found["serial_number"] = f"SN{drive.name.upper()}01"
            serials.append(found["serial_number"])
            (place / f"{drive.name}.json").write_text(json.dumps(found))
        smartctl = place / "smartctl"
        smartctl.write_text('#!/bin/sh\nfor last; do :; done\nfile=${0%/*}/${last##*/}.json\n'
                            '[ -e "$file" ] || { echo "{}"; exit 2; }\ncat "$file"\n')
        smartctl.chmod(0o755)
        named = "".join(f'[[health.drives]]\npath = "{drive}"\n' for drive in drives)
        bays = json.dumps([serials[at:at + 6] for at in range(0, 24, 6)])
        (state / "config.toml").write_text(
            f'[health]\nsmartctl = "{smartctl}"\n{named}[bays]\nrows = {bays}\n[web]\nlisten = {self.port}\n'
            f'[fans]\nhwmon = "{place}/case/hwmon"\ninterval = 1\n[[fans.fan]]\nname = "front"\n'
            f'chip = "simfan"\npwm = 1\n[[fans.fan]]\nname = "rear"\nchip = "simfan"\npwm = 2\n'
            f'[ups]\nserver = "nut://127.0.0.1:{nut}/demo"\n')
        for at, pool in enumerate(["archive", "backup", "tank"]):
            members = map(str, drives[8 * at:8 * at + 8][:5 if pool == "tank" else 8])
            self.run("zpool", "create", "-m", "none", pool, "raidz2", *members)
        self.run("drives", "list", "--now", check=False)
        self.run("zpool", "scrub", "tank")
        self.run("zfs", "create", "-u", "tank/photos")
        for name in ("monday", "tuesday"):
            self.run("zfs", "snapshot", f"tank/photos@{name}")
        key = place / "key"
        key.write_text("correct horse")
        self.run("zfs", "create", "-u", "-o", "encryption=on", "-o", "keyformat=passphrase", "-o",
                 f"keylocation=file://{key}", "tank/private")
        self.run("zfs", "unload-key", "tank/private")
        self.run("config", "add", "policy", "dataset=tank/photos", "daily=7", "weekly=4")
        self.run("config", "add", "replica", "name=second", "source=tank/photos", "target=backup/photos", "max-age=2d")
        self.location = f"file://{place}/backup"
        self.run("config", "add", "repository", f"location={self.location}")
        self.run("config", "add", "repository", f"location=file://{place}/second")
        self.run_alone("backup", "init", self.location)
        # a file of its own file system, where this machine mounts
        self.run("zfs", "create", "-o", f"mountpoint={place}/docs", "tank/docs", check=False)
        self.has_docs = (place / "docs").is_mount()
        if self.has_docs:
            (place / "docs/letters").mkdir()
            (place / "docs/letters/will.txt").write_text("the cat inherits")
        self.run("zfs", "snapshot", "-r", "tank@night")
        self.run("backup", "run", "-r", self.location, "tank@night")
        (state / "bench").mkdir()
        for name in ("before", "after"):
            self.run_alone("bench", "path", place, "--size", "4M", "--seconds", "0.2", "--files", "5", "--only",
                           "write-1m-q1,read-1m-q1", "-q", "--label", name, "-o", state / f"bench/{name}.json")
        self.run("share", "add", "smb", "tank/photos", "-o", "users=anna", check=False)

    def run_alone(self, *words):
        """A command that needs no daemon."""
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            sys.exit(f"{words}: {done.stderr}")

    def run(self, *words, check=True):
        command = [PROGRAM, *words, "--state", self.place / "state"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            sys.exit(f"{words}: {done.stderr}")
        return done.stdout

    def request(self, method, path, fields=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        form = urllib.parse.urlencode(fields or {})
        connection.request(method, path, form, {"Cookie": self.cookie})
        answer = connection.getresponse()
        return answer, answer.read().decode()

    def log_in(self):
        link = re.search(r"http://\S+", self.run("web", "setup")).group()
        fields = {"password": PASSWORD, "repeated": PASSWORD}
        answer, _ = self.request("POST", urllib.parse.urlsplit(link).path, fields)
        assert answer.status == 303, answer.status
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]

    def act(self, action, **fields):
        self.act_list(action, list(fields.items()))

    def act_list(self, action, fields):
        """Runs an action as a browser does: first the question, which shows the command, then the form."""
        _, question = self.request("GET", f"/do/{action}?{urllib.parse.urlencode(fields)}")
        csrf = re.search(r'name="csrf" value="(\w+)"', question)
        if not csrf or "poolhouse " not in question:
            sys.exit(f"{action}: {question}")
        answer, text = self.request("POST", f"/do/{action}", fields + [("csrf", csrf.group(1))])
        if answer.status != 303 and "Done, with warnings" not in text:
            sys.exit(f"{action}: {answer.status} {text}")

    def wait_for(self, path, text):
        end = time.monotonic() + 120
        while text not in (shown := self.request("GET", path)[1]):
            if time.monotonic() > end:
                sys.exit(f"{path} does not show '{text}': {shown}")
            time.sleep(0.5)

    def measure(self):
        """The milliseconds of the first page: the median of 50, and the slowest."""
        times = []
        for _ in range(50):
            begin = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("GET", "/", headers={"Cookie": self.cookie})
            body = connection.getresponse().read()
            times.append((time.monotonic() - begin) * 1000)
        times.sort()
        return f"{len(body)} bytes in {times[25]:.1f} ms, at most {times[-1]:.1f} ms"


def make_proxy(nas, axe):
    """A server that adds the cookie; with axe-core it also lets the page run scripts of ours."""
    with_probe = axe is not None

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/axe.js":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(axe)
                return
            connection = http.client.HTTPConnection("127.0.0.1", nas.port, timeout=60)
            connection.request("GET", self.path, headers={"Cookie": nas.cookie})
            answer = connection.getresponse()
            body = answer.read()
            if with_probe:
                body = body.replace(b"</head>", PROBE)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding") and not (
                        with_probe and name.lower() == "content-security-policy"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def browse(browser, profile, url, *options):
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
               "--virtual-time-budget=4000", "--enable-logging=stderr", f"--user-data-dir={profile}", *options, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, complaints


def pages_of(nas):
    old = urllib.parse.quote(str(nas.drives[4]), safe="")
    chosen = "&".join(f"drive={urllib.parse.quote(str(drive))}" for drive in nas.drives[21:])
    return {
        "first": "/", "drive": "/drives/SNSDE01", "pool": "/pools/tank", "replace": f"/pools/archive/replace/{old}",
        "question": "/do/scrub?pool=tank", "destroy": "/do/destroy-snapshot?snapshot=tank/photos@monday",
        "datasets": "/datasets", "dataset": "/datasets/tank%2Fphotos",
        "files": "/datasets/tank%2Fphotos/files?at=monday&path=", "shares": "/shares", "copies": "/copies",
        "alerts": "/alerts", "users": "/users", "account": "/account", "totp": "/account/totp",
        "new-pool": f"/new-pool?{chosen}", "login": "/login", "imports": "/imports",
        "replica": "/do/add-replica?name=offsite&source=tank/photos&target=archive/photos&every=daily",
        "locked": "/datasets/tank%2Fprivate", "restore": "/do/restore?snapshot=tank/photos@monday&path=summer&folder=1",
        "repository": f"/repositories?{urllib.parse.urlencode({'location': nas.location})}",
        "backed-up": "/repositories/files?" + urllib.parse.urlencode(
            {"location": nas.location, "dataset": "tank/docs" if nas.has_docs else "tank", "at": "night", "path": ""}),
        "benchmarks": "/benchmarks", "report": "/benchmarks/report?file=before.json&file=after.json",
        "add": f"/pools/tank/add?{chosen}", "burn-in": f"/do/burn-in?drive={nas.drives[23].name}",
    }


def run_actions(nas):
    """The actions against the real pools: each is seen on a page, and in the history of the pool."""
    nas.act("scrub", pool="tank")
    nas.act("snapshot", dataset="tank/photos", name="by-web")
    nas.wait_for("/datasets/tank%2Fphotos", "by-web")
    nas.act("rollback", snapshot="tank/photos@by-web", typed="tank/photos@by-web")
    nas.act("destroy-snapshot", snapshot="tank/photos@by-web", typed="tank/photos@by-web")
    nas.act("create-filesystem", name="tank/music")
    old, new = map(str, (nas.drives[4], nas.drives[21]))
    nas.act("locate", drive="SNSDE01", pool="archive", guide=old)
    nas.act("offline", pool="archive", device=old, guide=old)
    nas.act("replace", pool="archive", device=old, guide=old, new=new, path="")
    nas.wait_for(f"/pools/archive/replace/{urllib.parse.quote(old, safe='')}", "is no part of pool archive")
    pair = [str(drive) for drive in nas.drives[22:]]
    nas.act_list("create-pool", [("pool", "fresh"), ("layout", "mirror 2"), ("typed", "fresh")] + [("drive", it) for it in pair])
    nas.wait_for("/", "fresh")
    nas.act("share", protocol="nfs", dataset="tank/photos", networks="192.0.2.0/24", users="")
    nas.wait_for("/shares", "tank/photos")
    nas.act("unshare", protocol="nfs", name="tank/photos")
    nas.act("replicate", name="second")
    nas.wait_for("/copies", "Brought up to date")
    nas.act("add-policy", dataset="tank/music", daily="7")
    nas.act("remove-policy", dataset="tank/music")
    nas.act("remove-replica", name="second")
    second = f"file://{nas.place}/second"
    nas.act("create-repository", location=second)
    nas.act("backup", location=second, dataset="tank/photos", recursive="1")
    nas.wait_for(f"/repositories?{urllib.parse.urlencode({'location': second})}", "tuesday")
    if nas.has_docs:
        (nas.place / "docs/letters/will.txt").unlink()
        nas.act("restore", snapshot="tank/docs@night", path="letters/will.txt", repository=nas.location)
        restored = nas.place / "docs/letters/will (night).txt"
        if restored.read_text() != "the cat inherits":
            sys.exit(f"{restored} is not what it was")
    nas.act("remove-repository", location=second)
    nas.act("export", pool="fresh")
    found = f"/imports?dir={urllib.parse.quote(str(nas.place), safe='')}"
    nas.wait_for(found, "pool=fresh")
    guid = re.search(r"pool=fresh&amp;guid=(\d+)", nas.request("GET", found)[1]).group(1)
    nas.act("import", pool="fresh", guid=guid, dir=str(nas.place))
    nas.wait_for("/", "fresh")
    nas.act("set-property", dataset="tank/photos", property="quota", value="1G")
    nas.act("set-property", dataset="tank/photos", property="atime", value="off")
    nas.act("inherit-property", dataset="tank/photos", property="atime")
    history = nas.run("zpool", "history", "tank", "archive")
    for command in ("zpool scrub tank", "zfs snapshot tank/photos@by-web", f"zpool replace archive {old} {new}"):
        if command not in history:
            sys.exit(f"the history has no '{command}': {history}")


def fetch_axe(target):
    """axe-core as one script; without npm the pages are not judged by it."""
    script = target / "package/axe.min.js"
    if not script.exists() and shutil.which("npm"):
        subprocess.run(["npm", "pack", "--silent", AXE], cwd=target, capture_output=True, timeout=120)
        for package in target.glob("axe-core-*.tgz"):
            subprocess.run(["tar", "-xzf", package, "package/axe.min.js"], cwd=target, timeout=60)
    return script.read_bytes() if script.exists() else b""


def check(browser, nas, target, profile, chosen):
    axe = fetch_axe(target)
    if not axe:
        print("left out: axe-core (no npm, or no network)")
    pages = {name: path for name, path in pages_of(nas).items() if not chosen or name in chosen}
    plain, probing = make_proxy(nas, None), make_proxy(nas, axe)
    failures = []
    for page, path in pages.items():
        for view, options in VIEWS.items():
            picture = target / f"{page}-{view}.png"
            _, complaints = browse(browser, profile, plain + path, *options, f"--screenshot={picture}")
            failures += [f"{page} {view}: {complaint}" for complaint in complaints]
            dom, _ = browse(browser, profile, probing + path, *options, "--dump-dom")
            found = re.search(r'<pre id="found">(.*?)</pre>', dom)
            if not found:
                failures.append(f"{page} {view}: it was not shown")
                continue
            facts = json.loads(found.group(1))
            print(f"{page} {view}: {facts}", flush=True)
            # pools, drives and bays are seen without scrolling
            scrolls = view != "phone" and facts["lowest"] > 900
            if facts["wide"] > facts["screen"] or facts["axe"] or scrolls or (axe and not facts["judged"]):
                failures.append(f"{page} {view}: {facts}")
    return failures


def main():
    browser = next(filter(shutil.which, BROWSERS), None)
    if browser is None:
        sys.exit("no browser is installed (Debian: chromium-headless-shell)")
    target = ROOT / "target/web"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ph-web-") as place:
        nas = None
        try:
            nas = Nas(pathlib.Path(place))
            nas.log_in()
            time.sleep(5)  # two looks of the daemon
            print(f"first page: {nas.measure()}")
            failures = check(browser, nas, target, pathlib.Path(place) / "profile", sys.argv[1:])
            run_actions(nas)
        finally:
            subprocess.run([PROGRAM, "serve", "--stop", "--state", pathlib.Path(place) / "state"],
                           capture_output=True, timeout=120)
    print(f"pictures: {target}")
    if failures:
        sys.exit("\n".join(failures))


main()
