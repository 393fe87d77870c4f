"""One rank of a parallel program: writes its rows of a picture to standard output.

It uses nothing of Redmesh but two environment variables of yod: the rank's number and the number of ranks. Started
without them, it computes the whole picture. Each row is a line ``row rank shades``; show.py draws it in its place.
"""

import os
import time

WIDTH, HEIGHT = 96, 32
LEFT, TOP, SPAN = -2.2, 1.2, 3.2
SAMPLES, DEPTH = 8, 320  # a character's shade is the mean of SAMPLES² points
STEPS = 12_800_000  # steps of all calls of escape for the picture, counted once; used to estimate the run time
SHADES = " .:-=+*#%@"


def escape(point: complex) -> int:
    """How many steps z² + c stays near zero, at most DEPTH."""
    z = 0j
    for step in range(DEPTH):
        z = z * z + point
        if z.real * z.real + z.imag * z.imag > 4.0:
            return step
    return DEPTH


def row(number: int) -> str:
    """One line of the picture."""
    fine = SPAN / WIDTH / SAMPLES
    shades = ""
    for column in range(WIDTH):
        steps = 0
        for part in range(SAMPLES * SAMPLES):
            x, y = column * SAMPLES + part % SAMPLES, number * SAMPLES + part // SAMPLES
            # A character is about twice as high as wide.
            steps += escape(complex(LEFT + fine * x, TOP - 2.35 * fine * y))
        mean = steps / (SAMPLES * SAMPLES) / DEPTH
        shades += SHADES[min(int(mean**0.35 * len(SHADES)), len(SHADES) - 1)]
    return shades


def main() -> None:
    """Compute rows RANK, RANK + SIZE, …"""
    rank, size = int(os.environ.get("YOD_RANK", "0")), int(os.environ.get("YOD_SIZE", "1"))
    for number in range(rank, HEIGHT, size):
        print(number, rank, row(number).replace(" ", "_"), flush=True)
        if number == rank:
            time.sleep(1.0)  # so that the user sees the picture grow, and showmesh shows the launch


if __name__ == "__main__":
    main()
