"""Namespaces and folders of the programs that run other projects' suites (zts.py, bzfs.py)."""
import os, subprocess, sys
from pathlib import Path


def enter_namespaces(arguments):
    """Starts this program again, with these arguments, as the first process of mount and process namespaces of its own."""
    if os.environ.get("SUITE_NAMESPACES") != "1":
        command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvpe("unshare", [*command, sys.executable, *arguments], {**os.environ, "SUITE_NAMESPACES": "1"})


def remove_tree(folder):
    """Removes a folder of ours. A mount below it stops the removal, which would delete the mount's own files."""
    folder = os.path.realpath(folder)
    mounts = [line.split()[4].replace("\\040", " ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [mount for mount in mounts if mount == folder or mount.startswith(folder + "/")]
    if below:
        print(f"{folder} stays: {below[0]} is mounted", flush=True)
        return
    subprocess.run(["rm", "-rf", "--one-file-system", "--", folder], stderr=subprocess.DEVNULL)
