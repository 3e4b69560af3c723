"""The recording of `parley chat`: what a person types at a real terminal, and what they see, as an animated SVG."""

import fcntl
import os
import struct
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

import anyio
import pyte

from tests.journeys.test_terminal import CTRL_D, PROMPT, Terminal, at_a_terminal, write_config
from tests.lab.pictures.svg import MONO

COLUMNS, ROWS = 80, 24
SCRIPT = (
    ("write a file notes.txt saying buy milk", "[file]"),
    ("ask me something", "3. Blue"),
    ("2", "You said: 2"),
)
"""The typed lines, each with a text that its answer contains."""

WORKING = "Ctrl-C stops"
"""The indicator, which is shown with the seconds while the agent works."""

SHOWN_HOME = "/home/ada/parley/.parley"
"""The data folder in the picture. The real one has a different name each time."""

TYPED_AT_ONCE = 2
KEY_S, BEFORE_ENTER_S, READING_S, END_S = 0.09, 0.5, 2.2, 4.0
"""How long to show a keystroke, a line before Enter, an answer, and the last answer, seconds."""

CELL = (8.4, 19.0)
"""Width and height of a character, pixels."""

MARGIN, BAR = 16, 34
INK, PAPER, DIM = "#d8dee9", "#1e2430", "#8892a6"
COLORS = {
    "default": INK, "black": DIM, "brightblack": DIM, "red": "#ff7b86", "green": "#8fd694", "brown": "#f0c674",
    "blue": "#82aaff", "magenta": "#d3a4ff", "cyan": "#7fd8e6", "white": "#ffffff",
}  # fmt: skip


@dataclass(frozen=True)
class TextRun:
    """Characters with the same style, next to each other in a row."""

    column: int
    text: str
    color: str
    is_bold: bool


Row = tuple[TextRun, ...]


@dataclass(frozen=True)
class Frame:
    """A screen and how long to show it, seconds."""

    rows: tuple[Row, ...]
    shown_s: float


class _Recorder:
    """A terminal's screen and its recorded frames."""

    def __init__(self, terminal: Terminal, home: Path) -> None:
        self.frames: list[Frame] = []
        self._terminal = terminal
        self._home = str(home)
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)

    def text(self) -> str:
        """Return the screen's content."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    async def until(self, condition: Callable[[str], bool]) -> None:
        """Read output until the screen's text is the expected one. Raises TimeoutError."""
        with anyio.fail_after(60):
            while not condition(self.text()):
                await anyio.wait_readable(self._terminal._descriptor)
                self._stream.feed(os.read(self._terminal._descriptor, 65536))

    def take(self, shown_s: float) -> None:
        """Record a frame of the screen."""
        rows = tuple(tuple(self._runs(number)) for number in range(ROWS))
        self.frames.append(Frame(rows, shown_s))

    async def type(self, text: str) -> None:
        """Type a line, with a frame for every few keystrokes, and press Enter."""
        for end in range(TYPED_AT_ONCE, len(text) + TYPED_AT_ONCE, TYPED_AT_ONCE):
            self._terminal.type(text[end - TYPED_AT_ONCE : end])
            typed = f"{PROMPT} {text[:end]}".rstrip()
            await self.until(lambda shown, typed=typed: shown.endswith(typed))  # type: ignore[misc]
            self.take(KEY_S)
        self.take(BEFORE_ENTER_S)
        self._terminal.type("\r")

    def _runs(self, number: int) -> Iterator[TextRun]:
        row = self._screen.buffer[number]
        looks = [(row[column], column) for column in range(COLUMNS)]
        for (color, is_bold), group in groupby(looks, lambda cell: (cell[0].fg, cell[0].bold)):
            cells = list(group)
            text = "".join(cell.data for cell, _ in cells).rstrip()
            if text:
                shown = text.replace(self._home, SHOWN_HOME)
                yield TextRun(cells[0][1], shown, color, is_bold)


