"""Redacts secrets in MCP server settings, and restores them in settings that are sent back. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import McpSettingsInvalid

MASK = "***"

_WORDS = r"(?:api[-_]?key|access[-_]?key|auth|bearer|credential|key|pass(?:wd|word)?|pat|secret|sig|token)"
_OPTION = re.compile(rf"(?i)(--?[\w-]*{_WORDS}[\w-]*=)(.+)", re.DOTALL)
_FLAG = re.compile(rf"(?i)--?[\w-]*{_WORDS}[\w-]*")
_USER = re.compile(r"(?<=://)([^/?#@\s]*)(?=@)")
_QUERY = re.compile(rf"(?i)([?&][\w.-]*{_WORDS}[\w.-]*=)([^&#\s]*)")


def redact_values(values: object) -> dict[str, str]:
    """Return a mapping with all values redacted."""
    return {str(key): MASK for key in values} if isinstance(values, Mapping) else {}


def redact_url(url: str) -> str:
    """Return a URL without user, password and the values of secret parameters.

    >>> redact_url("https://u:p@h/mcp?api_key=1&page=2")
    'https://***@h/mcp?api_key=***&page=2'
    """
    return _QUERY.sub(lambda found: found[1] + MASK, _USER.sub(MASK, url))


def redact_args(args: object) -> list[str]:
    """Return arguments without secrets. `$NAME` is not a secret.

    >>> redact_args(["-y", "--api-key", "1", "--token=2", "--key=$KEY", "postgres://u:p@h/db"])
    ['-y', '--api-key', '***', '--token=***', '--key=$KEY', 'postgres://***@h/db']
    """
    shown: list[str] = []
    is_secret = False
    for arg in [str(arg) for arg in args] if isinstance(args, list | tuple) else []:
        if is_secret and not arg.startswith(("-", "$")):
            shown.append(MASK)
        else:
            option = _OPTION.fullmatch(arg)
            is_hidden = option is not None and not option[2].startswith("$")
            shown.append(option[1] + MASK if option and is_hidden else redact_url(arg))
        is_secret = _FLAG.fullmatch(arg) is not None
    return shown


def restore_values(
    where: str, given: Mapping[str, str], stored: Mapping[str, Any]
) -> dict[str, str]:
    """Return a mapping with stored values in place of masks.

    Raises:
        McpSettingsInvalid: There is no stored value for a mask.
    """
    found: dict[str, str] = {}
    for key, value in given.items():
        if value == MASK and key not in stored:
            raise _unknown(f"{where}.{key}")
        found[key] = stored[key] if value == MASK else value
    return found


def restore_url(where: str, given: str, stored: object) -> str:
    """Return the URL. If its masked form equals the stored URL's, a masked URL becomes the stored one.

    Raises:
        McpSettingsInvalid: There is no stored value for a mask.
    """
    if MASK not in given:
        return given
    if not isinstance(stored, str) or redact_url(stored) != given:
        raise _unknown(where)
    return stored


def restore_args(where: str, given: Sequence[str], stored: object) -> list[str]:
    """Return arguments. A masked argument becomes the stored argument with the same masked form.

    Raises:
        McpSettingsInvalid: There is no stored value for a mask.
    """
    known = [str(arg) for arg in stored] if isinstance(stored, list | tuple) else []
    shown = redact_args(known)
    if list(given) == shown:
        return known
    found: list[str] = []
    for index, arg in enumerate(given):
        alike = [real for real, seen in zip(known, shown, strict=True) if seen == arg]
        # A bare mask is ambiguous unless there is only one.
        if MASK in arg and len(alike) != 1:
            raise _unknown(f"{where}.{index}")
        found.append(alike[0] if MASK in arg else arg)
    return found


def _unknown(where: str) -> McpSettingsInvalid:
    return McpSettingsInvalid(
        f"{where}: {MASK} stands for a stored value, but there is none: send the value itself"
    )
