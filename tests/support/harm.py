"""What hostile users of a system mesh do to it: attacks in a random order from a seed, as one unprivileged user.

``python harm.py RUN SEED SECONDS [--at-once N] [--only NAME,…] [--hosts h1,h2] [--database URL] [--others UID,…]`` runs
every attack once, then goes on until SECONDS are over or SIGTERM comes. It prints a JSON line: how often each attack
ran to its end, which failed by an error of their own, and which commands of the product did what they must not do. With
``--spin``, N processes only use CPU time instead. RUN is the mesh's run directory. An attack on a node is this file
again, given to a rank as text: ``python3 -c TEXT node NAME SEED SECONDS``. It uses the standard library only; attack.py
and vanishing.py are beside it.

The caller bounds what the user may have (RLIMIT_NPROC, RLIMIT_FSIZE): the machine has other uses.
"""

import argparse
import contextlib
import errno
import glob
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid

#: Connections to each socket for reports of sections that a node has.
IDLE = 70
#: What an attack takes that has no end of its own.
TURN_S = 1.5
#: The most processes that a fork bomb may have: it refuses to run under a larger RLIMIT_NPROC.
MOST_PROCESSES = 250
#: How often an attack that fails is tried in one round: a fork bomb of the same user lets others fail.
TRIES = 5
#: A command of the product that has not ended by now hangs.
PATIENCE_S = 120.0
#: Commands that are refused to users who are not root.
FORBIDDEN = (
    "mesh down --force", "mesh down", "mesh up --system", "mesh trust rotate", "mesh upgrade", "mesh login revoke h0",
    "mesh drain h1", "mesh resume h1", "mesh mode reserved 0", "mesh unreserve 0", "mesh nodes remove h1",
)  # fmt: skip
#: Commands that users may run. Their status depends on the mesh.
ALLOWED = (
    "mesh status", "mesh trust show", "mesh queue", "mesh history", "showmesh", "showmesh --json", "pingd",
    "pingd -kill -NoInquire -all", "yod --dry-run -sz 1 true",
)  # fmt: skip

LOGIN = {}
NODE = {}


def on_login(attack):
    """Register an attack from the login processor; it gets a `Hostile`."""
    LOGIN[attack.__name__] = attack
    return attack


def on_node(attack):
    """Register an attack from a rank; it gets a `Rank`."""
    NODE[attack.__name__] = attack
    return attack


class Hostile:
    """One attack of a hostile user on the login processor, in a process of its own."""

    def __init__(self, options, seed):
        self.options, self.run = options, options.run
        self.chance = random.Random(seed)
        self.home = os.environ["HOME"]
        self.here = os.path.dirname(os.path.abspath(__file__))
        self.hosts = options.hosts.split(",")
        self.faults = []
        self.begun = []

    def start(self, *words, **more):
        """Start a command that is killed at the end of the attack, if it still runs."""
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.begun.append(subprocess.Popen(words, **{**quiet, **more}))
        return self.begun[-1]

    def command(self, *words, patience_s=PATIENCE_S, **more):
        """Run a command of the product to its end; a traceback or a hang is a fault. Returns status and output."""
        done = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        shown = " ".join(words)[:100]
        try:
            out, told = done.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            done.kill()
            out, told = done.communicate()
            self.faults.append(f"{shown}: had not ended after {patience_s:.0f} s; it said {(out + told)[-500:]!r}")
        said = (out + told).decode("utf-8", "replace")
        if "Traceback" in said or "bug in" in said:
            self.faults.append(f"{shown}: {said[-1500:]}")
        return done.returncode, said

    def python(self, name, *words):
        """Run a script beside this one, of which nothing is wanted to be known."""
        return self.start("python", f"{self.here}/{name}", *map(str, words))

    def seconds(self, most=TURN_S):
        """How long something goes on."""
        return self.chance.uniform(most / 4, most)

    def wait(self, most=TURN_S):
        """Let what was begun go on for a while."""
        time.sleep(self.seconds(most))

    def end(self):
        """Kill what still runs."""
        for one in self.begun:
            if one.poll() is None:
                one.kill()
            one.wait()


