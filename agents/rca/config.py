"""The RCA's part of keeper.json (docs/architecture.md)."""

import os

from redmesh.settings.keeper_file import KeeperFile
from redmesh.start_command import ROOT


class Config:
    """What the RCA takes from keeper.json; the types are those of the record."""

    def __init__(self, file: KeeperFile) -> None:
        self.run, self.state, self.trust = file.run, file.state, file.trust_directory
        self.mesh, self.login, self.boot_id = file.mesh, file.login, file.boot_id
        self.suspect_s, self.down_s, self.silent_s = file.suspect_s, file.down_s, file.silent_s
        self.failed_s, self.register_again_s = file.failed_s, file.register_again_s
        self.public = file.users  # system mode: every user of this login processor may connect
        self.cpas, self.cpas_afar, self.cpa_port = file.cpas, file.cpas_afar, file.cpa_port
        self.nodes = tuple(node.name for node in file.nodes if not node.address)
        self.hosts = tuple(node.name for node in file.nodes if node.address)  # nodes on other machines
        self.listen = file.rca[0] if file.rca else ""  # our HOST:PORT for nodes on other machines
        self.job = file.script[0] if file.script is not None else 0  # the process of the batch job's script
        self.signalled = bool(file.signalled_by)  # see agents/linux/ending.py
        self.cpa_listen = file.cpa_listen  # HOST:PORT of our CPAs for other login processors
        self.installed = file.installed or ROOT  # the full Redmesh with its commands; daemons run a copy without them

    @property
    def socket(self) -> str:
        """The RCA's Unix socket."""
        return os.path.join(self.run, "rca.sock")

    def cpa_socket(self, number: int) -> str:
        """The Unix socket of CPA ``number``."""
        return os.path.join(self.run, f"cpa-{number}.sock")
