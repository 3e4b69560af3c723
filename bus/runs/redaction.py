"""Redacts secrets from tool arguments before they are shown. Pure."""

import re

REDACTED = "•••"

_NAMES = re.compile(
    r"pass(word|wd|phrase)?|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|authorization|cookie|credential",
    re.IGNORECASE,
)
_LITERAL = r"(?:[^\s\"',;&|<>`$]|\$(?![({]))"
"""A character of a secret. Excludes characters that make a shell run or write something, which approvers must see."""

_VALUES = re.compile(
    rf"""
      \b(?:sk|rk|pk)-[A-Za-z0-9_-]{{8,}}              # model providers, Stripe
    | \bxox[a-z]-[A-Za-z0-9-]{{8,}} | \bxapp-[A-Za-z0-9-]{{8,}}   # Slack
    | \bgh[pousr]_[A-Za-z0-9]{{16,}} | \bgithub_pat_\w{{16,}} | \bglpat-[\w-]{{16,}}
    | \bAKIA[0-9A-Z]{{12,}}                           # AWS
    | \bAIza[\w-]{{20,}}                              # Google
    | \b\d{{8,10}}:[A-Za-z0-9_-]{{30,}}                 # Telegram
    | \beyJ[\w-]{{8,1024}}+\.[\w-]{{8,}}\.[\w-]*       # JSON web tokens
    | (?<=bearer\ ){_LITERAL}{{8,}} | (?<=basic\ )[A-Za-z0-9+/=]{{8,}}
    | (?<=://)[^/\s:@\"'`$|<>;&]+:[^/\s@\"'`$|<>;&]+(?=@)   # user and password in an address
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SETTINGS = re.compile(
    r"((?:pass(?:word|wd)?|secret|token|api[-_]?key|access[-_]?key)[A-Za-z_]{0,64}[\"']?\s*[=:]\s*[\"']?)"
    rf"({_LITERAL}+)",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Return whether a value with this name is redacted.

    >>> is_secret_name("API_KEY"), is_secret_name("path")
    (True, False)
    """
    return bool(_NAMES.search(name))


def redact(text: str) -> str:
    """Return a text without anything that looks like a secret.

    >>> redact('curl -H "Authorization: Bearer abcdef123456" https://me:pw@host/?token=xyz')
    'curl -H "Authorization: Bearer •••" https://•••@host/?token=•••'
    """
    return _SETTINGS.sub(rf"\1{REDACTED}", _VALUES.sub(REDACTED, text))
