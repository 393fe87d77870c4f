"""The CPA's part of keeper.json (docs/architecture.md)."""

import json
import os
import stat
from typing import Any, NamedTuple

from agents.cpa.line.places import read_origin
from agents.wire.errors import AgentError
from db.allocation.managers import Policy, read_policy
from db.errors import Invalid
from redmesh.byte_text import each_to_system
from redmesh.start_command import ROOT, start_command


class ConfigError(AgentError):
    """An unusable configuration of a CPA."""

    code = "invalid"
    exit_status = 2


class Config(NamedTuple):
    """The CPA's part of keeper.json."""

    run: str
    state: str
    login: str
    database: str
    batch_accounts: frozenset[str]
    admins: frozenset[str]
    cleanup: tuple[str, ...]
    history_days: float
    history_rows: int
    placement: str
    nice_grace_s: float
    mesh: str
    public: bool  # system mode: every user of this login processor may connect
    show_commands: bool = True  # viewers read the arguments of launches (db/allocation/full_texts.py)
    signalled: bool = False  # the batch system sends signals to daemons too (agents/linux/ending.py)
    granted: bool = False  # another login processor's mesh up granted it, and may revoke it
    pending_s: float = 60.0
    loading_s: float = 300.0
    unwatched_s: float = 30.0  # when launches are looked at whose process nobody may watch
    backfill: bool = True  # smaller requests may pass if they delay nobody
    policy: Policy | None = None  # managers of parts of the machine, and limits of users
    post_back_urls: frozenset[str] = frozenset()  # https://HOST:PORT of the URLs that grants may be posted back to
    post_back_ca: str = ""  # the CA certificates for these URLs; empty: the system's
    installed: str = ""  # the directory of the full Redmesh with its commands; daemons run a copy without them
    rca_listens: bool = False  # this login processor's RCA hears from those of others what their CPAs have changed
    listen: str = ""  # HOST:PORT for RCAs of login processors without a CPA; the next CPA uses the next port

    def place(self, name: str) -> str:
        """The address of the CPA ``name`` for other login processors; empty if it has none."""
        host, _, port = self.listen.rpartition(":")
        return f"{host}:{int(port) + int(name.rpartition('-')[2])}" if self.listen else ""

    def address(self, name: str) -> str:
        """The identity of a CPA that holds a request: its login processor, and its address for CPAs there."""
        return f"{self.login} {self.socket(name)}"

    def socket(self, name: str) -> str:
        """The Unix socket of the CPA ``name``."""
        return os.path.join(self.run, f"{name}.sock")


def read(path: str) -> Config:
    """Read the configuration in ``path``. Raises ConfigError, which names the file and the fault."""
    try:
        with open(path, encoding="utf-8") as file:
            whole: dict[str, Any] = each_to_system(json.load(file))
        cleanup = whole.get("cleanup")
        return Config(
            run=str(whole["run"]),
            state=str(whole["state"]),
            login=str(whole["login"]),
            database=_database(whole),
            batch_accounts=frozenset(map(str, whole.get("batch_accounts", ()))),
            admins=frozenset(map(str, whole.get("admins", ()))),
            cleanup=(str(cleanup),) if cleanup else tuple(start_command("cleanup")),
            history_days=float(whole.get("history_days", 30)),
            history_rows=int(whole.get("history_rows", 10_000)),
            placement=str(whole.get("placement") or "default"),
            signalled=bool(whole.get("signalled_by")),
            nice_grace_s=float(whole.get("nice_grace_s", 300.0)),
            pending_s=float(whole.get("pending_s", 60.0)),
            loading_s=float(whole.get("loading_s", 300.0)),
            unwatched_s=float(whole.get("unwatched_s", 30.0)),
            mesh=str(whole["mesh"]),
            installed=str(whole.get("installed") or ROOT),
            granted=bool(whole.get("granted")),
            backfill=bool(whole.get("backfill", True)),
            policy=read_policy(whole),
            post_back_urls=frozenset(map(read_origin, whole.get("post_back_urls", ()))),
            post_back_ca=str(whole.get("post_back_ca") or ""),
            rca_listens=bool(whole.get("rca")),
            listen=str(whole.get("cpa_listen") or ""),
            public=bool(whole.get("users")),
            show_commands=not whole.get("users") or bool(whole.get("show_commands")),
        )
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: {error.strerror}") from None
    except (Invalid, AgentError) as error:
        raise ConfigError(f"{path}: {error.message}", error.hint) from None
    except KeyError as error:
        raise ConfigError(f"{path} lacks {error.args[0]!r}", "run: mesh up") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a keeper.json: {error}", "run: mesh up") from None


def _database(whole: dict[str, Any]) -> str:
    """The CPA's database URL: from its own 0600 file if one is named, otherwise from keeper.json."""
    file_name = whole.get("database_file")
    if not file_name:
        return str(whole["database"])
    with open(file_name, encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o077:
            raise ConfigError(
                f"{file_name} holds the database's password and must be yours alone", f"chmod 600 {file_name}"
            )
        return file.read().strip()