def ranks(me, name, size=1, *options, seconds=TURN_S):
    """Launch an attack from ranks, on a node at random, and end it in some way."""
    with open(__file__) as file:
        text = file.read()
    node = ["/usr/bin/python3", "-I", "-c", text, "node", name, str(me.chance.randrange(1 << 30)), str(seconds)]
    words = ["yod", "-sz", str(size), "-w", me.chance.choice(me.hosts), *options, *node, me.options.others]
    yod = me.start(*words, stderr=subprocess.PIPE)
    how = me.chance.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
    told = b""
    # the first is for the ranks, which may ignore it; the second kills them; the third leaves
    for number, patience in ((0, 2 * seconds), (how, 2.0), (how, 2.0), (signal.SIGKILL, PATIENCE_S)):
        yod.send_signal(number)
        try:
            _, told = yod.communicate(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            pass
    else:
        me.faults.append(f"the yod of {name} had not ended {PATIENCE_S:.0f} s after SIGKILL")
    if b"Traceback" in told and b"<string>" not in told:  # which is the rank's own
        me.faults.append(f"the launch of {name}: {told[-1500:].decode('utf-8', 'replace')}")


# From the login processor


@on_login
def vanish(me):
    """Get processors by the wire alone, and be gone."""
    for variant in me.chance.sample(["other-login", "never", "unregisters", "other-process"], 2):
        with open(f"{me.run}/login") as file:
            me.python("vanishing.py", me.run, file.read().strip(), variant).wait()


@on_login
def orders(me):
    """Give orders that are root's, and ask what everybody may ask."""
    for words in me.chance.sample(FORBIDDEN, 3):
        status, said = me.command(*words.split())
        if not status:
            me.faults.append(f"{words}: status 0: {said[-500:]}")
    for words in me.chance.sample(ALLOWED, 2):
        me.command(*words.split())


@on_login
def aim(me):
    """Signal, attach to, stop and continue every launch of others that is shown."""
    _, said = me.command("showmesh", "--json")
    with contextlib.suppress(ValueError, KeyError):
        shown = json.loads(said[said.index("{") :])["launchers"]
        theirs = [str(one["id"]) for one in shown if one.get("user") != os.environ["USER"]]
        for launcher in theirs[:2]:
            for words in (("yod", "-signal", "KILL", launcher), ("pingd", "-NoInquire", "-kill", "-job", launcher)):
                me.command(*words)


@on_login
def crowd(me):
    """Connections to CPA and RCA of one kind, and to a PCT, as attack.py has them."""
    only = me.chance.choice(["idle", "unfinished", "bombs", "requests", "knocking", "greeted", "idle,requests"])
    words = [me.run, TURN_S, "--only", only, "--pause", "0.02", "--pct", f"{me.chance.choice(me.hosts)}:7117"]
    me.python("attack.py", *words).wait()


@on_login
def viewers(me):
    """All connections of the viewers' account, with locks."""
    me.python("attack.py", me.run, TURN_S, "--only", "", "--pause", "0.02", "--database", me.options.database).wait()


@on_login
def killed(me):
    """Launches without a pause, each killed at some moment."""
    for _ in range(me.chance.randrange(4, 12)):
        yod = me.start("yod", "-sz", me.chance.choice("1123"), "sleep", "1000")
        time.sleep(me.chance.uniform(0.0, 0.5))
        yod.send_signal(me.chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP]))


