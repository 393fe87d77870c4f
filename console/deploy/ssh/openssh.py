"""Asks OpenSSH how it would connect to a host: ``ssh -G`` reads its own files, with every criterion of ``Match``.

paramiko refuses ``Match final all`` (which Red Hat has in /etc/ssh/ssh_config.d) and ``Match host=…``, takes unknown
criteria as fulfilled, and can run no ``Match exec``. A question takes 8 ms, so it is asked only where it is needed.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from console.errors import ConsoleError

#: Questions at the same time, and seconds for an answer: ``Match exec`` may run anything.
AT_ONCE, ANSWER_S = 8, 5.0
#: Values in which ``ssh -G`` leaves tokens (``%h``) as they are in the file.
_WITH_TOKENS = ("identityfile", "proxycommand", "proxyjump")
#: Values that name files, in which ssh replaces tokens and ``${VARIABLES}``.
FILES = ("identityfile", "userknownhostsfile")
#: Asks for ``%C``, a digest that versions of ssh compute differently. Redmesh does not use ControlPath itself.
_ASK_DIGEST = ("-o", "ControlPath=%C")


class OpenSsh:
    """The command ``ssh`` with the files that it reads. Thread-safe."""

    def __init__(self, program: str, options: Sequence[str] = (), given: str = "") -> None:
        self._program, self._options, self._given = program, tuple(options), given
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def ask(self, name: str, port: int, user: str) -> dict[str, list[str]]:
        """Return the configuration of a host: the values of each keyword, in lower case. Raises ConsoleError.

        ``port`` and ``user`` have priority over the files; 0 and "" mean that the files decide.
        """
        given = [*(["-p", str(port)] if port else []), *(["-l", user] if user else [])]
        with self._places:
            printed = self._run([self._program, "-G", "-T", *_ASK_DIGEST, *self._options, *given, "--", name], name)
        found: dict[str, list[str]] = {}
        for line in printed.splitlines():
            key, _, value = line.partition(" ")
            found.setdefault(key.lower(), []).append(value)
        if not {"hostname", "port", "user"} <= set(found):
            raise ConsoleError(f"{self._program} -G prints no configuration of {name}", "is it OpenSSH?")
        tokens = _tokens(name, found)
        for key in _WITH_TOKENS:
            if key in found:
                found[key] = [_expanded(value, tokens) for value in found[key]]
        if "proxycommand" in found:  # what a shell would do
            found["proxycommand"] = [re.sub(r"(?<!\S)~(?=/)", tokens["d"], found["proxycommand"][0])]
        return found

    def _input(self) -> IO[bytes]:
        """The configuration for ``-F /dev/stdin``, in a file: ``Match final`` makes ssh read it twice."""
        file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
        file.write(self._given.encode("utf-8", "surrogateescape"))
        file.seek(0)
        return file

    def _run(self, words: Sequence[str], name: str) -> str:
        # A file takes the errors: a command of ``Match exec`` may leave a process that keeps a pipe open.
        # The session is its own, so that a time-out ends these commands too.
        try:
            with (
                tempfile.TemporaryFile() as errors,
                self._input() as given,
                subprocess.Popen(
                    words, stdin=given, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
                ) as process,
            ):
                try:
                    printed, _ = process.communicate(timeout=ANSWER_S)
                except subprocess.TimeoutExpired:
                    raise ConsoleError(
                        f"ssh -G {name} does not end within {ANSWER_S:g} s",
                        "does a `Match exec` of SSH's configuration wait for something?",
                    ) from None
                finally:
                    if process.returncode is None:
                        os.killpg(process.pid, signal.SIGKILL)
                errors.seek(0)
                told = errors.read(65_536).decode("utf-8", "replace").strip().splitlines()[-2:]
        except OSError as error:
            raise ConsoleError(f"ssh -G {name}: {error.strerror}") from None
        if process.returncode:
            raise ConsoleError(
                f"ssh -G {name} exits with {process.returncode}: {'; '.join(told) or 'no message'}",
                "mend SSH's configuration until `ssh -G` prints that host",
            )
        return printed.decode("utf-8", "surrogateescape")


def find(path: str, user_file: str, system_file: str) -> OpenSsh | None:
    """The command ``ssh``, which reads ``path`` instead of its files if that is not empty; None if it is of no use.

    OpenSSH takes the home directory from the system's accounts and not from HOME. If they differ, it is given the files
    that are below HOME, unless another user could have written them: commands in them would run as the caller.
    """
    program = shutil.which("ssh")
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None  # ssh refuses users that have no account
    if program is None:
        return None
    if path:
        return OpenSsh(program, ["-F", path])
    if os.path.realpath(home) == os.path.realpath(os.path.expanduser("~")):
        return OpenSsh(program)
    if not _is_ours(user_file):
        return None
    included = "".join(f'Include "{one}"\n' for one in (user_file, system_file))
    # Behind them, so that it is the default: ssh would pin keys in the account's directory.
    pins = " ".join(f'"{os.path.expanduser(one)}"' for one in ("~/.ssh/known_hosts", "~/.ssh/known_hosts2"))
    return OpenSsh(program, ["-F", "/dev/stdin"], f"{included}UserKnownHostsFile {pins}\n")


def _is_ours(path: str) -> bool:
    """Whether OpenSSH would trust a file: it is the caller's or root's, and nobody else can write it."""
    try:
        status = os.stat(path)
    except OSError:
        return True  # nothing will be read
    return status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022


def _tokens(name: str, found: Mapping[str, Sequence[str]]) -> dict[str, str]:
    local = socket.gethostname()
    return {
        "%": "%",
        "C": found.get("controlpath", ["%C"])[0],
        "d": os.path.expanduser("~"),
        "h": found["hostname"][0],
        "i": str(os.getuid()),
        "j": "" if found.get("proxyjump", ["none"])[0] == "none" else found["proxyjump"][0],
        "k": found.get("hostkeyalias", [name])[0],
        "L": local.partition(".")[0],
        "l": local,
        "n": name,
        "p": found["port"][0],
        "r": found["user"][0],
        "u": pwd.getpwuid(os.getuid()).pw_name,
    }


def expanded(name: str, found: Mapping[str, Sequence[str]], port: int, user: str) -> dict[str, list[str]]:
    """The values of a host with the tokens in names of files replaced, where no ``ssh`` does it: all but ``%C``."""
    own = pwd.getpwuid(os.getuid()).pw_name
    known = {
        **found,
        "hostname": found.get("hostname", [name]),
        "port": [str(port)] if port else found.get("port", ["22"]),
        "user": [user] if user else found.get("user", [own]),
        "controlpath": ["%C"],
    }
    tokens = _tokens(name, known)
    return {
        key: [_expanded(value, tokens) for value in values] if key in FILES else list(values)
        for key, values in found.items()
    }


def _expanded(value: str, tokens: Mapping[str, str]) -> str:
    """Replace tokens and ``${VARIABLES}``; unknown ones stay."""

    def meaning(match: re.Match[str]) -> str:
        return tokens.get(match[1], match[0]) if match[1] else os.environ.get(match[2], match[0])

    return re.sub(r"%(.)|\$\{(\w+)\}", meaning, value)
