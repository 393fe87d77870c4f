"""Host keys and routes: read as OpenSSH reads them; states of a host; the agent's file."""

import base64
import hashlib
import hmac
import io
import marshal
import os
import pwd
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from console.deploy.agent import build, compiling
from console.deploy.agent.archive import START
from console.deploy.hosts.description import Host
from console.deploy.hosts.host_states import FINAL, TRANSITIONS, Event, State, after
from console.deploy.ssh import bootstrap
from console.deploy.ssh.config import SshConfig
from console.deploy.ssh.known_hosts import KnownHosts, Verdict, fingerprint, pin_name
from console.errors import ConsoleError
from tests.support.waiting import PATIENCE_S, wait_until

KEY, OTHER = b"a key", b"another key"
B64, OTHER64 = base64.b64encode(KEY).decode(), base64.b64encode(OTHER).decode()

BOOTSTRAP = Path(bootstrap.__file__)


def pins(tmp_path: Path, *lines: str) -> KnownHosts:
    path = tmp_path / "known_hosts"
    path.write_text("\n".join(lines) + "\n")
    return KnownHosts([str(tmp_path / "missing"), str(path)])


def test_keys_that_are_pinned(tmp_path: Path) -> None:
    known = pins(
        tmp_path, "# comment", "", "broken line",
        f"one,10.0.0.1 ssh-ed25519 {B64} who@where", f"[two]:2222 ssh-ed25519 {B64}",
        f"*.cluster,!bad.cluster ssh-rsa {B64}", f"@cert-authority *.ca ssh-ed25519 {B64}",
        f"two-types ssh-rsa {OTHER64}", f"two-types ssh-ed25519 {B64}",
    )  # fmt: skip
    for name in ("one", "ONE", "10.0.0.1", "[two]:2222", "x.cluster", "two-types"):
        assert known.check([name], KEY)[0] is Verdict.KNOWN, name
    for name in ("two", "[one]:2222", "bad.cluster", "x.ca", "other"):
        assert known.check([name], KEY)[0] is Verdict.UNKNOWN, name
    verdict, place = known.check(["one"], OTHER)
    assert verdict is Verdict.CHANGED and place == f"{tmp_path}/known_hosts:4"
    assert known.kinds(["two-types"]) == ["ssh-rsa", "ssh-ed25519"]
    # without its port as the second name, as ssh does; the first name that is known decides
    assert known.check(["[one]:2222", "one"], KEY)[0] is Verdict.KNOWN
    assert known.check(["[two]:2222", "one"], OTHER)[0] is Verdict.CHANGED


def test_revoked_keys_are_good_for_no_host(tmp_path: Path) -> None:
    known = pins(tmp_path, f"one ssh-ed25519 {B64}", f"@revoked * ssh-ed25519 {B64}")
    assert known.check(["one"], KEY)[0] is Verdict.REVOKED
    assert known.check(["new"], KEY)[0] is Verdict.REVOKED


def test_hashed_names_and_new_pins(tmp_path: Path) -> None:
    salt = b"0123456789abcdefghij"
    digest = base64.b64encode(hmac.new(salt, b"host", hashlib.sha1).digest()).decode()
    known = pins(tmp_path, f"|1|{base64.b64encode(salt).decode()}|{digest} ssh-ed25519 {B64}")
    assert known.check(["host"], KEY)[0] is Verdict.KNOWN and known.check(["host2"], KEY)[0] is Verdict.UNKNOWN
    path = tmp_path / "deep" / "known_hosts"
    for hashed in (False, True):
        known.add(str(path), f"new{hashed}", "ssh-ed25519", OTHER, hashed=hashed)
        assert KnownHosts([str(path)]).check([f"new{hashed}"], OTHER)[0] is Verdict.KNOWN
    assert path.stat().st_mode & 0o777 == 0o600 and "newTrue" not in path.read_text()
    path.write_text(path.read_text().rstrip("\n"))  # an editor left no newline at the end
    known.add(str(path), "third", "ssh-ed25519", KEY)
    assert KnownHosts([str(path)]).check(["third"], KEY)[0] is Verdict.KNOWN


