"""A wire of a certain speed: forwards TCP connections of a port to another one of this machine.

    wire.py PORT TARGET BYTES-PER-SECOND

Each direction has its speed, which all connections share.
"""

import socket
import sys
import threading
import time

CHUNK = 64 << 10


class Direction:
    """The bytes of one direction wait until the wire has room for them."""

    def __init__(self, rate):
        self.rate, self.free, self.lock = rate, time.monotonic(), threading.Lock()

    def wait(self, count):
        with self.lock:
            # a pause of the wire is not made up for by a burst of more than 20 ms
            begin = max(self.free, time.monotonic() - 0.02)
            self.free = begin + count / self.rate
            rest = self.free - time.monotonic()
        if rest > 0:
            time.sleep(rest)


def forward(source, target, direction):
    try:
        while data := source.recv(CHUNK):
            direction.wait(len(data))
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def main():
    port, target, rate = (int(word) for word in sys.argv[1:])
    there, back = Direction(rate), Direction(rate)
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            client, _ = listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", target))
            except OSError:
                client.close()
                continue
            for pair in ((client, server, there), (server, client, back)):
                threading.Thread(target=forward, args=pair, daemon=True).start()


main()