@on_login
def waiting(me):
    """More requests in the line than one user may have; some processes of theirs stay for a while."""
    import vanishing

    wire = vanishing.Wire(me.chance.choice(glob.glob(f"{me.run}/cpa-*.sock")))
    with open(f"{me.run}/login") as file:
        more = {"login": file.read().strip(), "pid": os.getpid(), "pid_started": vanishing.started(os.getpid())}
    said = []
    until = time.monotonic() + 5 * TURN_S
    for _ in range(me.chance.choice([50, 300, 2200])):
        more.update(uuid=uuid.UUID(int=me.chance.getrandbits(128)).hex, count=me.chance.choice([1, 2, 4]))
        reply = wire.call(
            op="request", partial=True, time_s=600, wait_s=86400, cpus_per_task=1, command="x" * 150, **more
        )
        said.append("acknowledged" in reply)
        if not said[-1] or time.monotonic() > until:
            break
    me.wait()


@on_login
def stopped(me):
    """Stopped yods whose ranks write, which nobody reads; some are never continued."""
    yods = [me.start("yod", "-sz", "1", "sh", "-c", "yes") for _ in range(2)]
    me.wait()
    for yod in yods:
        yod.send_signal(signal.SIGSTOP)
    me.wait()
    if me.chance.random() < 0.5:
        for yod in yods:
            yod.send_signal(signal.SIGCONT)


@on_login
def long_words(me):
    """Arguments, variables and names that are as long as they can be, or no text."""
    big = "x" * 120_000
    env = {**os.environb, **{b"BIG%d" % n: os.urandom(50_000).replace(b"\0", b"\1") for n in range(10)}}
    shapes = [
        ("yod", "-sz", "1", "true", *[big] * 12),
        ("yod", "-sz", "1", b"tr\xffue\x1b[2J\n"),
        ("yod", "-sz", "1", "-export", "A=" + big, "true"),
        ("yod", "-sz", "1" * 5000, "true"),
        ("yod", "-sz", "1", "-list", ",".join(map(str, range(20000))), "true"),
        ("yod", "-sz", "1", "-w", "h[1-100000000]", "true"),
        ("mesh", "submit", "--name", "x" * 100_000, "true"),
        ("pingd", "-user", big),
    ]
    for words in me.chance.sample(shapes, 3):
        done = me.start(*words, env=env, stderr=subprocess.PIPE)
        _, told = done.communicate(timeout=PATIENCE_S)
        if b"Traceback" in told:
            me.faults.append(f"{words[:4]}: {told[-1500:]!r}"[:2500])


@on_login
def floods(me):
    """As much output as there can be: to a reader that is slow, to a file that is full, to nobody."""
    shell = "yes; yes >&2"
    slow = me.start("yod", "-sz", "2", "sh", "-c", shell, stdout=subprocess.PIPE)
    full = me.start("yod", "-sz", "1", "-output", "/dev/full", "sh", "-c", shell)
    until = time.monotonic() + me.seconds()
    while time.monotonic() < until and slow.poll() is None:
        if select.select([slow.stdout], [], [], 0.05)[0]:
            os.read(slow.stdout.fileno(), 512)
        time.sleep(0.01)
    for one in (slow, full):
        one.send_signal(me.chance.choice([signal.SIGKILL, signal.SIGTERM]))


@on_login
def detached(me):
    """Launches that nobody waits for, whose output is a flood: spools."""
    status, said = me.command("yod", "-detach", "-sz", "1", "sh", "-c", "yes")
    me.wait()
    if not status:
        me.command("yod", "-signal", "KILL", said.split()[0])


