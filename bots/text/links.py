"""Which links may be clickable in a message. Pure."""

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
