"""A slow file system for tests: FUSE serves one file at a limited number of bytes a second. Needs root.

It can also delay an open for exec while it answers other requests.
"""

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 14, 15, 17, 18
_FLUSH, _INIT, _OPENDIR, _RELEASEDIR, _ACCESS, _INTERRUPT, _DESTROY, _BATCH_FORGET = 25, 26, 27, 29, 34, 36, 38, 42
_EMPTY = (_RELEASE, _FLUSH, _RELEASEDIR, _ACCESS, _DESTROY)
_ROOT, _FILE, _FOR_LONG_S, _MNT_DETACH = 1, 2, 3600, 2
_FOR_EXEC = 0x20  # a flag of an open request: __FMODE_EXEC in the kernel's include/linux/fs.h
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def slow_file(directory: Path, content: Path, bytes_per_s: float, exec_s: float = 0.0) -> Iterator[Path]:
    """Mount a slow copy of the file ``content`` at ``directory``; yield its path. Each exec of it waits ``exec_s``."""
    directory.mkdir()
    command = [sys.executable, "-m", "tests.support.slow_files", str(directory), str(content)]
    command += [str(bytes_per_s), str(exec_s)]
    server = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        wait_until(lambda: server.poll() is not None or os.path.ismount(directory), "it is mounted")
        assert server.poll() is None
        yield directory / content.name
    finally:
        _libc.umount2(os.fsencode(directory), _MNT_DETACH)
        server.kill()
        server.wait()


class Server:
    """Answers the kernel's FUSE requests, one after the other (linux/fuse.h)."""

    def __init__(self, directory: str, content: str, bytes_per_s: float, exec_s: float) -> None:
        self._name = os.path.basename(content).encode()
        self._content = Path(content).read_bytes()
        self._bytes_per_s, self._exec_s = bytes_per_s, exec_s
        self._fd = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other".encode()
        if _libc.mount(b"slow", os.fsencode(directory), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "mount")

    def serve(self) -> None:
        """Answer requests until the file system is unmounted."""
        while True:
            try:
                data = os.read(self._fd, 1 << 20)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    continue  # a request that was interrupted
                return
            _, operation, unique, node = struct.unpack_from("<IIQQ", data)
            if operation in (_FORGET, _BATCH_FORGET, _INTERRUPT):
                continue
            failed, answer = self._answer(operation, node, data[40:])
            reply = struct.pack("<IiQ", 16 + len(answer), -failed, unique) + answer
            if operation == _OPEN and struct.unpack_from("<I", data, 40)[0] & _FOR_EXEC and self._exec_s:
                threading.Timer(self._exec_s, os.write, (self._fd, reply)).start()
                continue
            os.write(self._fd, reply)
            if operation == _DESTROY:
                return

    def _answer(self, operation: int, node: int, body: bytes) -> tuple[int, bytes]:
        if operation == _INIT:
            return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 4, 4, 4096, 1, 0, 0, 0)
        if operation == _LOOKUP:
            if body.rstrip(b"\0") != self._name:
                return errno.ENOENT, b""
            return 0, struct.pack("<QQQQII", _FILE, 0, _FOR_LONG_S, _FOR_LONG_S, 0, 0) + self._attributes(_FILE)
        if operation == _GETATTR:
            return 0, struct.pack("<QII", _FOR_LONG_S, 0, 0) + self._attributes(node)
        if operation in (_OPEN, _OPENDIR):
            return 0, struct.pack("<QII", 0, 2, 0)  # 2 is FOPEN_KEEP_CACHE: the page cache is kept across opens
        if operation == _READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            part = self._content[offset : offset + size]
            time.sleep(len(part) / self._bytes_per_s)
            return 0, part
        if operation == _STATFS:
            return 0, bytes(80)
        return (0 if operation in _EMPTY else errno.ENOSYS), b""

    def _attributes(self, node: int) -> bytes:
        directory = node == _ROOT
        size = 0 if directory else len(self._content)
        mode = stat.S_IFDIR | 0o755 if directory else stat.S_IFREG | 0o755
        numbers = (node, size, (size + 511) // 512, 0, 0, 0)
        return struct.pack("<QQQQQQIIIIIIIIII", *numbers, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)


if __name__ == "__main__":
    Server(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])).serve()
