"""Offers to install document conversion during setup: a set of packages that the core installation leaves out."""

import subprocess
from pathlib import Path

from gateway.setup.prompts import SetupPrompter
from gateway.setup.system_checks import is_checkout, is_document_conversion_installed

QUESTION = "\nConvert PDF and Office documents to text for the agent? It takes 240 MB on disk"
FAILED = "Document conversion was not installed. Run `make documents` to try again."
_ROOT = Path(__file__).parents[2]


def offer_document_conversion(person: SetupPrompter) -> None:
    """Ask whether to install document conversion, and install it. Does nothing if it is installed."""
    if is_document_conversion_installed():
        return
    if not is_checkout():
        person.show("\nTo convert PDF and Office documents to text, install parley[documents].")
    elif person.confirm(QUESTION):
        install_document_conversion(person, _ROOT)


def install_document_conversion(person: SetupPrompter, checkout: Path) -> None:
    """Run `make documents` in a checkout."""
    done = subprocess.run(["make", "-C", str(checkout), "-s", "documents"], check=False)  # noqa: S603, S607
    if done.returncode:
        person.show(FAILED)
