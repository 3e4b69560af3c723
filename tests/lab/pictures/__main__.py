"""`python -m tests.lab.pictures` redraws the pictures of the documentation in docs/pictures."""

import sys

import anyio

from tests.browser import CHROMIUM
from tests.lab.pictures.all_pictures import FOLDER, PICTURES, SCREENSHOTS


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), "utf-8")
    if CHROMIUM is None:
        left_out = ", ".join(name for names in SCREENSHOTS.values() for name in names)
        sys.stderr.write(f"Left out: {left_out} (needs chromium).\n")
        return
    for take in SCREENSHOTS:
        anyio.run(take, FOLDER)


if __name__ == "__main__":
    main()
