"""Decides which links may be clickable in a message, and which labels are deceptive. Pure."""

import re
import unicodedata
from urllib.parse import urlsplit

_WEB = ("http://", "https://")

_QUOTES = {ord(char): f"%{ord(char):02X}" for char in "()<>[]|\\\"' \n\t`*"}


def is_clickable_url(url: str, *, also: tuple[str, ...] = ("mailto:",)) -> bool:
    """Return whether a link may be clickable: web URLs, and the schemes in `also`.

    >>> [is_clickable_url(url) for url in ("https://a.b", "mailto:a@b", "javascript:x", "/mnt/x")]
    [True, True, False, False]
    >>> is_clickable_url("mailto:a@b", also=())
    False
    """
    return url.lower().startswith((*_WEB, *also))


def escape_url(url: str) -> str:
    """Percent-encode characters that could end a link early: brackets, quotes, bars, spaces.

    >>> escape_url("http://a/b_(c)|<d>")
    'http://a/b_%28c%29%7C%3Cd%3E'
    """
    return url.translate(_QUOTES)


_TOP_LEVEL = (
    "ae ai app ar asia at au bank be bg biz br by ca cash cc ch cl cloud club cn co com cz de dev dk edu ee es"
    " eu fi finance fr gg gov gr hk hr hu ie il in info int io it jp kr link live lt lu lv ly me mil mobi mx"
    " my net news ng nl no nz online org page ph pk pl pro pt ro ru sa se sg shop site sk store su tech th top"
    " tr tv tw ua uk us vip vn website win world xyz za"
).replace(" ", "|")
"""Top-level domains that make a name look like a web address, except those that are file extensions (py, md, sh).

If a slash follows, any name that ends in a dot and letters looks like an address.
"""

_ADDRESS = re.compile(
    rf"(?:https?:/*|www\.)(?:[^\s/?#@]*@)?(?P<host>[^\s/?#:@]+)"
    rf"|(?:^|\s)(?P<name>(?:[\w-]+\.)+(?:(?:{_TOP_LEVEL})(?=[/:?#]|\s|$)|[^\W\d_]{{2,}}(?=/)))"
    r"|(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)",
)
MAX_LABEL_CHARS = 1000
"""Maximum length of a label to check. Checking takes time, because each character may begin an address."""

_DOTS = str.maketrans(dict.fromkeys("。．｡․", "."))
_SLASHES = str.maketrans(dict.fromkeys("⁄∕⧸", "/"))


def is_deceptive(label: str, url: str) -> bool:
    """Return whether a link's label looks like an address other than its target, or is too long to check.

    >>> is_deceptive("https://bank.com", "https://evil.com"), is_deceptive("bank.com/login", "https://evil.com")
    (True, True)
    >>> is_deceptive("bank.com", "https://www.bank.com/login"), is_deceptive("setup.py", "https://evil.com")
    (False, False)
    """
    if len(label) > MAX_LABEL_CHARS:
        return True
    shown = "".join(char for char in label if unicodedata.category(char) != "Cf")
    shown = unicodedata.normalize("NFKC", shown.translate(_DOTS).translate(_SLASHES)).casefold()
    target = _host(url)
    for match in _ADDRESS.finditer(shown):
        if mail := match["mail"]:
            if url.casefold().startswith("mailto:") and mail not in url.casefold():
                return True
            continue
        host = (match["host"] or match["name"] or "").removeprefix("www.").strip(".")
        if host and not (_is_within(target, host) or _is_within(host, target)):
            return True
    return False


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return ""


def _is_within(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")
