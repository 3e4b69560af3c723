"""Shows and changes MCP server settings for the API."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import override

from agent.config.mcp import McpConfig
from agent.errors import McpServerNotFound, McpSettingsInvalid
from agent.extensions import SERVERS, ExtensionsDocument, ExtensionsFile, section
from agent.mcp.launch_policy import check_launch
from agent.mcp.redaction import (
    MASK,
    redact_args,
    redact_url,
    redact_values,
    restore_args,
    restore_url,
    restore_values,
)
from agent.mcp.server_config import (
    McpOAuthConfig,
    McpServerConfig,
    describe_validation_error,
    expand_variables,
    is_disabled,
    transport_name,
)

MAX_SERVERS = 100
SECRETS = ("client_secret", "refresh_token")
"""Fields of `oauth` that are never shown; null keeps the stored value, "" clears it."""

FIELDS = (
    "enabled", "type", "command", "args", "env", "url", "headers", "oauth", "description",
)  # fmt: skip
_KNOWN = frozenset({*FIELDS, "transport"})
_LAUNCH = ("type", "command", "args", "env")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")

ServerView = dict[str, Any]
"""A server as the API shows it: all `FIELDS`, secrets redacted."""


class McpOAuthUpdate(BaseModel):
    """OAuth settings of a server; null keeps a stored secret, an empty string clears it."""

    model_config = ConfigDict(extra="allow")

    client_secret: str | None = None
    refresh_token: str | None = None
    extra_token_params: dict[str, str] = Field(default_factory=dict)


class McpServerUpdate(BaseModel):
    """Settings of an MCP server; `***` keeps the stored value."""

    enabled: bool = True
    type: str | None = None
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    oauth: McpOAuthUpdate | None = None
    description: str = ""


class _FilledEnvironment(dict[str, str]):
    """An environment in which every variable has a value, to validate entries before their variables are set."""

    @override
    def get(self, key: str, default: Any = None, /) -> Any:
        return super().get(key) or "https://unset.invalid"


class McpSettings:
    """Shows and changes the servers of the extensions file.

    Args:
        extensions: The extensions file.
        environment: Resolves `$NAME` in the file.
        limits: Returns the current `mcp` section.
    """

    def __init__(
        self,
        extensions: ExtensionsFile,
        environment: Mapping[str, str],
        limits: Callable[[], McpConfig],
    ) -> None:
        self._extensions = extensions
        self._environment = _FilledEnvironment(environment)
        self._limits = limits

    async def list_servers(self) -> dict[str, ServerView]:
        """Return all servers, secrets redacted."""
        found = await self._extensions.load()
        return {name: server_view(entry) for name, entry in found.mcp_servers.items()}

    async def replace(self, servers: Mapping[str, Mapping[str, Any]]) -> dict[str, ServerView]:
        """Replace all servers. Masks keep the stored values.

        Args:
            servers: By name, in the form that `list_servers` returns. Missing keys have their defaults.

        Raises:
            McpSettingsInvalid: One of them is not allowed; nothing is changed.
            ExtensionsInvalid, ExtensionsWriteFailed: As `ExtensionsFile.update`.
        """
        if len(servers) > MAX_SERVERS:
            raise McpSettingsInvalid(f"at most {MAX_SERVERS} MCP servers are allowed")

        def change(document: ExtensionsDocument) -> None:
            stored = section(document, SERVERS)
            merged = {name: self._merged(name, new, stored) for name, new in servers.items()}
            stored.clear()
            stored.update(merged)

        await self._extensions.update(change)
        return await self.list_servers()

    async def put(self, name: str, server: Mapping[str, Any]) -> ServerView:
        """Add or replace one server, like `replace`.

        Raises:
            McpSettingsInvalid: It is not allowed; nothing is changed.
            ExtensionsInvalid, ExtensionsWriteFailed: As `ExtensionsFile.update`.
        """

        def change(document: ExtensionsDocument) -> None:
            stored = section(document, SERVERS)
            merged = self._merged(name, server, stored)
            if name not in stored and len(stored) >= MAX_SERVERS:
                raise McpSettingsInvalid(f"at most {MAX_SERVERS} MCP servers are allowed")
            stored[name] = merged

        found = await self._extensions.update(change)
        return server_view(found.mcp_servers[name])

    async def remove(self, name: str) -> None:
        """Remove one server, even if others are invalid.

        Raises:
            McpServerNotFound: There is no server with this name.
            ExtensionsInvalid, ExtensionsWriteFailed: As `ExtensionsFile.update`.
        """

        def change(document: ExtensionsDocument) -> None:
            stored = section(document, SERVERS)
            if name not in stored:
                raise McpServerNotFound
            del stored[name]

        await self._extensions.update(change)

    async def set_enabled(self, name: str, *, enabled: bool) -> ServerView:
        """Enable or disable one server, even if others are invalid.

        Raises:
            McpServerNotFound: There is no server with this name.
            ExtensionsInvalid, ExtensionsWriteFailed: As `ExtensionsFile.update`.
        """

        def change(document: ExtensionsDocument) -> None:
            stored = section(document, SERVERS)
            if not isinstance(stored.get(name), dict):
                raise McpServerNotFound
            stored[name]["enabled"] = enabled

        found = await self._extensions.update(change)
        return server_view(found.mcp_servers[name])

    def _merged(
        self, name: str, given: Mapping[str, Any], stored: ExtensionsDocument
    ) -> ExtensionsDocument:
        """Return the entry to store.

        Raises:
            McpSettingsInvalid: It is not allowed.
        """
        if _NAME.fullmatch(name) is None:
            raise McpSettingsInvalid("a server name must have 1 to 64 characters")
        old = stored.get(name) if isinstance(stored.get(name), dict) else {}
        new = _restored(name, given, old or {})
        # Unchanged entries are not checked, because an invalid one must not block changes to others.
        if new != _canonical(old or {}):
            self._check(name, new, _canonical(old or {}))
        return {**{key: value for key, value in (old or {}).items() if key not in _KNOWN}, **new}

    def _check(self, name: str, new: ExtensionsDocument, old: ExtensionsDocument) -> None:
        try:
            server = McpServerConfig.model_validate(expand_variables(new, self._environment))
        except ValidationError as error:
            raise McpSettingsInvalid(f"{name}: {describe_validation_error(error)}") from None
        if server.type == "stdio" and any(new.get(key) != old.get(key) for key in _LAUNCH):
            check_launch(
                name,
                str(new.get("command", "")),
                new.get("args", []),
                new.get("env", {}),
                self._limits().allowed_commands,
            )
        for header, value in server.headers.items():
            if not (_HEADER_NAME.fullmatch(header) and _HEADER_VALUE.fullmatch(value)):
                raise McpSettingsInvalid(f"{name}.headers: {header[:40]!r} is not a header")


def server_view(entry: Mapping[str, Any]) -> ServerView:
    """Return an entry as the API shows it, even an invalid one.

    >>> server_view({"command": "npx", "env": {"TOKEN": "t"}})["env"]
    {'TOKEN': '***'}
    """
    oauth = entry.get("oauth")
    return {
        "enabled": not is_disabled(entry),
        "type": transport_name(entry),
        "command": _text(entry.get("command")),
        "args": redact_args(entry.get("args")),
        "env": redact_values(entry.get("env")),
        "url": redact_url(_text(entry.get("url")) or "") or None,
        "headers": redact_values(entry.get("headers")),
        "oauth": _oauth_view(oauth) if isinstance(oauth, Mapping) else None,
        "description": _text(entry.get("description")) or "",
    }


def _oauth_view(oauth: Mapping[str, Any]) -> ServerView:
    shown = {
        name: oauth.get(name, field.get_default(call_default_factory=True))
        for name, field in McpOAuthConfig.model_fields.items()
        if not field.is_required() or name in oauth
    }
    shown["extra_token_params"] = redact_values(oauth.get("extra_token_params"))
    return {**shown, **dict.fromkeys(SECRETS)}


def _restored(name: str, given: Mapping[str, Any], old: Mapping[str, Any]) -> ExtensionsDocument:
    """Return the new entry with stored secrets in place of masks; empty keys are omitted."""
    new: ExtensionsDocument = {key: given[key] for key in FIELDS if given.get(key) is not None}
    new["enabled"] = bool(given.get("enabled", True))
    new["type"] = transport_name(given)
    for key in ("env", "headers"):
        new[key] = restore_values(f"{name}.{key}", given.get(key) or {}, _mapping(old.get(key)))
    new["args"] = restore_args(f"{name}.args", given.get("args") or [], old.get("args"))
    if given.get("url"):
        new["url"] = restore_url(f"{name}.url", given["url"], old.get("url"))
    if given.get("oauth") is not None:
        new["oauth"] = _restored_oauth(f"{name}.oauth", given["oauth"], _mapping(old.get("oauth")))
    return _canonical(new)


def _restored_oauth(
    where: str, given: Mapping[str, Any], old: Mapping[str, Any]
) -> ExtensionsDocument:
    new = {key: value for key, value in given.items() if value is not None}
    for secret in SECRETS:
        value = given.get(secret)
        if value == MASK and not old.get(secret):
            raise McpSettingsInvalid(
                f"{where}.{secret}: {MASK} stands for a stored value, but there is none"
            )
        if value is None or value == MASK:
            new.pop(secret, None)
            new.update({secret: old[secret]} if old.get(secret) else {})
        elif not value:
            del new[secret]
    extra = restore_values(
        f"{where}.extra_token_params",
        given.get("extra_token_params") or {},
        _mapping(old.get("extra_token_params")),
    )
    new.pop("extra_token_params", None)
    return {**new, "extra_token_params": extra} if extra else new


def _canonical(entry: Mapping[str, Any]) -> ExtensionsDocument:
    """Return the non-empty keys of an entry, under their canonical names."""
    known = {key: entry[key] for key in FIELDS if entry.get(key) not in (None, "", [], {})}
    return (
        {**known, "enabled": not is_disabled(entry), "type": transport_name(entry)} if entry else {}
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
