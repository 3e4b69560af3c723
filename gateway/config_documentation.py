"""The documentation of configuration keys: the tables of docs/reference/configuration.md, which wheels contain."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations
from pathlib import Path

PAGES = (
    Path(__file__).parents[1] / "docs" / "reference" / "configuration.md",
    Path(__file__).parent / "configuration.md",
)
"""The page in a checkout, or inside this package if Parley is installed."""

_ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*) \|$", re.M)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDocumentation:
    """The documentation of one key, as plain text.

    Attributes:
        default: The default, or `unset` or `required`.
    """

    default: str
    description: str


@cache
def _read_pages() -> Mapping[str, KeyDocumentation]:
    """Return the documentation by key, with `[]` for entries of lists and `*` for names."""
    page = next((page for page in PAGES if page.is_file()), None)
    if page is None:
        return {}
    text = page.read_text("utf-8").partition("\n## Top level")[2]
    return {
        key: KeyDocumentation(default=default.strip("`"), description=_plain(description))
        for key, default, description in _ROW.findall(text)
    }


def _plain(markdown: str) -> str:
    r"""Return a table's cell as text.

    >>> _plain(r"see [Limits](../howto/limits.md): `a\|b`")
    'see Limits: a|b'
    """
    return _LINK.sub(r"\1", markdown).replace("`", "").replace("\\|", "|")


def document_key(path: str, *, platform: str = "") -> KeyDocumentation | None:
    """Return the documentation of a key, or of the section around it; None = neither is documented.

    Args:
        path: The key's path, such as `models[0].name`.
        platform: The platform of a channel's key.

    >>> document_key("models[0].name").description
    'name used in sessions; must be unique'
    >>> document_key("channels.support.domain", platform="feishu") == document_key("channels.feishu.domain")
    True
    """
    pattern = re.sub(r"\[\d+\]", "[]", path)
    while pattern:
        if found := _find(pattern.split("."), platform):
            return found
        pattern = pattern.rpartition(".")[0]
    return None


def _find(segments: list[str], platform: str) -> KeyDocumentation | None:
    """Return the documentation of a key: its own, its platform's, or that of a key with `*` in place of names."""
    known = _read_pages()
    names = [segments]
    if platform and segments[0] == "channels":
        names.append(["channels", platform, *segments[2:]])
    inner = range(1, len(segments))
    stars = sorted(chain.from_iterable(combinations(inner, n) for n in (1, 2)), key=len)
    names += [["*" if at in star else name for at, name in enumerate(segments)] for star in stars]
    return next((known[key] for name in names if (key := ".".join(name)) in known), None)
