"""All pictures by file name, and their folder."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tests.lab.pictures.architecture import architecture_diagram
from tests.lab.pictures.chats import CHAT_PICTURES
from tests.lab.pictures.console import VIEWS, take_console_screenshots
from tests.lab.pictures.playground import take_playground_screenshot
from tests.lab.pictures.sequence import sequence_diagram
from tests.lab.pictures.terminal import terminal_recording

FOLDER = Path(__file__).parents[3] / "docs" / "pictures"

PICTURES: Mapping[str, Callable[[], str]] = {
    "architecture.svg": architecture_diagram,
    "message-path.svg": sequence_diagram,
    "terminal.svg": terminal_recording,
    **CHAT_PICTURES,
}

SCREENSHOTS: Mapping[Callable[[Path], Awaitable[None]], Sequence[str]] = {
    take_console_screenshots: tuple(VIEWS),
    take_playground_screenshot: ("playground.png",),
}
"""Screenshots from a real browser: the function that writes them into a folder, and the file names. Their bytes differ
each time, so tests do not compare them.
"""
