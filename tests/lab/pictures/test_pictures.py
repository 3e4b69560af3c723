"""The pictures of the documentation show the current program, and pages contain them."""

import importlib
from operator import attrgetter

import pytest

from tests.lab.pictures.all_pictures import FOLDER, PICTURES, SCREENSHOTS
from tests.lab.pictures.sequence import PARTICIPANTS, STEPS

MAX_BYTES = 1_500_000
"""Maximum total size of the pictures, bytes, because they are in every clone."""


@pytest.mark.parametrize("name", PICTURES)
def test_a_generated_picture_is_current(name: str) -> None:
    """If this fails, run `make pictures`."""
    assert (FOLDER / name).read_text("utf-8") == PICTURES[name]()


def test_every_picture_is_generated_shown_and_small() -> None:
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    screenshots = [name for names in SCREENSHOTS.values() for name in names]
    assert {path.name for path in files} == {*PICTURES, *screenshots}
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    pages = "".join(page.read_text("utf-8") for page in FOLDER.parent.rglob("*.md"))
    assert [path.name for path in files if f"pictures/{path.name})" not in pages] == []


@pytest.mark.parametrize(("source", "target", "code"), [(s, t, c) for s, t, _, c in STEPS])
def test_a_step_of_the_sequence_diagram_exists(source: str, target: str, code: str) -> None:
    assert {source, target} <= {name for name, _ in PARTICIPANTS}
    module, _, name = code.partition(":")
    assert callable(attrgetter(name)(importlib.import_module(module)))
