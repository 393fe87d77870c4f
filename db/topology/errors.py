"""What is wrong with a description of the machine."""

from __future__ import annotations

from db.errors import StoreError


class TopologyError(StoreError):
    """A description that cannot be one of any machine; the message names the key."""

    code = "invalid"
    exit_status = 2