def test_what_openssh_says_of_the_same_file(tmp_path: Path) -> None:
    """ssh-keygen finds the same names, and shows the same fingerprint."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    kind, key, _ = (tmp_path / "key.pub").read_text().split(maxsplit=2)
    known = KnownHosts([])
    path = str(tmp_path / "pins")
    known.add(path, pin_name("host", 2222), kind, base64.b64decode(key), hashed=True)
    found = subprocess.run(["ssh-keygen", "-F", "[host]:2222", "-f", path], capture_output=True, text=True)
    assert found.returncode == 0 and key in found.stdout
    shown = subprocess.run(["ssh-keygen", "-lf", path], capture_output=True, text=True, check=True).stdout
    assert fingerprint(base64.b64decode(key)) in shown


def test_routes_are_those_of_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "more").write_text("Host n*\n  Port 2200\n  User there\n")
    (tmp_path / ".ssh" / "config").write_text(
        "Include more\nHost n1\n  HostName 10.0.0.1\n  ProxyJump me@gate:2022,last\n  Port 1\n"
        "Host n*\n  IdentityFile ~/.ssh/one\n  IdentityFile ~/.ssh/two\n  IdentitiesOnly yes\n"
        "Host *\n  User everyone\n  UserKnownHostsFile ~/a ~/b\n  GlobalKnownHostsFile /dev/null\n"
    )
    config = SshConfig()
    one = config.route(Host("n1", "n1"))
    assert (one.host, one.port, one.user, one.jumps) == ("10.0.0.1", 2200, "there", ("me@gate:2022", "last"))
    assert one.keys == (f"{tmp_path}/.ssh/one", f"{tmp_path}/.ssh/two") and one.keys_only
    assert one.pins == (f"{tmp_path}/a", f"{tmp_path}/b")
    given = config.route(Host("n2", "n2", port=99, user="ada"))
    assert (given.port, given.user, given.jumps) == (99, "ada", ())
    shown = subprocess.run(
        ["ssh", "-G", "-F", tmp_path / ".ssh" / "config", "n1"], capture_output=True, text=True, check=True
    ).stdout
    for line in ("user there", "port 2200", "hostname 10.0.0.1", "proxyjump me@gate:2022,last"):
        assert line in shown.splitlines()


def test_a_configuration_of_ssh_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConsoleError, match="No such file"):
        SshConfig(str(tmp_path / "none"))
    (tmp_path / "loop").write_text(f"Include {tmp_path}/loop\nInclude {tmp_path}/loop\n")
    with pytest.raises(ConsoleError, match=r"ssh -G n1 .*: Too many recursive configuration includes"):
        SshConfig(str(tmp_path / "loop")).route_to("n1")
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no ssh
    assert SshConfig(str(tmp_path / "loop")).route_to("n1").host == "n1"


PLAIN = """
Host n1
  HostName 10.0.0.1
  Port 2200
  ProxyJump me@gate:2022
Host n2
  HostName 10.0.0.2
  ProxyCommand ~/relay %h %p %r
Host *
  User ada
  IdentityFile /keys/%h
  IdentityFile /keys/two
  IdentitiesOnly yes
  UserKnownHostsFile /pins/a /pins/b
  GlobalKnownHostsFile /dev/null
  HostKeyAlias alias
  HashKnownHosts yes
