"""A rank that writes down each signal that it gets: ``rank.py DIRECTORY``.

Once DIRECTORY/ending exists, SIGTERM means the end: it takes 2 s to write a checkpoint, in which it goes on to write
down signals, and exits.
"""

import json
import os
import select
import signal
import sys
import time

CHECKPOINT_S, BEAT_S = 2.0, 0.2
CAUGHT = ("USR1", "USR2", "TERM", "INT", "HUP", "CONT", "XCPU")


def main() -> None:
    directory, rank = sys.argv[1], os.environ["YOD_RANK"]
    # The wake-up descriptor gets a byte for each delivery; two quick signals are one call of a handler in Python.
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for name in CAUGHT:
        signal.signal(signal.Signals[f"SIG{name}"], lambda *_: None)
    with open(f"{directory}/variables.{rank}", "w", encoding="utf-8") as file:
        json.dump(dict(os.environ), file)
    log = os.open(f"{directory}/rank.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(log, b"ready %d\n" % os.getpid())
    beats = os.open(f"{directory}/beats.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    saved_at = float("inf")
    while time.monotonic() < saved_at:
        if not select.select([reader], [], [], BEAT_S)[0]:
            os.write(beats, b".")
            continue
        for number in os.read(reader, 64):
            os.write(log, f"{signal.Signals(number).name[3:]} {time.time():.3f}\n".encode())
            if number == signal.SIGTERM and os.path.exists(f"{directory}/ending"):
                saved_at = min(saved_at, time.monotonic() + CHECKPOINT_S)
    os.write(log, f"saved {time.time():.3f}\n".encode())


if __name__ == "__main__":
    main()
