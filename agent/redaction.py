"""Removes secrets and host paths from the text of third-party errors. Pure."""

import re

MASK = "***"

_USER = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_QUERY = re.compile(r"([?&][\w.\[\]-]+=)[^&\s\"'#]+")
_SETTING = re.compile(
    r"((?:pass(?:word|wd)?|secret|token|api[-_ ]?key|access[-_ ]?key|authorization)"
    r"[\w-]{0,64}[\"']?\s*(?:[=:]|provided:)\s*"
    r"[\"']?(?:bearer |basic )?)[^\s\"',;&]+",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"\b(?:(?:sk|rk|pk|tvly|fc|jina|xox[a-z]|xapp|gh[pousr]|github_pat|glpat)[-_][\w-]{8,}"
    r"|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,1024}+\.[\w-]{8,}\.[\w-]*)"
)
_HOST_PATH = re.compile(r"(?<![\w.:/~-])/(?!mnt/)(?:[\w.@+~-]+/)+[\w.@+~-]*")


def redact_error(text: str) -> str:
    """Return the text of an error without keys, credentials and query values of URLs, and paths outside /mnt.

    >>> redact_error("GET https://u:p@h.example/a/b?key=123&q=x failed: api_key='abc'")
    "GET https://***@h.example/a/b?key=***&q=*** failed: api_key='***'"
    >>> redact_error("No such file: '/home/bot/.parley/x.txt'; see /mnt/user-data/a.txt")
    "No such file: '[host path]'; see /mnt/user-data/a.txt"
    """
    text = _QUERY.sub(rf"\1{MASK}", _USER.sub(MASK, text))
    text = _TOKEN.sub(MASK, _SETTING.sub(rf"\1{MASK}", text))
    return _HOST_PATH.sub("[host path]", text)