"""
#: What paramiko refuses, does not run, or does not understand.
ONLY_OPENSSH_READS = (
    "Match final all\n  GSSAPIAuthentication yes\n",  # Red Hat's
    "Match host=10.0.0.9\n  Port 9\n",
    'Match exec "false"\n  Port 9\n',
    'Match Host n1,n2 !exec "true"\n  Port 9\n',
    "Host n9\n  Include none/*\n",
    'Match originalhost "n9\n  Port 9\n',
)


@pytest.mark.parametrize("more", ONLY_OPENSSH_READS[:-1])
def test_where_files_hold_match_openssh_is_asked(tmp_path: Path, more: str) -> None:
    plain, other = tmp_path / "plain", tmp_path / "other"
    plain.write_text(PLAIN)
    other.write_text(f"{more}{PLAIN}")
    here, asked = SshConfig(str(plain)), SshConfig(str(other))
    for name in ("n1", "n2", "n3"):
        assert asked.route_to(name) == here.route_to(name)
        # the command gets what mesh.toml says, too
        assert asked.route_to(name, 99, "bob") == here.route_to(name, 99, "bob")._replace(
            command=os.path.expanduser("~/relay 10.0.0.2 99 bob")
            if name == "n2"
            else ""  # the command gets what mesh.toml says, too
        )
    assert not asked.notes and asked.route_to("n1").keys == ("/keys/10.0.0.1", "/keys/two")


@pytest.mark.parametrize("match", ["", "Match final all\n  Compression no\n"], ids=["plain", "match"])
def test_tokens_in_names_of_files_are_those_of_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, match: str) -> None:
    path = tmp_path / "config"
    files = "/f/%i.%n.%h.%p.%r.%u.%k.%%"
    path.write_text(
        f"HostName 10.0.0.1\nPort 2200\nUser ada\nHostKeyAlias al\nIdentityFile {files}\nIdentityFile ${{WHERE}}/%C\n"
        f"UserKnownHostsFile {files} /f/%C\nGlobalKnownHostsFile /dev/null\nControlPath /other\n{match}"
    )
    monkeypatch.setenv("WHERE", "/w")
    name = pwd.getpwuid(os.getuid()).pw_name
    whole = f"/f/{os.getuid()}.n1.10.0.0.1.2200.ada.{name}.al.%"
    shown = subprocess.run(
        ["ssh", "-G", "-F", path, "-o", "ControlPath=%C", "n1"], capture_output=True, text=True, check=True
    ).stdout
    digest = next(line.partition(" ")[2] for line in shown.splitlines() if line.startswith("controlpath "))
    assert len(digest) == 40
    route = SshConfig(str(path)).route_to("n1")
    assert (route.keys, route.pins) == ((whole, f"/w/{digest}"), (whole, f"/f/{digest}"))
    if not match:
        monkeypatch.setenv("PATH", str(tmp_path))  # there is no ssh
        route = SshConfig(str(path)).route_to("n1")
        assert route.keys[0] == whole and route.pins[0] == whole


@pytest.mark.parametrize("match", ["", "Match final all\n  Compression no\n"], ids=["plain", "match"])
@pytest.mark.parametrize("word", ["", "ask", "no", "off", "false", "yes", "accept-new"])
def test_accept_new_alone_loosens_the_pinning(tmp_path: Path, match: str, word: str) -> None:
    path = tmp_path / "config"
    path.write_text((f"StrictHostKeyChecking {word}\n" if word else "") + f"UserKnownHostsFile none\n{match}")
    route = SshConfig(str(path)).route_to("n1")
    assert route.accepts_new is (word == "accept-new")
    assert route.pin_to == "" and route.pins  # keys of a user are never added to the machine's files


@pytest.mark.parametrize("match", ["", "Match final all\n  Compression no\n"], ids=["plain", "match"])
def test_names_that_begin_with_a_dash_are_refused(tmp_path: Path, match: str) -> None:
    path = tmp_path / "config"
    path.write_text(f"Host n1\n  HostName -oProxyCommand=x\nHost n2\n  User -oProxyCommand=x\n{match}")
    config = SshConfig(str(path))
    for name, user in (("n1", ""), ("n2", ""), ("-oProxyCommand=x", ""), ("n3", "-lx")):
        with pytest.raises(ConsoleError, match=r"(?i)-oproxycommand=x|-lx"):
            config.route_to(name, user=user)
    assert config.route_to("n3").host == "n3"


def test_a_match_that_never_ends_costs_its_host_alone(tmp_path: Path) -> None:
    path, pid = tmp_path / "config", tmp_path / "pid"
    path.write_text(f'Match originalhost slow exec "echo $$ >{pid}; exec sleep 1000"\n  Port 9\n')
    config = SshConfig(str(path))
    with pytest.raises(ConsoleError, match="ssh -G slow does not end"):
        config.route_to("slow")
    assert config.route_to("n1").host == "n1"
    wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "the command has ended")


def test_without_ssh_a_line_that_cannot_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "config"
    head = "Match originalhost n1\n  Port 7\nMatch tagged x\n  Port 8\nHost n2\n  Broken\n  Port 6\n"
    path.write_text(head + "".join(ONLY_OPENSSH_READS) + PLAIN)
    config = SshConfig(str(path))
    routes = [config.route_to(name) for name in ("n1", "n2", "n3")]
    assert [(route.host, route.port) for route in routes] == [("10.0.0.1", 7), ("10.0.0.2", 6), ("n3", 22)]
    assert {route.user for route in routes} == {"ada"}
    places = [note.split()[0].rpartition(":")[2] for note in config.notes]
    assert places == ["3", "6", "8", "10", "12", "14", "17", "18"], config.notes


def test_a_home_that_is_not_the_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh is given the file below HOME; not if somebody else may have written the commands in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    file, mark = tmp_path / ".ssh" / "config", tmp_path / "mark"
    file.write_text(f'Match exec "touch {mark}"\n  User there\nHost *\n  Port 2200\n')
    file.chmod(0o666)
    config = SshConfig()
    assert config.route_to("n1").port == 2200 and not mark.exists() and "Match exec" in config.notes[0]
    file.chmod(0o600)
    config = SshConfig()
    route = config.route_to("n1")
    assert (route.user, route.port) == ("there", 2200) and mark.exists() and not config.notes
    assert route.pin_to == f"{tmp_path}/.ssh/known_hosts", "not the account's"
    file.write_text("Match final all\n  User there\n")
    assert SshConfig().route_to("n1").user == "there", "ssh reads what it is given twice"


@pytest.mark.parametrize("match", ["", "Match final all\n  Compression no\n"], ids=["plain", "match"])
def test_blanks_in_the_names_of_known_hosts_files(tmp_path: Path, match: str) -> None:
    path = tmp_path / "config"
    path.write_text(
        'Host n1\n  UserKnownHostsFile "/pins/my hosts"\nHost n2\n  UserKnownHostsFile "/pins/my hosts" /pins/b\n'
        f"Host n3\n  UserKnownHostsFile one two\nHost *\n  GlobalKnownHostsFile none\n{match}"
    )
    routes = [SshConfig(str(path)).route_to(name) for name in ("n1", "n2", "n3")]
    assert [route.pins for route in routes] == [("/pins/my hosts",), ("/pins/my hosts", "/pins/b"), ("one", "two")]
    assert routes[0].pin_to == "/pins/my hosts"


@pytest.mark.parametrize("match", ["", "Match final all\n  Compression no\n"], ids=["plain", "match"])
def test_no_identity_file_is_no_key(tmp_path: Path, match: str) -> None:
    path = tmp_path / "config"
    path.write_text(f"IdentityFile none\n{match}")
    assert SshConfig(str(path)).route_to("n1").keys == ()


def test_pins_that_cannot_be_read(tmp_path: Path) -> None:
    known = pins(tmp_path, "|1|YWJj|\xfc ssh-ed25519 AAAA", f"one ssh-ed25519 {B64}")
    assert known.check(["one"], KEY)[0] is Verdict.KNOWN and not known.unreadable
    known = KnownHosts([str(tmp_path), str(tmp_path / "known_hosts")])
    assert known.check(["one"], KEY)[0] is Verdict.KNOWN and str(tmp_path) in known.unreadable


def test_every_host_comes_to_an_end() -> None:
    """From every state some way leads to an end, trouble always does, and nothing happens after it."""
    for state in State:
        if state not in FINAL:
            assert after(state, Event.TROUBLE) is State.FAILED
    assert not [pair for pair in TRANSITIONS if pair[0] in FINAL]
    reached, todo = {State.WAITING}, [State.WAITING]
    while todo:
        state = todo.pop()
        for (before, _event), then in TRANSITIONS.items():
            if before is state and then not in reached:
                reached.add(then)
                todo.append(then)
    assert reached == set(State)


@pytest.fixture(scope="module")
def agent() -> bytes:
    """The agent for the Python that runs the tests."""
    return build.build(sys.executable)


def test_the_agent_is_the_same_file_twice(tmp_path: Path, agent: bytes) -> None:
    tag, first = sys.implementation.cache_tag, agent
    kept = build.agent_for(tag, str(tmp_path))  # the second time
    assert kept.content == first and kept.sha == hashlib.sha256(first).hexdigest() and kept.compiled
    assert build.agent_for(tag, str(tmp_path)) == kept
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        names = archive.namelist()
    assert {
        f"agents/{name}" for name in ("pct/debug/snapshot.pyc", "yodio/yodio", "yodio/yodio.py", "yodio/yodpdb.py")
    } <= set(names)
    assert not [name for name in names if name.startswith(("agents/cpa", "agents/rca", "agents/simulated", "db"))]


def test_the_agent_needs_nothing_but_a_bare_python(tmp_path: Path, agent: bytes) -> None:
    for content in (build.build(""), agent):
        path = tmp_path / "agent.pyz"
        path.write_bytes(content)
        done = subprocess.run(
            [sys.executable, "-I", "-S", path, "keeper"],
            capture_output=True,
            text=True,
            env={},
            cwd="/",
            timeout=PATIENCE_S,
        )
        assert done.returncode == 2 and "usage: python -P -m redmesh keeper" in done.stderr, done.stderr
    assert build.interpreter("cpython-27") == "" and build.interpreter("pypy39") == ""


def test_an_agent_starts_with_little(tmp_path: Path, agent: bytes) -> None:
    """What it loads before the mesh hears of it comes out of one entry, and nothing of it is heavy."""
    path = tmp_path / "agent.pyz"
    path.write_bytes(agent)
    code = (
        "import sys, zipimport; archive = {'__name__': 'archive'}; path = sys.argv[1]\n"
        "exec(zipimport.zipimporter(path).get_code('__main__'), archive); archive['open_archive'](path)\n"
        f"for name in {compiling.AT_START!r}: __import__(name)\n"
        "print(*sys.modules)\n"
        f"for name in {compiling.AT_LAUNCH!r}: __import__(name)\n"
        "print(*sys.modules)\n"
        "from agents.pct.files import yodio as handing_out\n"
        "handing_out.load(); print(*map(len, handing_out._read.values()))\n"
        "sys.path_importer_cache.clear(); print(*handing_out.load_all_modules())\n"
    )
    words = [sys.executable, "-I", "-S", "-c", code, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, env={}, cwd="/", timeout=PATIENCE_S, check=True)
    loaded, launching, handed_out, whole = (set(line.split()) for line in done.stdout.splitlines())
    heavy = {"socket", "signal", "enum", "json", "re", "collections", "hashlib", "_hashlib", "_ssl", "typing"}
    assert not loaded & heavy and set(compiling.AT_START) < loaded
    assert set(compiling.AT_LAUNCH) <= launching and handed_out
    assert {"agents.pct.debug.service", "agents.pmix.server"} < whole
    with zipfile.ZipFile(path) as archive:
        start = marshal.loads(archive.read(START))
        alone = {name.removesuffix(".pyc").replace("/", ".") for name in archive.namelist()}
    assert (
        set(start) == {name for name in launching if name.partition(".")[0] in ("agents", "redmesh")}
        and not set(start) & alone
    )


def test_what_runs_on_a_host_first_loads_little(tmp_path: Path) -> None:
    code = (
        "import sys; scope = {'__name__': 'bootstrap'}; exec(compile(sys.argv[1], 'bootstrap', 'exec'), scope)\n"
        "scope['check_port'](('127.0.0.1', 0)); scope['listener'](sys.argv[2]); scope['facts']('no-node')\n"
        "print(*sys.modules)"
    )
    source = BOOTSTRAP.read_text()
    words = [sys.executable, "-I", "-S", "-c", code, source, str(tmp_path / "none.sock")]
    done = subprocess.run(words, capture_output=True, text=True, env={"HOME": "/"}, timeout=PATIENCE_S, check=True)
    assert not set(done.stdout.split()) & {"socket", "enum", "selectors", "collections", "json", "re", "shutil"}


def test_an_agent_that_arrives_damaged_is_not_kept(tmp_path: Path) -> None:
    code = (
        "import sys; scope = {'__name__': 'bootstrap'}; exec(compile(sys.argv[1], 'bootstrap', 'exec'), scope)\n"
        "import hashlib; sent = b'agent' * 30000; sha = hashlib.sha256(sent).hexdigest()\n"
        "for content in (sent[:-1] + b'T', sent):\n"
        "    try: print(scope['install'](sys.argv[2] + '/node', sha, {'agent': content}))\n"
        "    except scope['Trouble'] as trouble: print(trouble.args[1])\n"
    )
    source, place = BOOTSTRAP.read_text(), tmp_path / "redmesh" / "nodes"
    words = [sys.executable, "-I", "-S", "-c", code, source, str(place)]
    env = {"XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=True)
    damaged, whole = done.stdout.splitlines()
    assert damaged.startswith("the agent arrived damaged at ") and Path(whole).read_bytes() == b"agent" * 30000


def test_what_paramiko_and_peewee_would_load_for_others_is_not_loaded() -> None:
    code = "import sys, console.deploy.mesh.lifecycle; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    loaded = set(done.stdout.split())
    assert "peewee" in loaded and not loaded & {"paramiko", "invoke", "asyncio", "unittest", "pymysql"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import sys, console.deploy.ssh.connection; print(*sys.modules)"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert "paramiko" in done.stdout.split() and not set(done.stdout.split()) & {"invoke", "asyncio", "unittest"}


def test_source_is_sent_where_no_interpreter_is_like_the_hosts(tmp_path: Path) -> None:
    made = build.agent_for("cpython-30", str(tmp_path))
    assert not made.compiled
    with zipfile.ZipFile(io.BytesIO(made.content)) as archive:
        assert "agents/pct/node/daemon.py" in archive.namelist()
    assert [os.path.basename(path) for path in tmp_path.iterdir()] == [f"{build.source_digest()[:16]}-source.z"]


def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    from console.deploy.ssh.connection import _load_key

    path = tmp_path / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    assert not isinstance(_load_key(str(path)), str)
    for mode in (0o640, 0o604, 0o644):
        path.chmod(mode)
        told = _load_key(str(path))
        assert f"mode {mode:04o} lets others read it: chmod 600 {path}" in told
