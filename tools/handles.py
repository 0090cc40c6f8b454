#!/usr/bin/env python3
"""Comes back to files by their handles, as NFS servers do, after the kernel has forgotten them.

    handles.py FOLDER       a folder of the file system that is examined; takes root
"""

import ctypes
import errno
import os
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, MOST = -100, 128


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * MOST)]


def handle_of(path):
    handle, mount = Handle(bytes=MOST), ctypes.c_int()
    where = [AT_FDCWD, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0]
    if LIBC.name_to_handle_at(*where) < 0:
        raise OSError(ctypes.get_errno(), f"{path} has no handle")
    return handle


def opened(mount, handle):
    number = LIBC.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
    if number < 0:
        raise OSError(ctypes.get_errno(), "a handle is not known any more")
    return number


def forget():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("2")


def main(folder):
    top = os.path.join(folder, "handles")
    inner = os.path.join(top, "one", "two")
    os.makedirs(inner)
    paths = [os.path.join(inner, str(index)) for index in range(100)]
    for path in paths:
        with open(path, "w") as file:
            file.write(path)
    handles, directory = [handle_of(path) for path in paths], handle_of(inner)
    forget()
    mount = os.open(folder, os.O_RDONLY)
    for path, handle in zip(paths, handles):
        with os.fdopen(opened(mount, handle)) as file:
            assert file.read() == path, path
    forget()
    number = opened(mount, directory)
    # the way up to the root is found
    assert os.readlink(f"/proc/self/fd/{number}") == os.path.realpath(inner)
    os.close(number)

    # gone, and its number may be another's
    for path in paths[:50]:
        os.remove(path)
    for index in range(200):
        with open(os.path.join(top, str(index)), "w") as file:
            file.write("another")
    forget()
    for handle in handles[:50]:
        try:
            os.close(opened(mount, handle))
            raise AssertionError("a file that is gone was found by its handle")
        except OSError as why:
            assert why.errno == errno.ESTALE, why
    for path, handle in zip(paths[50:], handles[50:]):
        with os.fdopen(opened(mount, handle)) as file:
            assert file.read() == path, path
    os.close(mount)
    print("handles: 100 files and a directory were found again, 50 that are gone were not")


main(sys.argv[1])
