"""`python -m tests.pictures` draws the pictures of the documentation anew, into docs/pictures."""

from tests.pictures.all_pictures import FOLDER, PICTURES


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