@on_login
def rooms(me):
    """Links, directories, FIFOs and deaf sockets for those of yods in the user's own directory among root's."""
    room = f"{me.run}/users/{os.getuid()}"
    yod = me.start("yod", "-sz", "1", "sleep", "1000")
    until = time.monotonic() + TURN_S
    deaf = []
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            for path in glob.glob(f"{room}/yod-*.sock"):
                number = int("".join(filter(str.isdigit, os.path.basename(path))))
                for name in (path, f"{room}/yod-{number + me.chance.randrange(1, 4)}.sock"):
                    with contextlib.suppress(OSError):
                        os.unlink(name)
                    kind = me.chance.randrange(4)
                    if kind == 0:
                        os.symlink(me.chance.choice(["/etc/passwd", f"{me.run}/cpa-0.sock", "/root", name]), name)
                    elif kind == 1:
                        os.mkfifo(name)
                    elif kind == 2:
                        os.mkdir(name)
                    else:
                        deaf.append(socket.socket(socket.AF_UNIX))
                        deaf[-1].bind(name)
                        deaf[-1].listen(0)
            os.chmod(room, me.chance.choice([0o700, 0o000, 0o777]))
        me.command("pingd")
        yod.send_signal(me.chance.choice([0, signal.SIGTERM, signal.SIGKILL]))
    yod.kill()
    with contextlib.suppress(OSError):
        os.chmod(room, 0o700)


@on_login
def names(me):
    """The names of the product's directories, and of other users', in /dev/shm; abstract sockets."""
    chosen = [f"/dev/shm/redmesh-{uid}" for uid in ("0", *me.options.others.split(","))]
    for path in chosen:
        with contextlib.suppress(OSError):
            kind = me.chance.randrange(3)
            if kind == 0:
                os.symlink("/etc", path)
            elif kind == 1:
                os.mkdir(path, 0o777)
            else:
                open(path, "x").close()
    abstract = []
    for name in ("redmesh-pct", "redmesh-h1", *(f"redmesh-{n}-h1" for n in range(50))):
        with contextlib.suppress(OSError):
            abstract.append(socket.socket(socket.AF_UNIX))
            abstract[-1].bind(b"\0" + name.encode())
    me.wait()
    for path in chosen:
        with contextlib.suppress(OSError):
            if os.stat(path, follow_symlinks=False).st_uid == os.getuid():
                os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


@on_login
def datagrams(me):
    """Datagrams and connections with nonsense for every port of the login processor and of the nodes' PCTs."""
    targets = [("127.0.0.1", port) for kind, port in ports() if kind == "udp"] + [(host, 7117) for host in me.hosts]
    texts = [os.urandom(60), b"", os.urandom(1400), b'{"node":"h1","beat":1}', b"\x16\x03\x01\x02\x00\x01", b"\0" * 900]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        until = time.monotonic() + me.seconds()
        while time.monotonic() < until:
            for target in targets:
                with contextlib.suppress(OSError):
                    sock.sendto(me.chance.choice(texts), target)
            time.sleep(0.0005)
    for kind, port in ports():
        if kind == "tcp":
            nonsense(me.chance, "127.0.0.1", port)
    for host in me.hosts:
        nonsense(me.chance, host, 7117)


