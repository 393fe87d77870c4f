"""paramiko, without invoke, which it loads for ``Match exec`` alone (we run none): 50 ms of each ``mesh up``."""

import sys
from typing import Any

_UNUSED = "invoke"  # and, by it, asyncio, unittest and a YAML reader

if _UNUSED in sys.modules:
    import paramiko
else:
    modules: dict[str, Any] = sys.modules
    modules[_UNUSED] = None  # an import of it fails, which paramiko is prepared for
    try:
        import paramiko
    finally:
        del modules[_UNUSED]

__all__ = ["paramiko"]
