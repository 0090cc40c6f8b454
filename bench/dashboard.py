"""The client of bench/dashboard.sh: PORT LINK SECONDS STATE. It logs in by the setup link and measures."""

import http.client
import os
import sys
import threading
import time
import urllib.parse

BROWSERS = 50
PAUSE = 3.0
port, link, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])


def request(method, path, body="", headers={}):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer, text


def log_in():
    form = urllib.parse.urlencode({"password": "correct horse battery", "repeated": "correct horse battery"})
    answer, _ = request("POST", urllib.parse.urlsplit(link).path, form)
    return {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}


def daemon_pid():
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{number}/cmdline").read().split("\0")
        except OSError:
            continue
        if "serve" in words and sys.argv[4] in words:
            return number
    sys.exit("the daemon was not found")


def core_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load_for(pid, duration):
    begin, used = time.monotonic(), core_seconds(pid)
    time.sleep(duration)
    return (core_seconds(pid) - used) / (time.monotonic() - begin) * 100


def browse(session, end, times):
    while time.monotonic() < end:
        begin = time.monotonic()
        answer, _ = request("GET", "/", headers={**session, "x-live": "1"})
        assert answer.status == 200, answer.status
        times.append(time.monotonic() - begin)
        time.sleep(PAUSE)


def shown(times):
    times = sorted(time * 1000 for time in times)
    at = lambda part: times[min(len(times) - 1, int(len(times) * part))]
    return f"median {at(0.5):.1f} ms, 95 % {at(0.95):.1f} ms, slowest {times[-1]:.1f} ms"


def main():
    session = log_in()
    time.sleep(5)
    pid = daemon_pid()
    times = []
    for _ in range(100):
        begin = time.monotonic()
        _, text = request("GET", "/", headers=session)
        times.append(time.monotonic() - begin)
    print(f"first page, {len(text)} bytes, one browser: {shown(times)}")
    alone = load_for(pid, seconds / 2)
    times, end = [], time.monotonic() + seconds
    threads = []
    for number in range(BROWSERS):
        thread = threading.Thread(target=browse, args=(session, end, times))
        thread.start()
        threads.append(thread)
        time.sleep(PAUSE / BROWSERS)
    busy = load_for(pid, seconds - 2 * PAUSE)
    for thread in threads:
        thread.join()
    print(f"first page, {BROWSERS} browsers: {shown(times)}")
    print(f"the daemon takes {busy:.1f} % of a core with them, {alone:.1f} % without (the scrub, and looks at drives)")


main()
