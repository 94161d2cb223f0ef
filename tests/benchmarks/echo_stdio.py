"""The smallest stdio server: one read and one write per batch of lines.

python echo_stdio.py legacy|modern
"""

import os
import sys

from echo import answer


def main(era: str) -> None:
    rest = b""
    while chunk := os.read(0, 1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        answers = [reply for line in lines if line and (reply := answer(line, era))]
        left = memoryview(b"\n".join([*answers, b""]))
        while left:
            left = left[os.write(1, left) :]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "legacy")