@on_login
def objects(me):
    """State objects that are damaged, emptied, changed or replaced, and read by every command that does."""
    status, _ = me.command("mesh", "submit", "--wait", "--array", "3", "true")
    found = glob.glob(f"{me.home}/**/*.job", recursive=True)
    if status or not found:
        return
    path = me.chance.choice(found)
    job = os.path.basename(path)[:36]
    how = me.chance.randrange(5)
    with contextlib.suppress(OSError):
        if how == 0:
            with open(path, "r+b") as file:
                for _ in range(30):
                    file.seek(me.chance.randrange(os.path.getsize(path)))
                    file.write(os.urandom(8))
        elif how == 1:
            os.truncate(path, os.path.getsize(path) // 2)
        elif how == 2:
            os.unlink(path)
            os.symlink("/dev/zero", path)
        elif how == 3:
            os.unlink(path)
            os.mkfifo(path)
        else:
            import sqlite3

            with contextlib.suppress(sqlite3.Error), sqlite3.connect(path) as db:
                tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                db.execute(f"DELETE FROM {me.chance.choice(tables)}")
    every = (("queue",), ("job", "show", job), ("job", "tasks", job), ("job", "log", job), ("cancel", job))
    for words in me.chance.sample(every, 3):
        me.command("mesh", *words)
    with contextlib.suppress(OSError):
        os.unlink(path)


@on_login
def jobs(me):
    """Many tasks, cancelled or left to themselves; their owner killed."""
    _, said = me.command("mesh", "submit", "--array", "40", "sleep", "0.2")
    me.wait()
    word = next((one.strip("().,") for one in said.split() if one.count("-") == 4), "")
    if word:
        me.command("mesh", "cancel", word)


@on_login
def own_mesh(me):
    """Another mesh of one's own: on the login processor, or over SSH on the same hosts, on the same ports or others."""
    over_ssh = me.chance.random() < 0.6
    own = f"{me.home}/own"
    os.makedirs(f"{own}/config/redmesh", exist_ok=True)
    lines = []
    if over_ssh:
        port = me.chance.choice([7117, 7300 + os.getuid() % 100])
        lines = [f"agent_port = {port}", f'ssh_config = "{me.home}/ssh_config"', "[[hosts]]"]
        lines += [f'name = "{me.chance.choice(me.hosts)}"', "processors = 2"]
    with open(f"{own}/config/redmesh/mesh.toml", "w") as file:
        file.write("\n".join(lines) + "\n")
    env = {**os.environ, "XDG_STATE_HOME": f"{own}/state", "XDG_CONFIG_HOME": f"{own}/config"}
    env["REDMESH_CONFIG"] = f"{own}/config/redmesh/mesh.toml"
    size = () if over_ssh else ("--processors", "2", "--nodes", "1")
    try:
        me.command("mesh", "up", *size, env=env)
        me.command("yod", "-sz", "2", "true", env=env)
    finally:
        me.command("mesh", "down", "--force", env=env)


def _of_a_rank(name):
    def attack(me):
        ranks(me, name, me.chance.choice([1, 1, 2]), *me.chance.choice([(), ("-bcast=always",), ("-batch",)]))

    attack.__name__ = name
    return attack


# From a node, as a rank: no more than the standard library of the node's Python.


class Rank:
    """A rank of a hostile user: its chance, when it ends, and the uids of others."""

    def __init__(self, seed, seconds, others):
        self.chance = random.Random(f"{seed} {os.environ.get('YOD_RANK')}")
        self.seconds, self.others = float(seconds), others.split(",")
        self.until = time.monotonic() + self.seconds

    def goes_on(self):
        return time.monotonic() < self.until


def ports():
    """Which ports on this host are listened to by anybody: (``tcp`` or ``udp``, port)."""
    found = []
    for kind, state in (("tcp", "0A"), ("udp", "07")):
        with open(f"/proc/net/{kind}") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[3] == state:
                    found.append((kind, int(words[1].rpartition(":")[2], 16)))
    return found


def nonsense(chance, host, port):
    """One connection with nonsense."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0) as sock:
        texts = os.urandom(3000), b"\n" * 3000, b"x" * 3000, b"GET / HTTP/1.1\r\n\r\n", b"\0" * 50
        sock.sendall(chance.choice(texts))


@on_node
def reports(rank):
    """Idle connections, and nonsense, to all that listens on this node: the sockets for reports of sections."""
    kept = []
    while rank.goes_on():
        listening = [port for kind, port in ports() if kind == "tcp" and port != 22]
        for port in listening:
            for _ in range(IDLE):
                with contextlib.suppress(OSError):
                    sock = socket.socket()
                    sock.setblocking(False)
                    if sock.connect_ex(("127.0.0.1", port)) in (0, errno.EINPROGRESS):
                        kept.append(sock)
            nonsense(rank.chance, "127.0.0.1", port)
        while len(kept) > 600:
            kept.pop(0).close()
        time.sleep(0.05)


@on_node
def bomb(rank):
    """Fork until it is refused, again and again, and let the children do so too."""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if not 0 < most <= MOST_PROCESSES:
        sys.exit("harm: the limit of processes has not come to this rank")
    while rank.goes_on():
        try:
            if not os.fork():
                os.setsid()
        except OSError:
            time.sleep(0.2)
    time.sleep(1000)


@on_node
def leave(rank):
    """Leave processes behind that carry no mark, in sessions of their own, and that ignore signals."""
    for _ in range(3):
        if not os.fork():
            os.setsid()
            if not os.fork():
                ignore = "trap '' TERM HUP INT; while :; do sleep 100; done"
                os.execve("/bin/sh", ["/bin/sh", "-c", ignore], {})
            os._exit(0)
    rank.chance.choice([lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: time.sleep(1000)])()


@on_node
def swap(rank):
    """Let what root makes and removes for the user lead elsewhere now and then."""
    base = f"/dev/shm/redmesh-{os.getuid()}"
    targets = [f"/dev/shm/redmesh-{uid}" for uid in rank.others] + ["/etc", "/root", "/run"]
    while rank.goes_on():
        for path in (base, *glob.glob(base + "/*"), *glob.glob(base + "/launch-*/*")):
            if path.endswith(".mine"):
                continue
            try:
                os.rename(path, path + ".mine")
                os.symlink(rank.chance.choice(targets), path)
                os.unlink(path)
                os.rename(path + ".mine", path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.rename(path + ".mine", path)


@on_node
def squat(rank):
    """Have the names of others' directories first: as files, links, FIFOs, and directories that others can write to."""
    while rank.goes_on():
        for base in ("/dev/shm/redmesh-", "/tmp/redmesh-"):
            for uid in ("0", *rank.others):
                with contextlib.suppress(OSError):
                    kind = rank.chance.randrange(4)
                    if kind == 0:
                        os.symlink("/etc", base + uid)
                    elif kind == 1:
                        os.mkfifo(base + uid)
                    elif kind == 2:
                        os.mkdir(base + uid, 0o777)
                    else:
                        open(base + uid, "x").close()
        time.sleep(0.01)


@on_node
def fill(rank):
    """Fill /dev/shm and /tmp of the node."""
    made = []
    for directory in ("/dev/shm", "/tmp"):
        path = f"{directory}/full-{os.getpid()}"
        with contextlib.suppress(OSError):
            made.append(path)
            with open(path, "wb", buffering=0) as file:
                while file.tell() < 200 << 20:
                    file.write(b"x" * (1 << 20))
    time.sleep(min(rank.seconds, 0.5))
    for path in made:
        with contextlib.suppress(OSError):
            os.unlink(path)


@on_node
def shoot(rank):
    """Signal the launch child, which is the user's, and everything else that may be signalled."""
    time.sleep(rank.chance.uniform(0.0, 0.2))
    number = rank.chance.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1])
    with contextlib.suppress(OSError):
        os.kill(os.getppid() if rank.chance.random() < 0.7 else -1, number)
    time.sleep(rank.seconds)


