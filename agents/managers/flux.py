"""Flux: ``flux exec`` starts our processes by the instance's brokers, one for each host.

Source: flux-exec(1), flux-resource(1), flux-getattr(1), flux-environment(7); RFC 29 (host lists).
"""

from __future__ import annotations

import json
import os

from redmesh.managers import ManagerError, ask, client, expand, need_on_path, with_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Dict, Mapping, Sequence

    from redmesh.managers import Hosts

distributed = True
#: Seconds from SIGTERM to SIGKILL: the default of ``exec.kill-timeout`` (flux-config-exec(5)).
kill_delay_s = 5.0


def detect(environ: Mapping[str, str]) -> bool:
    """True inside a Flux instance."""
    return "FLUX_URI" in environ


def hosts(environ: Mapping[str, str]) -> Hosts:
    """The hosts of the instance's resource set R, with the cores of each."""
    return [(name, cores) for name, (cores, _rank) in _resources(environ).items()]


def job_id(environ: Mapping[str, str]) -> str:
    """The instance's job identifier; a top-level instance is named by its broker's URI."""
    inside = environ.get("FLUX_JOB_ID", "")
    if inside:
        return inside
    try:
        return ask(["flux", "getattr", "jobid"], environ).strip()
    except ManagerError:
        return environ["FLUX_URI"].rpartition("/run/")[2].replace("/", "-").replace(":", "-")


def starts_by(environ: Mapping[str, str]) -> str:
    """The path of flux. Raises ManagerError if it is not on PATH."""
    return need_on_path("flux", environ)


def spawn(
    environ: Mapping[str, str], host: str, argv: Sequence[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a subprocess of the broker on ``host``. Raises ManagerError if the instance has no such host."""
    found = _resources(environ).get(host)
    if found is None:
        raise ManagerError(f"this Flux instance has no host {host}", "flux resource list shows them")
    return client(["flux", "exec", "--rank", str(found[1]), "--dir", "/", *with_environment(argv, env)], environ)


def signal(handle: subprocess.Popen[bytes], number: int) -> None:
    """``flux exec`` forwards SIGINT and SIGTERM to its process."""
    os.kill(handle.pid, number)


def alive(handle: subprocess.Popen[bytes]) -> bool:
    """``flux exec`` runs as long as its process."""
    return handle.poll() is None


def _resources(environ: Mapping[str, str]) -> Dict[str, tuple[int, int]]:
    """Cores and broker rank of each host, by RFC 20: R_lite in the order of ``nodelist``."""
    try:
        execution = json.loads(ask(["flux", "resource", "R"], environ))["execution"]
        names = [name for part in execution["nodelist"] for name in expand(part)]
        ranks: Dict[int, int] = {}
        for entry in execution["R_lite"]:
            cores = len(_ids(entry["children"]["core"]))
            ranks.update(dict.fromkeys(_ids(entry["rank"]), cores))
    except (ValueError, KeyError, TypeError) as error:
        raise ManagerError(f"what `flux resource R` prints cannot be read: {error!r:.100}", "") from None
    if len(names) != len(ranks):
        raise ManagerError(f"Flux names {len(names)} hosts for {len(ranks)} brokers", "flux resource list")
    return {name: (ranks[rank], rank) for name, rank in zip(names, sorted(ranks))}


def _ids(text: str) -> Sequence[int]:
    return [int(name) for name in expand(f"[{text}]")]
