"""A file system that is slow to begin a program, as parallel ones are under load: FUSE, without any library.

``python slow_files.py MOUNT PROGRAM SECONDS`` shows PROGRAM as MOUNT/program, and answers each open for an exec after
so many seconds. Root may mount it; it is unmounted when this process ends.
"""

import ctypes
import os
import stat
import struct
import sys
import threading
import time

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 27, 29, 36, 42
FOR_EXEC = 0x20  # of the flags of an open: FMODE_EXEC in the kernel's include/linux/fs.h
REQUEST = struct.Struct("<IIQQIIII")  # length, operation, number, node, uid, gid, pid, padding
ROOT, PROGRAM = 1, 2


class SlowFiles:
    """The server's side of /dev/fuse."""

    def __init__(self, program: str, seconds: float) -> None:
        self.seconds = seconds
        with open(program, "rb") as file:
            self.content = file.read()
        self.device = os.open("/dev/fuse", os.O_RDWR)

    def mount(self, place: str) -> None:
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"slow", place.encode(), b"fuse", ctypes.c_ulong(0), options):
            raise OSError(ctypes.get_errno(), "mount")

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self.device, 1 << 18)
            except OSError:
                return  # unmounted
            _, operation, number, node, *_ = REQUEST.unpack_from(request)
            body = request[REQUEST.size :]
            if operation in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            if operation == OPEN and struct.unpack_from("<I", body)[0] & FOR_EXEC:
                threading.Thread(target=self.open_late, args=(number,), daemon=True).start()
                continue
            self.answer(number, self.reply(operation, node, body))

    def open_late(self, number: int) -> None:
        time.sleep(self.seconds)
        self.answer(number, struct.pack("<QII", 0, 0, 0))

    def answer(self, number: int, reply: "bytes | int") -> None:
        error, data = (-reply, b"") if isinstance(reply, int) else (0, reply)
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(data), error, number) + data)
        except OSError:
            pass  # whoever asked was killed

    def reply(self, operation: int, node: int, body: bytes) -> "bytes | int":
        """What to answer, or an errno."""
        if operation == INIT:
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 17, 0, 12, 10, 1 << 17, 1, 32, 0, 0)
        if operation == LOOKUP:
            if node != ROOT or body.rstrip(b"\0") != b"program":
                return 2
            return struct.pack("<QQQQII", PROGRAM, 0, 60, 60, 0, 0) + self.attributes(PROGRAM)
        if operation == GETATTR:
            return struct.pack("<QII", 60, 0, 0) + self.attributes(node)
        if operation in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if operation == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return self.content[offset : offset + size]
        if operation == STATFS:
            return struct.pack("<QQQQQIIII24x", 1, 1, 1, 2, 2, 4096, 255, 4096, 0)
        return b"" if operation in (RELEASE, RELEASEDIR, FLUSH) else 38

    def attributes(self, node: int) -> bytes:
        mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o755
        size = 0 if node == ROOT else len(self.content)
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def main() -> None:
    place, program, seconds = sys.argv[1:]
    files = SlowFiles(program, float(seconds))
    files.mount(place)
    files.serve()


if __name__ == "__main__":
    main()
