"""What the monkey's launches run; its argument says how it behaves. No rank lives longer than a minute."""

import os
import signal
import sys
import time

WIDE = "日本語 シミュレーション 🚀 e\u0301te\u0301 👩‍👩‍👧 \u202eabc\u202c ｆｕｌｌ"
ESCAPES = (
    "\x1b[31mred\x1b[0m \x1b[2J\x1b[10;10Hmoved \x1b]0;title\x07 \x1b[7mreverse\x1b[27m \x08\x08 \x1b[?1049l tab\tend\r"
)


def main(manner: str) -> int:
    rank = os.environ.get("YOD_RANK", "0")
    signal.signal(signal.SIGUSR1, lambda *_: print(f"rank {rank} got USR1", flush=True))
    print(f"rank {rank} begins", flush=True)
    if manner in ("wide", "escapes"):
        for number in range(200):
            print(number, WIDE if manner == "wide" else ESCAPES, flush=True)
            time.sleep(0.02)
    elif manner == "flood":
        until = time.monotonic() + 3.0
        number = 0
        while time.monotonic() < until:
            number += 1
            print(f"rank {rank} line {number} " + "x" * (number % 120))
    elif manner == "sleep":
        time.sleep(40.0)
    elif manner == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif manner == "fail":
        sys.stderr.buffer.write(b"it failed: \xff\xfe\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
