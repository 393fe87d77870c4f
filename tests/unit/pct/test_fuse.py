"""The beginning of a mount: what the kernel says first, and what is answered."""

import errno
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from agents.pct.files.fuse import HEADER, INIT, FuseDevice

_UNIQUE = 7


@pytest.fixture
def kernel() -> Iterator[tuple[socket.socket, FuseDevice]]:
    """The kernel's end of a device, and ours."""
    end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    device = FuseDevice(other.detach())
    yield end, device
    device.close()
    end.close()


def begin(end: socket.socket, minor: int) -> None:
    body = struct.pack("=IIII", 7, minor, 1 << 17, 0xFFFFFFFF)
    end.send(HEADER.pack(HEADER.size + len(body), INIT, _UNIQUE, 0, 0, 0, 0, 0) + body)


def test_protocol_is_agreed_on(kernel: tuple[socket.socket, FuseDevice]) -> None:
    end, device = kernel
    begin(end, 38)
    device.begin()
    length, code, unique, major, minor = struct.unpack_from("=IiQII", reply := end.recv(1024))
    assert (length, code, unique, major, minor) == (len(reply), 0, _UNIQUE, 7, 31)


def test_a_kernel_that_is_too_old_is_named(kernel: tuple[socket.socket, FuseDevice]) -> None:
    end, device = kernel
    begin(end, 27)
    with pytest.raises(OSError, match=r"protocol is 7\.27, 7\.31 \(Linux 5\.4\) is needed") as refused:
        device.begin()
    assert refused.value.errno == errno.EPROTO
    assert struct.unpack("=IiQ", end.recv(1024)) == (16, -errno.EPROTO, _UNIQUE)


def test_a_device_that_is_not_mounted_is_no_hang(kernel: tuple[socket.socket, FuseDevice]) -> None:
    _, device = kernel
    with pytest.raises(OSError, match="has not begun"):
        device.begin()
    assert not os.get_blocking(device.fd)
