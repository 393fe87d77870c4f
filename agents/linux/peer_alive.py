"""Whether a client is still connected, as the kernel knows it now, independent of the loop."""

import select
import socket

_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


def is_there(sock: socket.socket | None) -> bool:
    """False if the peer has closed its end, even if earlier data is unread."""
    if sock is None:
        return False
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return not any(events & _GONE for _, events in poll.poll(0))
