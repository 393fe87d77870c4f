#!/usr/bin/env python3
"""Kirchhoff time migration of a synthetic seismic section, cut into sections of image traces.

    migrate.py model traces.bin [--traces 1000] [--samples 1000]     a zero-offset section of diffractors
    migrate.py migrate traces.bin --first 0 --count 2 --out part.0   some traces of the image, as float32
    migrate.py serial traces.bin --out image.bin                     the whole image, for comparison

The image at (x, t0) is the sum over the traces at xs of the amplitude at sqrt(t0^2 + 4 (x - xs)^2 / v^2), weighted by
the obliquity t0 / t. Needs numpy.
"""

import argparse
import shutil
import tempfile

import numpy as np

SPACING, STEP, VELOCITY = 12.5, 0.004, 2000.0  # metres between traces, seconds between samples, metres a second


def model(path: str, traces: int, samples: int) -> None:
    """Write a zero-offset section: what diffractors along a dipping layer, and four alone, send back."""
    x, t = np.arange(traces) * SPACING, np.arange(samples) * STEP
    points = [(x[-1] * part, t[-1] * depth) for part, depth in ((0.2, 0.3), (0.5, 0.25), (0.5, 0.6), (0.8, 0.45))]
    points += [(at, t[-1] * (0.5 + 0.2 * at / x[-1])) for at in x[::8]]
    section = np.zeros((traces, samples))
    for at, t0 in points:
        arrival = np.sqrt(t0**2 + 4 * (x - at) ** 2 / VELOCITY**2)
        tau = (t[None, :] - arrival[:, None]) * np.pi * 25.0
        section += (1 - 2 * tau**2) * np.exp(-(tau**2)) * (t0 / arrival)[:, None]
    np.array([traces, samples], dtype="<i4").tofile(path)
    with open(path, "ab") as file:
        section.astype("<f4").tofile(file)


def load(path: str) -> np.ndarray:
    """The section: an array of traces × samples."""
    traces, samples = np.fromfile(path, dtype="<i4", count=2)
    return np.fromfile(path, dtype="<f4", offset=8).reshape(traces, samples)


def migrate(section: np.ndarray, first: int, count: int) -> np.ndarray:
    """``count`` traces of the image from ``first`` on: count × samples."""
    traces, samples = section.shape
    x, t0 = np.arange(traces) * SPACING, np.arange(samples) * STEP
    image = np.zeros((count, samples))
    for row in range(count):
        offset = x - x[first + row]
        for trace in range(traces):
            arrival = np.sqrt(t0**2 + 4 * offset[trace] ** 2 / VELOCITY**2)
            sample = np.rint(arrival / STEP).astype(int)
            inside = sample < samples
            weight = np.divide(t0, arrival, out=np.ones_like(t0), where=arrival > 0)
            image[row, inside] += section[trace, sample[inside]] * weight[inside]
    return image


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Kirchhoff time migration, section by section")
    parser.add_argument("what", choices=("model", "migrate", "serial"))
    parser.add_argument("section")
    parser.add_argument("--traces", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--out", default="image.bin")
    parser.add_argument("--scratch", help="write the image below this directory first, on the node's own disk")
    given = parser.parse_args()
    if given.what == "model":
        model(given.section, given.traces, given.samples)
        return
    section = load(given.section)
    first, count = (given.first, given.count) if given.what == "migrate" else (0, len(section))
    image = migrate(section, first, count).astype("<f4")
    if given.scratch:
        with tempfile.NamedTemporaryFile(dir=given.scratch) as file:
            file.write(image.tobytes())
            file.flush()
            shutil.copyfile(file.name, given.out)
    else:
        image.tofile(given.out)


if __name__ == "__main__":
    main()
