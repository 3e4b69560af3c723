"""Configuration of one MCP server in the extensions file, with variables expanded. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agent.errors import McpServerUnusable

Transport = Literal["stdio", "sse", "http"]

_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "sse": "sse",
    "http": "http",
    "streamable_http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
}
_WHOLE = re.compile(r"\$([A-Za-z_]\w*)")
_INSIDE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}|\$([A-Z_][A-Z0-9_]*)(?![A-Za-z0-9_])")


class McpOAuthConfig(BaseModel):
    """OAuth settings of a server."""

    model_config = ConfigDict(frozen=True)

    enabled: bool = True
    token_url: str = Field(min_length=1, pattern=r"^https?://")
    grant_type: Literal["client_credentials", "refresh_token"] = "client_credentials"
    client_id: str | None = None
    client_secret: str | None = Field(default=None, repr=False)
    refresh_token: str | None = Field(default=None, repr=False)
    scope: str | None = None
    audience: str | None = None
    token_field: str = "access_token"  # noqa: S105 - the name of a field
    token_type_field: str = "token_type"  # noqa: S105 - the name of a field
    expires_in_field: str = "expires_in"
    default_token_type: str = "Bearer"  # noqa: S105 - a kind of token
    refresh_skew_seconds: float = Field(default=60.0, ge=0, allow_inf_nan=False)
    extra_token_params: dict[str, str] = Field(default_factory=dict, repr=False)


class McpServerConfig(BaseModel):
    """A valid server configuration.

    Attributes:
        type: The transport. The key may also be `transport`, and `http` may be `streamable_http`.
        env: Variables of its process, besides PATH, HOME and similar ones.
        preset: A server that needs no further keys: `playwright` is a browser.
        allow_private_hosts: Hosts that the preset's browser may use even if they are not public; see `UrlGuard`.
    """

    model_config = ConfigDict(frozen=True)

    enabled: bool = True
    type: Transport = "stdio"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    url: str | None = Field(default=None, repr=False)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    oauth: McpOAuthConfig | None = None
    description: str = ""
    preset: Literal["playwright"] | None = None
    allow_private_hosts: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _canonical_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        found = {key: value for key, value in data.items() if value is not None}
        found["type"] = transport_name(found)
        found.pop("transport", None)
        return found

    @field_validator("args", mode="before")
    @classmethod
    def _args_are_texts(cls, value: object) -> object:
        return [str(part) for part in value] if isinstance(value, list | tuple) else value

    @field_validator("env", "headers", mode="before")
    @classmethod
    def _values_are_texts(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {str(key): _plain(inner) for key, inner in value.items() if inner is not None}

    @model_validator(mode="after")
    def _can_be_reached(self) -> "McpServerConfig":
        if self.preset and self.type != "stdio":
            raise ValueError("a preset has no `url`")
        if self.type == "stdio" and not self.command and not self.preset:
            raise ValueError("a stdio server needs `command`")
        if self.type != "stdio" and not self.url:
            raise ValueError(f"a server of type {self.type} needs `url`")
        if self.type != "stdio" and not str(self.url).startswith(("http://", "https://")):
            raise ValueError("`url` must start with http:// or https://")
        return self


def transport_name(entry: Mapping[str, Any]) -> str:
    """Return the canonical transport name of an entry. Unknown names stay unchanged.

    >>> transport_name({"transport": "streamable_http"}), transport_name({"url": "http://h"}), transport_name({})
    ('http', 'http', 'stdio')
    """
    kind = entry.get("type") or entry.get("transport")
    if kind is None:
        kind = "http" if entry.get("url") and not entry.get("command") else "stdio"
    return _TRANSPORTS.get(str(kind).lower(), str(kind))


def is_disabled(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is disabled.

    >>> is_disabled({"enabled": False}), is_disabled({})
    (True, False)
    """
    return str(entry.get("enabled", True)).strip().lower() in ("false", "no", "off", "0")


def parse_server(entry: Mapping[str, Any], environment: Mapping[str, str]) -> McpServerConfig:
    """Parse a server of the extensions file and expand its variables.

    Raises:
        McpServerUnusable: The entry is invalid. The message is one line and quotes no values.
    """
    try:
        return McpServerConfig.model_validate(expand_variables(dict(entry), environment))
    except ValidationError as error:
        raise McpServerUnusable(describe_validation_error(error)) from None
    except RecursionError:
        raise McpServerUnusable("it is nested too deeply") from None


def describe_validation_error(error: ValidationError) -> str:
    """Describe the errors in one line, without values, because these may be secret."""
    text = "; ".join(
        f"{'.'.join(map(str, found['loc']))}: {_without_prefix(found['msg'])}".removeprefix(": ")
        for found in error.errors(include_input=False, include_url=False, include_context=False)
    )
    # The file may contain any key names.
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def expand_variables(value: Any, environment: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON
    """Expand `$NAME` and `${NAME}` at any depth. Unset variables are empty; `$$` is a dollar sign.

    Inside a longer text, names without braces must be upper-case, so that `pa$word` is not changed.

    >>> expand_variables({"h": "Bearer $TOKEN", "l": ["$x", "pa$word", "$$9"]}, {"TOKEN": "t"})
    {'h': 'Bearer t', 'l': ['', 'pa$word', '$9']}
    """
    if isinstance(value, str):
        whole = _WHOLE.fullmatch(value)
        if whole is not None:
            return environment.get(whole[1], "")
        return _INSIDE.sub(
            lambda found: "$" if found[0] == "$$" else environment.get(found[1] or found[2], ""),
            value,
        )
    if isinstance(value, Mapping):
        return {key: expand_variables(inner, environment) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [expand_variables(inner, environment) for inner in value]
    return value


def _plain(value: object) -> object:
    """Return a JSON scalar as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _without_prefix(message: str) -> str:
    return message.removeprefix("Value error, ")
