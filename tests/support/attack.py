"""What one unprivileged user can do to the daemons of a system mesh, all at once, as a program of its own.

``python attack.py RUN SECONDS [--only PART,…] [--pct HOST:PORT] [--database URL] [--spin]``: each part is a process
(``--spin``: as many processes that only spin, to compare with). RUN is the mesh's run directory. With ``--database``
the viewers' account opens 150 connections, asks for locks and sleeps. Standard library, and PyMySQL for the database.
"""

import argparse
import errno
import glob
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
import urllib.parse

HEADER = struct.Struct("!BI")
IDLE, UNFINISHED, NESTED, ASKING, KNOCKING = 21_000, 200, 40, 64, 64
LONGEST = 8 << 20
DATABASE_CONNECTIONS = 150


def frame(payload):
    return HEADER.pack(0, len(payload)) + payload


HELLO = frame(b'{"op":"hello","protocol":1,"role":"launcher","name":""}')


def nested(size, op=b"would_allocate"):
    """A control frame of ``size`` bytes of lists."""
    begin, end = b'{"op":"%s","id":1,"x":[' % op, b"[]]}"
    return frame(begin + b"[]," * ((size - len(begin) - len(end)) // 3) + end)


def connect(path):
    """A connection that never blocks, or None."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        return None
    return sock


class Crowd:
    """``count`` connections to ``paths``, each of which says hello and ``text``: once, or (``cycles``) for ever."""

    def __init__(self, paths, count, text=b"", *, cycles=True, reads=False):
        self.paths, self.count, self.text, self.cycles, self.reads = paths, count, text, cycles, reads
        self.poll = select.epoll()
        self.socks = {}  # descriptor → socket, bytes of its text that were sent, whether hello was
        self.made = self.ended = self.failed = 0

    def fill(self):
        """More connections, a hundred at a time."""
        for _ in range(min(100, self.count - len(self.socks))):
            sock = connect(self.paths[self.made % len(self.paths)])
            if sock is None:
                self.failed += 1
                return
            self.made += 1
            self.socks[sock.fileno()] = [sock, 0, False]
            self.watch(sock, writes=bool(self.text))

    def watch(self, sock, *, writes):
        mask = select.EPOLLRDHUP | (select.EPOLLIN if self.reads else 0) | (select.EPOLLOUT if writes else 0)
        try:
            self.poll.register(sock, mask)
        except FileExistsError:
            self.poll.modify(sock, mask)

    def turn(self):
        """Say what the sockets take; let go of those that were closed."""
        for fd, events in self.poll.poll(0.02, 256):
            one = self.socks[fd]
            try:
                if events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
                    raise OSError
                if events & select.EPOLLIN:
                    one[0].recv(1 << 16)
                if events & select.EPOLLOUT:
                    self.say(one)
            except BlockingIOError:
                pass
            except OSError:
                self.drop(fd)

    def say(self, one):
        sock, sent, greeted = one
        text = self.text if greeted else HELLO
        one[1] = sent + sock.send(text[sent : sent + (1 << 18)])
        if one[1] >= len(text):
            one[1:] = 0, True
            if not self.cycles and (greeted or not self.text.strip()):
                self.watch(sock, writes=False)

    def drop(self, fd):
        sock = self.socks.pop(fd)[0]
        self.poll.unregister(fd)
        sock.close()
        self.ended += 1

    def run(self, seconds):
        until = time.monotonic() + seconds
        most = 0
        while time.monotonic() < until:
            self.fill()
            self.turn()
            most = max(most, len(self.socks))
        return {"made": self.made, "ended": self.ended, "failed": self.failed, "most": most, "kept": len(self.socks)}


def idle(options):
    """As many connections as this process may have, that say nothing; those that are closed are opened again."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 50
    return Crowd(options.paths, min(most, IDLE)).run(options.seconds)


def greeted(options):
    """As :func:`idle`, and each says hello, so that none is let go."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 50
    return Crowd(options.paths, min(most, IDLE), b" ", cycles=False).run(options.seconds)


def unfinished(options):
    """Frames that are announced with 8 MiB, or just what is allowed, and never end."""
    large = HEADER.pack(0, LONGEST) + b" " * (LONGEST - 1)
    named = HEADER.pack(0, (1 << 20) - 5) + b'{"op":"would_allocate","x":"' + b"x" * (1 << 19)
    small = HEADER.pack(0, 65_000) + b'{"op":"would_allocate","x":"' + b"x" * 64_000
    counts = {large: UNFINISHED, named: UNFINISHED, small: 10 * UNFINISHED}
    crowds = [Crowd(options.paths, count, text, cycles=False) for text, count in counts.items()]
    return together(crowds, options.seconds)


def bombs(options):
    """JSON that takes long to read, in frames of every size."""
    sizes = (LONGEST, 1 << 20, 60 << 10)
    crowds = [Crowd(options.paths, NESTED, nested(size), reads=True) for size in sizes]
    return together(crowds, options.seconds)


def requests(options):
    """Requests without end, of which some are work, and whose answers are never read."""
    asked = [
        b'{"op":"would_allocate","id":1,"size":1}', b'{"op":"idle","id":2}', b'{"op":"status","id":3}',
        b'{"op":"launchers_of","id":4,"login":"x"}', b'{"op":"nonsense","id":5}',
    ]  # fmt: skip
    text = b"".join(map(frame, asked)) * 100
    crowds = [Crowd(options.paths, ASKING, text, reads=reads) for reads in (False, True)]
    return together(crowds, options.seconds)


def knocking(options):
    """Connections that are closed at once."""
    until, made, failed = time.monotonic() + options.seconds, 0, 0
    while time.monotonic() < until:
        for path in options.paths:
            sock = connect(path)
            if sock is None:
                failed += 1
            else:
                made += 1
                sock.close()
    return {"made": made, "failed": failed}


def pct(options):
    """Connections to a PCT's port that say nothing."""
    host, _, port = options.pct.rpartition(":")
    until, made, kept = time.monotonic() + options.seconds, 0, []
    while time.monotonic() < until:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = sock.connect_ex((host, int(port)))
        made += code in (0, errno.EINPROGRESS)
        kept.append(sock)
        if len(kept) > 500:
            kept.pop(0).close()
        time.sleep(0.001)
    return {"made": made}


#: Everything by which an account of viewers could lock the rows that every launch needs.
LOCKING = (
    "set session transaction isolation level serializable", "begin", "call counter()", "call reading(null, 0)",
    "select * from mesh lock in share mode", "select * from mesh for update", "do sleep(0.01)",
)  # fmt: skip


def database(options):
    """The viewers' account: as many connections as it may have, each asking for locks and holding what it gets."""
    import pymysql

    url = urllib.parse.urlsplit(options.database)
    query = dict(urllib.parse.parse_qsl(url.query))
    words = {"user": url.username, "password": url.password or "", "database": url.path.strip("/")}
    where = {"unix_socket": query["unix_socket"]} if "unix_socket" in query else {"host": url.hostname}
    connections, counts = [], {"connections": 0, "refused": 0, "done": 0, "denied": 0}
    until = time.monotonic() + options.seconds
    while time.monotonic() < until:
        while len(connections) < DATABASE_CONNECTIONS:
            try:
                connections.append(pymysql.connect(**words, **where))
            except pymysql.Error:
                counts["refused"] += 1
                break
        counts["connections"] = max(counts["connections"], len(connections))
        for one in list(connections):
            for statement in LOCKING:
                try:
                    with one.cursor() as cursor:
                        cursor.execute(statement)
                        while cursor.nextset():
                            pass
                    counts["done"] += 1
                except pymysql.Error as error:
                    counts["denied"] += 1
                    if not one.open or error.args[0] in (2006, 2013):
                        connections.remove(one)
                        break
        time.sleep(0.5)
    return counts


def spin(options):
    """Nothing but work for a processor."""
    until = time.monotonic() + options.seconds
    while time.monotonic() < until:
        pass
    return {}


def together(crowds, seconds):
    """Several crowds in one process."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for crowd in crowds:
            crowd.fill()
            crowd.turn()
    return [{"made": one.made, "ended": one.ended, "kept": len(one.socks)} for one in crowds]


PARTS = {one.__name__: one for one in (idle, greeted, unfinished, bombs, requests, knocking)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--only", default="idle,unfinished,bombs,requests,knocking")
    parser.add_argument("--pct", default="")
    parser.add_argument("--database", default="")
    parser.add_argument("--spin", action="store_true")
    options = parser.parse_args()
    options.paths = [*glob.glob(f"{options.run}/cpa-*.sock"), f"{options.run}/rca.sock"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    parts = {name: PARTS[name] for name in options.only.split(",") if name}
    parts.update({name: part for name, part in (("pct", pct), ("database", database)) if getattr(options, name)})
    children = []
    for name, part in parts.items():
        pid = os.fork()
        if not pid:
            done = (spin if options.spin else part)(options)
            sys.stdout.write(json.dumps({name: done}) + "\n")
            sys.stdout.flush()
            os._exit(0)
        children.append(pid)
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGKILL) for pid in children])
    print(json.dumps({"children": children}), flush=True)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
