"""Issues launch credentials, which a launcher shows to nodes on other machines (docs/security.md)."""

import os
from typing import NamedTuple

from agents.cpa.permissions import Denied
from agents.wire import caller_groups, keys
from agents.wire import credential as credentials
from agents.wire.caller_groups import CallerGroups
from agents.wire.control import Message
from agents.wire.credential import MARGIN_S, Credential
from agents.wire.errors import AgentError
from agents.wire.object_pass import LASTS_S, ObjectPass, mac_of
from db.allocation import finish
from db.allocation.free import Machine, as_messages
from db.store.store import Store
from db.views import daemon_reads


class Asker(NamedTuple):
    """The peer that asks for a credential. ``trusted``: root or the mesh's owner. ``groups``: the peer's, for the
    launch; None if they are not known, or do not count on this mesh."""

    uid: int
    trusted: bool
    groups: CallerGroups | None


class Issuing:
    """Issues credentials with the master key in ``state``/trust. A mesh of one machine has no key and needs none."""

    def __init__(self, mesh: str, state: str, pending_s: float) -> None:
        self._mesh, self._path = mesh, os.path.join(state, "trust", "master.key")
        self._pending_s = pending_s
        self._stamp: tuple[int, int] | None = None
        self._master = b""
        self._node_keys: dict[str, bytes] = {}

    def issue(self, store: Store, machine: Machine, message: Message, asker: Asker) -> Message:
        """The reply to a ``credential`` request. Raises StoreError, or AgentError if there is no key."""
        common = message["common"]
        if len(common) != 64 or not set(common) <= set("0123456789abcdef"):
            raise AgentError("common is a SHA-256, as hexadecimal digits", code="invalid")
        self._refresh()
        grant = finish.pending(store, message["launcher"], message["cookie"])
        if asker.uid != grant.uid and not asker.trusted:
            raise Denied(f"launcher {grant.launcher} is another user's", "only that user may load it")
        groups = asker.groups if asker.uid == grant.uid else None
        machine.refresh(store)
        placed = machine.nodes_of(grant.processors)
        members = credentials.members_of(as_messages(placed)) + caller_groups.entry(groups)
        credential = Credential(
            self._mesh,
            grant.launcher,
            grant.uid,
            credentials.digest_of_members(members),
            common,
            os.urandom(16).hex(),
            round(grant.until - min(MARGIN_S, self._pending_s / 4), 3),
        )
        lives = finish.lives(store, [one.id for one in placed])
        macs = {
            name: credentials.mac(self._key(name), credential.text, name, boot_id, incarnation)
            for name, (boot_id, incarnation) in lives.items()
        }
        return {"credential": credential.text, "macs": macs, "members": members}

    def object_pass(self, store: Store, uid: int, node: str) -> Message:
        """The reply to a ``state_pass`` request. Raises StoreError, or AgentError if there is no key."""
        self._refresh()
        life = daemon_reads.present_life(store, node)
        (now,) = store.read(daemon_reads.clock.bind())[0]
        text = ObjectPass(self._mesh, uid, round(now + LASTS_S, 3)).text
        return {"credential": text, "mac": mac_of(self._key(node), text, node, life.boot_id, life.incarnation)}

    def _refresh(self) -> None:
        # "mesh trust rotate" may replace the file at any time.
        try:
            found = os.stat(self._path)
        except OSError:
            raise AgentError(
                "this mesh has no keys: its nodes are on this machine",
                "mesh up makes them where hosts are",
                code="no_key",
            ) from None
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp != self._stamp:
            self._master, self._node_keys = keys.read(self._path)[0], {}
            self._stamp = stamp

    def _key(self, node: str) -> bytes:
        key = self._node_keys.get(node)
        if key is None:
            key = self._node_keys[node] = keys.launch_key(self._master, self._mesh, node)
        return key
