"""Which links may be live in a message. Pure."""

_WEB = ("http://", "https://")

_QUOTES = {ord(char): f"%{ord(char):02X}" for char in "()<>[]|\\\"' \n\t`*"}


def is_live(url: str, *, also: tuple[str, ...] = ("mailto:",)) -> bool:
    """Tell whether a link may be clickable: web addresses, and the named further schemes.

    >>> is_live("https://a.b"), is_live("javascript:x"), is_live("/mnt/x"), is_live("mailto:a@b", also=())
    (True, False, False, False)
    """
    return url.lower().startswith((*_WEB, *also))


def quoted(url: str) -> str:
    """Percent-encode what could end a link early: brackets, quotes, bars, spaces.

    >>> quoted("http://a/b_(c)|<d>")
    'http://a/b_%28c%29%7C%3Cd%3E'
    """
    return url.translate(_QUOTES)
