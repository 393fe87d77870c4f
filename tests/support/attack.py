"""Attacks that one unprivileged user can run against the daemons of a system mesh, all at the same time.

``python attack.py RUN SECONDS [--only PART,…] [--pct HOST:PORT] [--database URL] [--pause S] [--spin]`` starts one
process for each part; SIGTERM ends the attack earlier. With ``--spin``, the same number of processes only use CPU time,
as a baseline. RUN is the mesh's run directory. With ``--pause``, each part sleeps between two turns, so that the attack
leaves the machine to others.
With ``--database``, one part opens 150 connections with the viewers' account, requests locks and sleeps.
Uses the standard library only; ``--database`` also needs PyMySQL.
"""

import argparse
import contextlib
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
    """Return a control frame whose JSON is about ``size`` bytes of empty lists."""
    begin, end = b'{"op":"%s","id":1,"x":[' % op, b"[]]}"
    return frame(begin + b"[]," * ((size - len(begin) - len(end)) // 3) + end)


def connect(path):
    """Connect to ``path``; return the non-blocking socket, or None if the connection failed."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        return None
    return sock


def goes_on(options):
    """Return whether the attack goes on: not after its seconds, nor after SIGTERM."""
    return time.monotonic() < options.until


class Crowd:
    """``count`` connections to ``paths``; each sends hello, then ``text``, repeatedly if ``cycles``.

    With an empty ``text`` the connections send nothing. With ``reads`` they read the replies.
    """

    def __init__(self, paths, count, text=b"", *, cycles=True, reads=False):
        self.paths, self.count, self.text, self.cycles, self.reads = paths, count, text, cycles, reads
        self.poll = select.epoll()
        self.socks = {}  # descriptor → [socket, bytes sent of the current message, whether hello was sent]
        self.made = self.ended = self.failed = 0
        self.most = 100  # connections that the next `fill` opens

    def fill(self):
        """Open missing connections: at most 100 per call, 10 while the daemon closes some."""
        for _ in range(min(self.most, self.count - len(self.socks))):
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
        """Write what the sockets accept, and drop connections that the daemon closed."""
        before = self.ended
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
        self.most = 10 if self.ended > before else 100

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

    def run(self, options):
        most = 0
        while goes_on(options):
            self.fill()
            self.turn()
            most = max(most, len(self.socks))
            time.sleep(options.pause)
        return {"made": self.made, "ended": self.ended, "failed": self.failed, "most": most, "kept": len(self.socks)}


def idle(options):
    """Keep as many silent connections open as RLIMIT_NOFILE allows (at most ``IDLE``); reopen those that are closed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 50
    return Crowd(options.paths, min(most, IDLE)).run(options)


def greeted(options):
    """Like :func:`idle`, but each connection sends hello, so that the daemon does not close it for its silence."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 50
    return Crowd(options.paths, min(most, IDLE), b" ", cycles=False).run(options)


def unfinished(options):
    """Send frames whose headers announce 8 MiB, 1 MiB or 65,000 bytes, and never send their last bytes."""
    large = HEADER.pack(0, LONGEST) + b" " * (LONGEST - 1)
    named = HEADER.pack(0, (1 << 20) - 5) + b'{"op":"would_allocate","x":"' + b"x" * (1 << 19)
    small = HEADER.pack(0, 65_000) + b'{"op":"would_allocate","x":"' + b"x" * 64_000
    counts = {large: UNFINISHED, named: UNFINISHED, small: 10 * UNFINISHED}
    crowds = [Crowd(options.paths, count, text, cycles=False) for text, count in counts.items()]
    return together(crowds, options)


def bombs(options):
    """Send JSON that takes long to parse, in frames of 8 MiB, 1 MiB and 60 KiB."""
    sizes = (LONGEST, 1 << 20, 60 << 10)
    crowds = [Crowd(options.paths, NESTED, nested(size), reads=True) for size in sizes]
    return together(crowds, options)


def requests(options):
    """Send requests without pause, some of them expensive; half of the connections never read the replies."""
    asked = [
        b'{"op":"would_allocate","id":1,"size":1}', b'{"op":"idle","id":2}', b'{"op":"status","id":3}',
        b'{"op":"launchers_of","id":4,"login":"x"}', b'{"op":"nonsense","id":5}',
    ]  # fmt: skip
    text = b"".join(map(frame, asked)) * 100
    crowds = [Crowd(options.paths, ASKING, text, reads=reads) for reads in (False, True)]
    return together(crowds, options)


def knocking(options):
    """Open connections and close each one immediately."""
    made = failed = 0
    while goes_on(options):
        for path in options.paths:
            sock = connect(path)
            if sock is None:
                failed += 1
            else:
                made += 1
                sock.close()
        time.sleep(options.pause)
    return {"made": made, "failed": failed}


def pct(options):
    """Open silent connections to a PCT's port, at most 500 at the same time."""
    host, _, port = options.pct.rpartition(":")
    made, kept = 0, []
    while goes_on(options):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = sock.connect_ex((host, int(port)))
        made += code in (0, errno.EINPROGRESS)
        kept.append(sock)
        if len(kept) > 500:
            kept.pop(0).close()
        time.sleep(0.001 + options.pause)
    return {"made": made}


#: Statements with which a viewers' account could lock the rows that every launch needs.
LOCKING = (
    "set session transaction isolation level serializable", "begin", "call counter()", "call reading(null, 0)",
    "select * from mesh lock in share mode", "select * from mesh for update", "do sleep(0.01)",
)  # fmt: skip


def database(options):
    """Open ``DATABASE_CONNECTIONS`` connections as the viewers' account; each requests locks and keeps them."""
    import pymysql

    url = urllib.parse.urlsplit(options.database)
    query = dict(urllib.parse.parse_qsl(url.query))
    words = {"user": url.username, "password": url.password or "", "database": url.path.strip("/")}
    where = {"unix_socket": query["unix_socket"]} if "unix_socket" in query else {"host": url.hostname}
    connections, counts = [], {"connections": 0, "refused": 0, "done": 0, "denied": 0}
    while goes_on(options):
        while len(connections) < DATABASE_CONNECTIONS and goes_on(options):
            try:
                connections.append(pymysql.connect(**words, **where))
            except pymysql.Error:
                counts["refused"] += 1
                break
            lock(connections[-1], counts)
        counts["connections"] = max(counts["connections"], len(connections))
        for one in connections:
            if goes_on(options):
                lock(one, counts)
        connections = [one for one in connections if one.open]
        time.sleep(0.5)
    return counts


def lock(connection, counts):
    """Run the ``LOCKING`` statements on a connection, and count those done and denied."""
    import pymysql

    for statement in LOCKING:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                while cursor.nextset():
                    pass
            counts["done"] += 1
        except pymysql.Error:
            counts["denied"] += 1
            if not connection.open:
                break


def spin(options):
    """Use CPU time and do nothing else."""
    while goes_on(options):
        pass
    return {}


def together(crowds, options):
    """Run several crowds in this process; return the counts of each."""
    while goes_on(options):
        for crowd in crowds:
            crowd.fill()
            crowd.turn()
        time.sleep(options.pause)
    return [{"made": one.made, "ended": one.ended, "kept": len(one.socks)} for one in crowds]


PARTS = {one.__name__: one for one in (idle, greeted, unfinished, bombs, requests, knocking)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--only", default="idle,unfinished,bombs,requests,knocking")
    parser.add_argument("--pct", default="")
    parser.add_argument("--database", default="")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--spin", action="store_true")
    options = parser.parse_args()
    options.paths = [*glob.glob(f"{options.run}/cpa-*.sock"), f"{options.run}/rca.sock"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    parts = {name: PARTS[name] for name in options.only.split(",") if name}
    parts.update({name: part for name, part in (("pct", pct), ("database", database)) if getattr(options, name)})
    options.until = time.monotonic() + options.seconds
    children = []

    def stop(*_):
        options.until = 0.0
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    for name, part in parts.items():
        pid = os.fork()
        if not pid:
            children.clear()
            done = (spin if options.spin else part)(options)
            sys.stdout.write(json.dumps({name: done}) + "\n")
            sys.stdout.flush()
            os._exit(0)
        children.append(pid)
    print(json.dumps({"children": children}), flush=True)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
