"""Asks the terminal whether its background is light, so that colored code stays readable."""

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Mapping

from gateway.terminal.markdown import Background

QUERY = b"\x1b]11;?\x1b\\\x1b[c"
"""Asks for the background color, and then for the terminal's attributes, which every terminal answers."""

DEADLINE_S = 0.5
"""How long to wait for the answer, seconds. A remote terminal answers after one round trip."""

_COLOR = re.compile(rb"\x1b\]11;rgb:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)(?:\x1b\\|\x07)")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[0-9;]*c")
_WEIGHTS = (0.299, 0.587, 0.114)
_LIGHT = 0.5


def find_background(environ: Mapping[str, str]) -> tuple[Background, str]:
    """Return the background of this process's terminal, and the text that the person typed meanwhile. Blocking.

    Does not ask if the terminal sets the variable COLORFGBG. A terminal that does not answer counts as dark.
    """
    if given := environ.get("COLORFGBG"):
        return "light" if given.rpartition(";")[2] in ("7", "15") else "dark", ""
    if environ.get("TERM", "dumb") in ("dumb", "linux"):
        return "dark", ""
    answer = _ask(sys.stdin.fileno(), sys.stdout.fileno())
    return background_in(answer), _ATTRIBUTES.sub(b"", _COLOR.sub(b"", answer)).decode(
        "utf-8", "ignore"
    )


def background_in(answer: bytes) -> Background:
    r"""Return the background that a terminal's answer names; "dark" if it names none.

    >>> background_in(b"\x1b]11;rgb:ffff/ffff/dddd\x1b\\"), background_in(b"\x1b]11;rgb:1e/1e/1e\x07")
    ('light', 'dark')
    """
    found = _COLOR.search(answer)
    if found is None:
        return "dark"
    parts = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    brightness = sum(weight * part for weight, part in zip(_WEIGHTS, parts, strict=True))
    return "light" if brightness > _LIGHT else "dark"


def _ask(source: int, target: int) -> bytes:
    """Return the input up to the terminal's answer. Restores the terminal's settings."""
    answer, until = b"", time.monotonic() + DEADLINE_S
    settings = termios.tcgetattr(source)
    try:
        tty.setcbreak(source, termios.TCSANOW)
        os.write(target, QUERY)
        while not _ATTRIBUTES.search(answer):
            left_s = until - time.monotonic()
            if left_s <= 0 or not select.select([source], [], [], left_s)[0]:
                break
            answer += os.read(source, 1024)
    finally:
        termios.tcsetattr(source, termios.TCSANOW, settings)
    return answer
