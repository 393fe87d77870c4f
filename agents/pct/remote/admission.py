"""Whether a credential admits a launch to this node. No I/O: the caller gives the time and the killed launchers."""

from __future__ import annotations

from agents.wire import credential as credentials
from agents.wire import object_pass
from agents.wire.credential import Credential
from agents.wire.errors import Refusal, WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

_FORMER = 8  # earlier incarnations that are distinguished from forgeries


class Admission:
    """Admits each credential once.

    ``life`` gives the present boot id and incarnation. ``owner``: the uid (on the login processor) whose launches are
    admitted; None for all (system mode).
    """

    def __init__(
        self,
        mesh: str,
        node: str,
        owner: Optional[int],
        life: Callable[[], Tuple[str, int]],
        keys: Callable[[], List[bytes]],
        now: Callable[[], Optional[float]],
        is_killed: Callable[[int], bool],
    ) -> None:
        self._mesh, self._node, self._owner, self._life = mesh, node, owner, life
        self._keys, self._now, self._is_killed = keys, now, is_killed
        self._seen: Dict[str, float] = {}  # nonces, with the expiry of their credentials

    def admit(self, text: str, mac: str) -> Credential:
        """Verify the credential of a launch that may start here now. Raises Refusal."""
        credential = self.recognise(text, mac)
        now = self._now()
        if now is None:
            raise Refusal("no_time", f"{self._node} does not know the mesh's time yet", "try again in a moment")
        if now > credential.expires_at:
            late = now - credential.expires_at
            raise Refusal("expired", f"the credential of launcher {credential.launcher} ran out {late:.1f} s ago")
        if self._is_killed(credential.launcher):
            raise Refusal("killed", f"{self._node}: launcher {credential.launcher} has been killed")
        self._forget(now)
        if credential.nonce in self._seen:
            raise Refusal("replayed", f"the credential of launcher {credential.launcher} has been used here already")
        self._seen[credential.nonce] = credential.expires_at
        return credential

    def left_s(self, credential: Credential) -> float:
        """Seconds until an admitted credential expires."""
        now = self._now()
        return 0.0 if now is None else credential.expires_at - now

    def recognise(self, text: str, mac: str) -> Credential:
        """Verify a credential that a CPA made for this boot and incarnation, whether or not it is used up. Raises
        Refusal."""
        if not text:
            raise Refusal("no_credential", f"{self._node} begins a launch only for a credential, and none was sent")
        if len(text) > credentials.LONGEST:
            raise Refusal("malformed", "a credential is shorter")
        self._check_mac(text, mac, credentials.mac)
        try:
            credential = credentials.read(text)
        except WireError as error:
            raise Refusal("malformed", error.message) from None
        if credential.mesh != self._mesh:
            raise Refusal("other_mesh", f"a credential of mesh {credential.mesh[:40]!r}")
        if self._owner is not None and credential.uid != self._owner:
            raise Refusal("other_uid", f"{self._node} runs launches of uid {self._owner}, not of {credential.uid}")
        return credential

    def user(self, text: str, mac: str) -> int:
        """The uid of the user to whom a CPA has given this pass for state objects. Raises Refusal."""
        if len(text) > credentials.LONGEST:
            raise Refusal("malformed", "a pass is shorter")
        self._check_mac(text, mac, object_pass.mac_of)
        try:
            found = object_pass.read(text)
        except WireError as error:
            raise Refusal("malformed", error.message) from None
        now = self._now()
        if found.mesh != self._mesh:
            raise Refusal("other_mesh", f"a pass of mesh {found.mesh[:40]!r}")
        if now is None or now > found.expires_at:
            raise Refusal("expired", "the pass of a user ran out, or this node does not know the time", "try again")
        if self._owner is not None and found.uid != self._owner:
            raise Refusal("other_uid", f"{self._node} holds objects of uid {self._owner}, not of {found.uid}")
        return found.uid

    def _check_mac(self, text: str, mac: str, made_by: "Callable[..., Any]") -> None:
        keys = self._keys()
        boot_id, incarnation = self._life()

        def is_of(life: int) -> bool:
            macs = [made_by(key, text, self._node, boot_id, life) for key in keys]
            return any(credentials.same(mac, made) for made in macs)

        if is_of(incarnation):
            return
        for former in range(max(1, incarnation - _FORMER), incarnation):
            if is_of(former):
                raise Refusal("former_life", f"a credential for a PCT of {self._node} that is no more")
        raise Refusal("forged", f"a credential that is not a CPA's for {self._node}")

    def _forget(self, now: float) -> None:
        # expired credentials are refused anyway
        self._seen = {nonce: at for nonce, at in self._seen.items() if at >= now}
