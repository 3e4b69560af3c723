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
        sys.stderr.write(f"Left out: {', '.join(SCREENSHOTS)} (needs chromium).\n")
        return
    for name, take in SCREENSHOTS.items():
        anyio.run(take, FOLDER / name)


if __name__ == "__main__":
    main()
