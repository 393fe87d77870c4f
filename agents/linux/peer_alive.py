"""Whether a client is still at the other end, as the kernel knows it now, not as the loop last heard."""

import select
import socket

_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


def is_there(sock: socket.socket | None) -> bool:
    """False when the peer has closed its end, even if bytes that it sent before are still unread."""
    if sock is None:
        return False
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return not any(events & _GONE for _, events in poll.poll(0))
