"""What the monkey's launches run; its argument says how it behaves. No rank lives longer than a minute."""

import os
import signal
import sys
import time

#: The manners that launches are started with, and how often.
MANNERS = ("end", "end", "fail", "flood", "flood", "wide", "unicode", "escapes", "sleep", "sleep", "sleep", "signal")
WIDE = "日本語 シミュレーション 🚀 e\u0301te\u0301 👩‍👩‍👧 \u202eabc\u202c ｆｕｌｌ"
#: Characters of which terminals and tables disagree how wide they are, and such as change the order of others.
UNICODE = (
    "🇩🇪🇫🇷 flags", "1\ufe0f\u20e3 keycap", "❤\ufe0f ☎\ufe0e variation", "👍🏽 tone", "ก็ ญี่ปุ่น ไทย", "हिन्दी क्षि",
    "각 한 ㅎㅏㄴ",
    "\u05e9\u05dc\u05d5\u05dd עברית", "العربية ـــ لا", "\u2066isolate\u2069 \u200e\u200f\u061c marks",
    "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308 pile",
    "\u0301 alone", "zero\u200bwidth\u200d\ufeff", "soft\u00adhyphen",
    "\u3000ideographic\u2003em", "\ue000\U000f0000 private", "\ufffe\uffff none", "\U0001fae8\U0001fabf new",
    "ﷺ ꧅ 𒐫 ⸻ wide",
    "½ ± × § ¡ ambiguous", "\u2028line\u2029paragraph", "\x85next\x1cfile\x0bvt\x0cff", "\ud7b0\ud7cb jamo",
)  # fmt: skip
ESCAPES = (
    "\x1b[31mred\x1b[0m \x1b[2J\x1b[10;10Hmoved \x1b]0;title\x07 \x1b[7mreverse\x1b[27m \x08\x08 \x1b[?1049l tab\tend\r"
)


def main(manner: str) -> int:
    """Behave as the argument says."""
    rank = os.environ.get("YOD_RANK", "0")
    signal.signal(signal.SIGUSR1, lambda *_: print(f"rank {rank} got USR1", flush=True))
    print(f"rank {rank} begins", flush=True)
    if manner in ("wide", "escapes", "unicode"):
        for number in range(200):
            line = {"wide": WIDE, "escapes": ESCAPES}.get(manner) or UNICODE[number % len(UNICODE)]
            print(number, line, flush=True)
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
