"""Rows from standard input, in any order, into a PNG file: ``picture.py mandelbrot.png``."""

import struct
import sys
import zlib


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


rows = {int(number): bytes.fromhex(pixels) for number, pixels in (line.split() for line in sys.stdin)}
if not rows or sorted(rows) != list(range(len(rows))):
    sys.exit("picture.py: rows are missing")
size = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)  # 8 bits of grey
lines = b"".join(b"\0" + rows[number] for number in range(len(rows)))
with open(sys.argv[1], "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))
print(f"{sys.argv[1]}: {len(rows[0])} x {len(rows)}")
