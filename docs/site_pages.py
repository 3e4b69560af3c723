"""MkDocs hooks: add the pages at the repository's root to the site, and adjust links to them and to pictures."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROOT_PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "LICENSE")
_TO_ROOT = re.compile(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, ROOT_PAGES))})")

_PICTURE = re.compile(r"^(!\[[^\]]*\]\(([^)]+\.svg)\))$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root."""
    for name in ROOT_PAGES:
        text = (ROOT / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:  # noqa: ANN401 - MkDocs' interface
    """Point links to the root's pages at the site's pages, and make each picture a link to itself."""
    above = "../" * page.file.src_uri.count("/")
    markdown = _PICTURE.sub(r"[\1](\2)", markdown)
    return _TO_ROOT.sub(lambda link: f"]({above}{link[1]}", markdown)
