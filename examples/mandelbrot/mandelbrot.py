"""One rank's rows of a Mandelbrot picture on standard output, a line each: row number, then a hexadecimal byte a pixel.

yod -sz 2 python3 mandelbrot.py 320 240 | python3 picture.py mandelbrot.png
"""

import os
import sys

DEPTH = 255
width, height = int(sys.argv[1]), int(sys.argv[2])
rank, size = int(os.environ["YOD_RANK"]), int(os.environ["YOD_SIZE"])


def shade(x: float, y: float) -> int:
    """0 where z² + c stays near zero, else the brighter the longer it takes to leave."""
    c, z = complex(x, y), 0j
    for step in range(DEPTH):
        z = z * z + c
        if z.real * z.real + z.imag * z.imag > 4.0:
            return int(255 * ((step + 1) / DEPTH) ** 0.5)
    return 0


for row in range(rank, height, size):  # rows are dealt in turn, so that no rank gets all the slow ones
    y = 1.2 - 2.4 * row / height
    print(row, bytes(shade(-2.2 + 3.2 * column / width, y) for column in range(width)).hex(), flush=True)
