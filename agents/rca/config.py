"""The RCA's part of keeper.json (docs/architecture.md)."""

import json
import os
from typing import Any, NamedTuple

from agents.wire.errors import AgentError
from redmesh.byte_text import each_to_system


class ConfigError(AgentError):
    """An unusable configuration of an RCA."""

    code = "invalid"
    exit_status = 2


class Config(NamedTuple):
    """The RCA's part of keeper.json."""

    run: str
    state: str
    login: str
    boot_id: str
    cpas: int
    nodes: tuple[str, ...]
    suspect_s: float
    down_s: float
    silent_s: float
    register_again_s: float  # how long launchers and PCTs have to register with a new RCA
    failed_s: float  # how long a node that failed a load is not used
    listen: str  # our HOST:PORT for nodes on other machines; "" if there are none
    trust: str  # the directory with our keys
    hosts: tuple[str, ...]  # nodes on other machines
    public: bool  # system mode: every user of this login processor may connect
    mesh: str = ""
    cpas_afar: tuple[str, ...] = ()  # addresses of CPAs, if this login processor has none
    job: int = 0  # the process of the batch system's job that the mesh belongs to (the job's script); 0: none
    signalled: bool = False  # the batch system sends signals to daemons too (agents/linux/ending.py)
    cpa_port: int = 0  # the port of the first CPA on every other login processor with CPAs

    @property
    def socket(self) -> str:
        """The RCA's Unix socket."""
        return os.path.join(self.run, "rca.sock")

    def cpa_socket(self, number: int) -> str:
        """The Unix socket of CPA ``number``."""
        return os.path.join(self.run, f"cpa-{number}.sock")


def read(path: str) -> Config:
    """Read the configuration in ``path``. Raises ConfigError, which names the file and the fault."""
    try:
        with open(path, encoding="utf-8") as file:
            whole: dict[str, Any] = each_to_system(json.load(file))
        return Config(
            run=str(whole["run"]),
            state=str(whole["state"]),
            login=str(whole["login"]),
            boot_id=str(whole["boot_id"]),
            cpas=int(whole.get("cpas", 1)),
            nodes=tuple(str(node["name"]) for node in whole.get("nodes", ()) if not node.get("address")),
            suspect_s=float(whole.get("suspect_s", 5.0)),
            down_s=float(whole.get("down_s", 15.0)),
            silent_s=float(whole.get("silent_s", 10.0)),
            register_again_s=float(whole.get("register_again_s", 5.0)),
            failed_s=float(whole.get("failed_s", 30.0)),
            listen=str((whole.get("rca") or ("",))[0]),
            trust=str(whole.get("trust") or os.path.join(str(whole["state"]), "trust")),
            hosts=tuple(str(node["name"]) for node in whole.get("nodes", ()) if node.get("address")),
            public=bool(whole.get("users")),
            mesh=str(whole["mesh"]),
            cpas_afar=tuple(map(str, whole.get("cpas_afar", ()))),
            job=int((whole.get("ends_with") or (0,))[0]),
            signalled=bool(whole.get("signalled_by")),
            cpa_port=int(whole.get("cpa_port") or 0),
        )
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except KeyError as error:
        raise ConfigError(f"{path} lacks {error.args[0]!r}", "run: mesh up") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a keeper.json: {error}", "run: mesh up") from None