async def record() -> list[Frame]:
    """Type the script at a terminal. Return the frames."""
    with tempfile.TemporaryDirectory(prefix="") as folder:
        home = Path(folder) / "home"
        config = write_config(Path(folder), {})
        async with at_a_terminal(config, home, "chat") as terminal:
            size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
            fcntl.ioctl(terminal._descriptor, termios.TIOCSWINSZ, size)
            recorder = _Recorder(terminal, home)
            await recorder.until(is_waiting)
            recorder.take(1.0)
            for line, answer in SCRIPT:
                await recorder.type(line)
                await recorder.until(
                    lambda shown, answer=answer: answer in shown and is_waiting(shown)  # type: ignore[misc]
                )
                recorder.take(READING_S)
            recorder.take(END_S)
            terminal.type(CTRL_D)
            assert await terminal.leaves() == 0
    return recorder.frames


def is_waiting(shown: str) -> bool:
    """Return whether the terminal waits for input because the agent is idle."""
    return shown.endswith(PROMPT) and WORKING not in shown


def terminal_recording() -> str:
    """Draw the recording."""
    return draw(anyio.run(record))


def draw(frames: Sequence[Frame]) -> str:
    """Return an animated picture that repeats. Viewers without animation show its last frame."""
    width, height = COLUMNS * CELL[0] + 2 * MARGIN, ROWS * CELL[1] + BAR + MARGIN
    total_s = sum(frame.shown_s for frame in frames)
    rows = [
        _row_texts(number, [(frame.rows[number], frame.shown_s) for frame in frames], total_s)
        for number in range(ROWS)
    ]
    buttons = "".join(
        f'<circle cx="{20 + 20 * number}" cy="17" r="6" fill="{color}"/>'
        for number, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" font-family="{MONO}" font-size="14" fill="{INK}" xml:space="preserve" role="img">',
            "<title>parley chat: a person asks for a file, and answers a question</title>",
            f'<rect width="{width:g}" height="{height:g}" rx="10" fill="{PAPER}"/>',
            buttons,
            *(text for texts in rows for text in texts),
            "</svg>",
            "",
        ]
    )


def _row_texts(number: int, shown: Sequence[tuple[Row, float]], total_s: float) -> Iterator[str]:
    """Yield the texts of a row, each with the times at which it is shown."""
    at_s = 0.0
    for row, group in groupby(shown, lambda one: one[0]):
        start_s, at_s = at_s, at_s + sum(seconds for _, seconds in group)
        if not row:
            continue
        is_last = at_s >= total_s - 0.001
        spans = "".join(map(_span, row))
        y = BAR + (number + 0.75) * CELL[1]
        visibility = "visible" if is_last else "hidden"
        times = _animation(start_s / total_s, 1.0 if is_last else at_s / total_s, total_s)
        yield f'<text y="{y:g}" visibility="{visibility}">{spans}{times}</text>'


def _span(run: TextRun) -> str:
    x = MARGIN + run.column * CELL[0]
    color = COLORS.get(run.color, f"#{run.color}")
    look = ("" if color == INK else f' fill="{color}"') + (
        ' font-weight="700"' if run.is_bold else ""
    )
    width = f' textLength="{len(run.text) * CELL[0]:g}"' if run.text.isascii() else ""
    return f'<tspan x="{x:g}"{width}{look}>{escape(run.text, quote=False)}</tspan>'


def _animation(start: float, end: float, total_s: float) -> str:
    """Return the animation that shows a text during a part of the time."""
    if start == 0 and end == 1:
        return ""
    steps = [(0.0, "hidden"), (start, "visible"), (end, "hidden")]
    steps = steps[start == 0 : 3 - (end == 1)]
    values = ";".join(value for _, value in steps)
    times = ";".join(f"{time:.4f}".rstrip("0").rstrip(".") for time, _ in steps)
    return (
        f'<animate attributeName="visibility" values="{values}" keyTimes="{times}" calcMode="discrete" '
        f'dur="{total_s:g}s" repeatCount="indefinite"/>'
    )
