#!/usr/bin/env python3
"""make test-web: the dashboard of a demonstration NAS in a headless browser.

A daemon gets 24 drive files with recorded SMART reports, one of them failing, and three pools. A proxy adds the
session's cookie, as the browser has no way to log in without a person. Each page is opened in light, in dark and as
wide as a phone; a probe measures that nothing is wider than the screen, and the browser must not complain. The
pictures are in target/web.
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
PROBE = b"""<script>
addEventListener("load", () => {
  const place = document.createElement("pre");
  place.id = "found";
  place.textContent = JSON.stringify({
    wide: document.documentElement.scrollWidth, screen: innerWidth, high: document.documentElement.scrollHeight,
    lowest: Math.max(0, ...["pools", "drives", "bays"].map(
      (id) => document.getElementById(id)?.getBoundingClientRect().bottom ?? 0)),
    unnamed: [...document.querySelectorAll("button, a, input:not([type=hidden])")].filter(
      (it) => !it.textContent.trim() && !(it.labels && it.labels.length)).length,
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
            members = map(str, drives[8 * at:8 * at + 8])
            self.run("zpool", "create", "-m", "none", pool, "raidz2", *members)
        self.run("drives", "list", "--now", check=False)
        self.run("zpool", "scrub", "tank")

    def run(self, *words, check=True):
        command = [PROGRAM, *words, "--state", self.place / "state"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            sys.exit(f"{words}: {done.stderr}")
        return done.stdout

    def log_in(self):
        link = re.search(r"http://\S+", self.run("web", "setup")).group()
        form = urllib.parse.urlencode({"password": PASSWORD, "repeated": PASSWORD})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", urllib.parse.urlsplit(link).path, form)
        answer = connection.getresponse()
        assert answer.status == 303, answer.status
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]


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


def make_proxy(nas, with_probe):
    """A server that adds the cookie; with the probe it also lets the page run a script of ours."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
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


def check(browser, nas, target, profile):
    plain, probing = make_proxy(nas, False), make_proxy(nas, True)
    failures = []
    for page, path in {"first": "/", "drive": "/drives/SNSDE01", "scrub": "/pools/tank/scrub", "login": "/login"}.items():
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
            print(f"{page} {view}: {facts}")
            # pools, drives and bays are seen without scrolling
            scrolls = view != "phone" and facts["lowest"] > 900
            if facts["wide"] > facts["screen"] or facts["unnamed"] or scrolls:
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
            failures = check(browser, nas, target, pathlib.Path(place) / "profile")
        finally:
            subprocess.run([PROGRAM, "serve", "--stop", "--state", pathlib.Path(place) / "state"],
                           capture_output=True, timeout=120)
    print(f"pictures: {target}")
    if failures:
        sys.exit("\n".join(failures))


main()
