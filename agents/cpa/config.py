"""The CPA's part of keeper.json (docs/architecture.md)."""

import os
import stat

from agents.cpa.line.places import read_origin
from agents.wire.errors import AgentError
from agents.wire.keeper_json import ConfigError, read_keeper_json
from db.allocation.managers import read_policy
from db.errors import Invalid
from redmesh.settings.keeper_file import KeeperFile
from redmesh.settings.record import MissingFields
from redmesh.start_command import ROOT, start_command


class Config:
    """What a CPA takes from keeper.json; the types are those of the record.

    Raises OSError or ConfigError for the file with the database's URL, MissingFields without one; Invalid or AgentError
    for a wrong policy or URL.
    """

    def __init__(self, file: KeeperFile) -> None:
        self.run, self.state, self.mesh, self.login = file.run, file.state, file.mesh, file.login
        self.database = _database(file)
        self.batch_accounts, self.admins = frozenset(file.batch_accounts), frozenset(file.admins)
        self.cleanup = (file.cleanup,) if file.cleanup else tuple(start_command("cleanup"))
        self.history_days, self.history_rows = file.history_days, file.history_rows
        self.placement = file.placement or "default"
        self.pending_s, self.loading_s, self.nice_grace_s = file.pending_s, file.loading_s, file.nice_grace_s
        self.unwatched_s, self.backfill = file.unwatched_s, file.backfill
        self.policy = read_policy(file.managers, file.max_processors, file.max_jobs)
        self.post_back_urls = frozenset(map(read_origin, file.post_back_urls))
        self.post_back_ca = file.post_back_ca
        self.public = file.users  # system mode: every user of this login processor may connect
        # Viewers read the arguments of launches (db/allocation/full_texts.py).
        self.show_commands = not file.users or bool(file.show_commands)
        self.signalled = bool(file.signalled_by)  # see agents/linux/ending.py
        self.granted = file.granted
        self.installed = file.installed or ROOT
        self.rca_listens = bool(file.rca)  # it hears from other login processors' RCAs what their CPAs have changed
        self.listen = file.cpa_listen

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
    file = read_keeper_json(path)
    try:
        return Config(file)
    except ConfigError:
        raise
    except MissingFields as error:
        raise ConfigError(f"{path} lacks {error}", "run: mesh up") from None
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: {error.strerror}") from None
    except (Invalid, AgentError) as error:
        raise ConfigError(f"{path}: {error.message}", error.hint) from None


def _database(file: KeeperFile) -> str:
    """The CPA's database URL: from its own 0600 file if one is named, otherwise from keeper.json."""
    name = file.database_file
    if not name:
        if not file.database:
            raise MissingFields(("database",))
        return file.database
    with open(name, encoding="utf-8") as url:
        status = os.fstat(url.fileno())
        if status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o077:
            raise ConfigError(f"{name} holds the database's password and must be yours alone", f"chmod 600 {name}")
        try:
            return url.read().strip()
        except UnicodeDecodeError:
            told = f"{name} holds no database URL: it is not UTF-8"
            raise ConfigError(told, "docs/database.md has examples") from None
