"""``mesh procs``: the processes of a running launch, for people and for debuggers."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from agents.link.client import Client, Unreachable
from console.cli.mesh.chosen_launch import chosen_launch
from console.errors import ConsoleError
from console.launch.attach import mpir
from console.launch.attach.client import reach_launch
from console.launch.daemons.connect import stay_on_side, yod_owner, yod_socket
from console.settings import Settings
from redmesh.sanitise import clean

_ANSWER_S = 10.0
_COMPILERS = ("cc", "gcc", "clang")


def procs(settings: Settings, options: argparse.Namespace) -> int:
    """Print the process table, or (``--mpir-stub``) run a stub process that holds it for a debugger."""
    launcher = chosen_launch(settings, options.launcher)
    stay_on_side(settings, launcher)
    with _connected(settings.run_dir, launcher) as client:
        entries = _entries(client, launcher)
        if options.mpir_stub:
            return _be_stub(client, launcher, entries)
    if options.mpir:
        print(json.dumps(mpir.document(entries), indent=1))
    elif options.json:
        print(json.dumps([{"rank": rank, **one} for rank, one in enumerate(entries)]))
    else:
        for rank, one in enumerate(entries):
            print(f"{rank:>6}  {clean(one['host_name'])}  {one['pid']:>8}  {clean(one['executable_name'])}")
    return 0


def _connected(run_dir: str, launcher: int) -> Client:
    reach = reach_launch(run_dir, launcher)
    if reach is not None:
        reach.close()
    path = yod_socket(run_dir, launcher)
    return Client(path, "observer", _ANSWER_S, yod_owner(path))


def _entries(client: Client, launcher: int) -> list[dict[str, Any]]:
    try:
        client.tell({"op": "procs"})
        while True:
            event = client.receive()
            if event.get("event") == "procs":
                return [
                    {"host_name": str(host), "executable_name": str(path), "pid": int(pid)}
                    for host, path, pid in event["table"]
                ]
            if event.get("event") == "refused":
                raise ConsoleError(str(event["text"]))
    except Unreachable:
        raise ConsoleError(f"launcher {launcher} did not report its processes", "it may have ended meanwhile") from None


def _be_stub(client: Client, launcher: int, entries: list[dict[str, Any]]) -> int:
    """Compile and run a process with the MPIR table, for debuggers to attach to, until ^C or the end of the launch."""
    compiler = next((found for name in _COMPILERS if (found := shutil.which(name))), "")
    if not compiler:
        raise ConsoleError(
            "the stub needs a C compiler, and there is none here",
            "install gcc or clang, or give your debugger the processes by hand: mesh procs --mpir prints them",
        )
    with tempfile.TemporaryDirectory(prefix="redmesh-mpir-") as folder:
        program = os.path.join(folder, f"redmesh-{launcher}")
        with open(f"{program}.c", "w", encoding="utf-8") as source:
            source.write(mpir.stub(entries))
        built = subprocess.run([compiler, "-g", "-O0", "-o", program, f"{program}.c"], capture_output=True, text=True)
        if built.returncode:
            raise ConsoleError(f"the stub cannot be compiled: {built.stderr.strip()[-200:]}")
        process = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            print(f"MPIR_proctable of launcher {launcher}: attach to process {process.pid}", flush=True)
            print(f"mesh: gdb -p {process.pid}, and the same for other debuggers; ^C ends it", file=sys.stderr)
            _wait_for_end(client)
        except KeyboardInterrupt:
            pass
        finally:
            process.kill()
            process.communicate()
    return 0


def _wait_for_end(client: Client) -> None:
    client.sock.settimeout(None)
    client.tell({"op": "attach", "replay": False, "output": False})
    try:
        while client.receive().get("event") != "end":
            pass
    except Unreachable:
        pass