@on_node
def descriptors(rank):
    """Write nonsense to all descriptors that were inherited, and to all sockets of the launch."""
    for fd in os.listdir("/proc/self/fd"):
        if int(fd) > 2:
            with contextlib.suppress(OSError):
                os.set_blocking(int(fd), False)
                os.write(int(fd), rank.chance.choice([os.urandom(5000), b"cmd=abort\n", b"\n" * 5000]))
    for path in glob.glob(f"/dev/shm/redmesh-{os.getuid()}/**", recursive=True):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(0.2)
            sock.connect(path)
            sock.sendall(rank.chance.choice([os.urandom(5000), b"\0\0\0\0\2{}", b"\0\xff\xff\xff\xff"]))
    time.sleep(0.2)


@on_node
def deaf(rank):
    """Ignore every signal, close everything, write without pause."""
    for number in range(1, 32):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while rank.goes_on():
        with contextlib.suppress(OSError):
            os.write(1, os.urandom(1 << 16))
    os.closerange(0, 100)
    time.sleep(1000 if rank.chance.random() < 0.5 else 0)


LOGIN.update({name: _of_a_rank(name) for name in NODE})


# The order in which they run


class Campaign:
    """All attacks of one user, in rounds: each round has every attack once, in a new order."""

    def __init__(self, options):
        self.options = options
        self.chance = random.Random(options.seed)
        self.ran = dict.fromkeys(options.only.split(",") if options.only else LOGIN, 0)
        self.faults = []
        self.failed = []  # the attack, its seed, and the error that ended it
        self.tries = {}  # in this round
        self.left = []
        self.rounds = 0
        self.ends = False
        self.running = {}  # pid → [name, the end of its pipe]

    def run(self):
        """Run rounds until the time is over; a round that was begun when it was the first is ended."""
        until = time.monotonic() + self.options.seconds
        while not self.ends:
            if not self.left:
                if self.rounds and time.monotonic() > until:
                    break
                self.left = self.chance.sample(list(self.ran), len(self.ran))
                self.tries = dict.fromkeys(self.ran, 0)
                self.rounds += 1
            if self.rounds > 1 and time.monotonic() > until:
                break
            self.begin(self.left.pop())
            # in the first round each attack runs to its end, so one that has failed may come again
            while self.running and (len(self.running) >= self.options.at_once or (self.rounds == 1 and not self.left)):
                self.reap()
        while self.running:
            self.reap()
        told = {"ran": self.ran, "failed": self.failed, "faults": self.faults, "rounds": self.rounds}
        print(json.dumps(told), flush=True)

    def begin(self, name):
        seed = self.chance.randrange(1 << 30)
        read, write = os.pipe()
        try:
            pid = os.fork()
        except OSError:  # a fork bomb of the same user: no turn for this attack
            os.close(read)
            os.close(write)
            time.sleep(0.1)
            self.left.append(name)
            return
        if not pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            me = Hostile(self.options, seed)
            print(time.strftime("%T"), name, seed, "begins", file=sys.stderr, flush=True)
            failed = "it was killed"
            try:
                LOGIN[name](me)
                failed = ""
            except Exception as error:  # such as a connection that the product refuses
                failed = repr(error)
                print(f"harm: {name}: {failed}", file=sys.stderr)
            finally:
                me.end()
                print(time.strftime("%T"), name, seed, "ends", file=sys.stderr, flush=True)
                told = [f"{name} (seed {seed}): {one[:2000]}" for one in me.faults[:20]]
                os.write(write, json.dumps([f"{name} (seed {seed}): {failed[:500]}" if failed else "", told]).encode())
                os._exit(0)
        os.close(write)
        self.running[pid] = [name, read]

    def reap(self):
        pid, _ = os.wait()
        name, read = self.running.pop(pid)
        failed, faults = f"{name}: it was killed", []
        with os.fdopen(read, "rb") as file, contextlib.suppress(ValueError):
            failed, faults = json.loads(file.read())
        self.faults += faults
        if not failed:
            self.ran[name] += 1
            return
        self.failed.append(failed)
        self.tries[name] += 1
        if self.tries[name] < TRIES and not self.ends:
            self.left.insert(0, name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("seed", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--hosts", default="h1")
    parser.add_argument("--database", default="")
    parser.add_argument("--others", default="21001")
    parser.add_argument("--spin", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    if options.spin:
        for _ in range(options.at_once - 1):
            if not os.fork():
                break
        while True:
            pass
    campaign = Campaign(options)

    def stop(*_):
        campaign.ends = True

    signal.signal(signal.SIGTERM, stop)
    shutil.rmtree(f"{os.environ['HOME']}/own", ignore_errors=True)
    campaign.run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["node"]:
        NODE[sys.argv[2]](Rank(*sys.argv[3:6]))
    else:
        main()
