#!/usr/bin/env python3
"""cuts.py STREAM [N]: a number and the end of each N-th record of a stream (docs/format), in bytes; without END's."""
import struct, sys

stream, step = open(sys.argv[1], "rb").read(), int(sys.argv[2]) if len(sys.argv) > 2 else 1
RECORD = 312
BEGIN, OBJECT, WRITE, END, SPILL, EMBEDDED = 0, 1, 3, 5, 7, 8


def payload(at):
    """Bytes behind the record."""
    kind, length = struct.unpack_from("<II", stream, at)
    body = at + 8
    if kind == BEGIN:
        return length
    if kind == OBJECT:
        bonus, raw = struct.unpack_from("<I", stream, body + 20)[0], struct.unpack_from("<I", stream, body + 28)[0]
        return raw or (bonus + 7) // 8 * 8
    if kind == WRITE:
        return struct.unpack_from("<Q", stream, body + 88)[0] or struct.unpack_from("<Q", stream, body + 24)[0]
    if kind == SPILL:
        return struct.unpack_from("<Q", stream, body + 32)[0] or struct.unpack_from("<Q", stream, body + 8)[0]
    if kind == EMBEDDED:
        return (struct.unpack_from("<I", stream, body + 44)[0] + 7) // 8 * 8
    return 0


at = number = 0
while at < len(stream) and struct.unpack_from("<I", stream, at)[0] != END:
    at += RECORD + payload(at)
    number += 1
    # of a stream that ends behind BEGIN nothing is received
    if number > 1 and number % step == 0:
        print(number, at)
assert at + RECORD == len(stream), (at, len(stream))
