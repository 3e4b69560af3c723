"""The configuration: one YAML file, the environment beside it, defaults. The only reader of files and environment."""

import ipaddress
import logging
import os
from collections.abc import Hashable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import yaml
from dotenv import dotenv_values
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from typing_extensions import override

from agent.config import AgentConfig
from agent.config.tracing import TracingConfig, is_langsmith_enabled, load_tracing_config
from bots.config import BotsConfig
from bus.config import BusConfig
from gateway.findings import describe, normal, unknown, unknown_keys
from gateway.limits import RateLimitConfig
from gateway.values import resolve
from store.config import StoreConfig

log = logging.getLogger(__name__)

CONFIG_VERSION = 1
DEFAULT_HOME = ".parley"
TOKEN_FILE = "admin_token"  # noqa: S105 - the name of a file
EXTENSIONS_FILE = "extensions_config.json"
EXTENSIONS_VARIABLE = "PARLEY_EXTENSIONS_CONFIG_PATH"
TOKEN_VARIABLE = "PARLEY_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
MIN_TOKEN_CHARS = 8

SectionT = TypeVar("SectionT", bound=BaseModel)


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        problems: One line each: file, key path, what is wrong, what to do. No secrets.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class GatewayConfig(BaseModel):
    """The `gateway` section: where HTTP is served, and to whom.

    Attributes:
        port: 0 = any free port.
        auth: `none` is possible only where nobody but this machine can connect.
        admin_token: None = $PARLEY_ADMIN_TOKEN if that is set, else one is generated into the data folder.
        allowed_hosts: Further names under which the gateway may be addressed.
        cors_origins: Web pages that may call the API from a browser, like https://chat.example.org.
        webhook_hosts: Names, addresses or networks that webhooks of runs may go to although they are not public.
        rate_limit: How fast clients may ask.
        metrics: Who may read /metrics: holders of the token, everyone, or nobody.
        watchdog_s: The event loop's standstill after which all stacks are logged, seconds; 0 = never.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8001, ge=0, le=65535)
    auth: Literal["token", "none"] = "token"
    admin_token: str | None = Field(default=None, min_length=MIN_TOKEN_CHARS, repr=False)
    allowed_hosts: list[str] = Field(default_factory=list)
    cors_origins: list[str] = Field(default_factory=list)
    webhook_hosts: list[str] = Field(default_factory=list)
    rate_limit: RateLimitConfig = Field(default_factory=RateLimitConfig)
    metrics: Literal["token", "open", "off"] = "token"
    watchdog_s: float = Field(default=10.0, ge=0)

    @field_validator("cors_origins")
    @classmethod
    def _no_wildcard(cls, origins: list[str]) -> list[str]:
        if "*" in origins:
            raise ValueError("`*` would let every web page in: name the origins")
        return origins

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class _Root(BaseModel):
    """The single keys at the top level."""

    config_version: int = CONFIG_VERSION
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that was configured, checked.

    Attributes:
        source: The file it came from; None = built-in defaults.
        home: The data folder, absolute.
        extensions: Where MCP servers and switched-off skills are written down, absolute.
        warnings: Unknown keys and the like, one line each.
        secrets: Values that no log line may hold.
        environment: Every variable, those of the `.env` file included: for the extensions file, which names some.
    """

    source: Path | None
    home: Path
    extensions: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"
    agent: AgentConfig
    database: StoreConfig
    gateway: GatewayConfig
    bus: BusConfig
    bots: BotsConfig
    warnings: tuple[str, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    tracing: TracingConfig = field(default_factory=TracingConfig)

    @property
    def token_file(self) -> Path:
        """Where a generated admin token is kept."""
        return self.home / TOKEN_FILE

    @property
    def log_file(self) -> Path:
        """Where logs go while a chat has the terminal."""
        return self.home / "parley.log"

    @property
    def audit_file(self) -> Path:
        """Where is written down who changed what."""
        return self.home / "audit.log"

    @property
    def base_url(self) -> str:
        """Where the gateway is reached from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.gateway.host, self.gateway.host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.gateway.port}"


def load(
    path: str | None = None,
    environ: MutableMapping[str, str] | None = None,
    *,
    gateway: Mapping[str, str] = MappingProxyType({}),
) -> Config:
    """Read the configuration; `gateway` replaces keys of that section.

    The file is `path`, else $PARLEY_CONFIG, else ./config.yaml, else ../config.yaml, else none. Variables
    of a `.env` file beside it join `environ` where they are not set there (model classes read some themselves).

    Raises:
        ConfigError: with one line per problem.
    """
    variables = os.environ if environ is None else environ
    source = find(path, variables)
    label = str(source) if source else "(built-in defaults)"
    for name, value in _dotenv((source.parent if source else Path()) / ".env").items():
        variables.setdefault(name, value)
    if not is_langsmith_enabled(variables):
        # LangChain looks itself, by other rules: what is off for us must be off for it.
        variables["LANGSMITH_TRACING_V2"] = "false"
    tree, notes = _read(source) if source else ({}, [])
    if gateway and isinstance(section := tree.get("gateway") or {}, dict):
        tree["gateway"] = {**section, **gateway}
    resolved = resolve(tree, variables)
    problems = [
        f"{label}: {key}: the environment variable {name} is not set: set it (a .env file beside the"
        " configuration will do) or write the value itself"
        for key, name in resolved.missing
    ]
    sections = _Sections(resolved.tree, [f"{label}: {note}" for note in notes], problems, label)
    config = sections.config(source, variables, frozenset(resolved.secrets))
    if problems or config is None:
        raise ConfigError(*problems)
    return config


def read_token(config: Config, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the admin token that a client on this machine may use, or None."""
    variables = os.environ if environ is None else environ
    given = config.gateway.admin_token or variables.get(TOKEN_VARIABLE)
    if given:
        return given
    try:
        return config.token_file.read_text("utf-8").strip() or None
    except OSError:
        return None


def find(path: str | None, environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the configuration file that holds: `path`, $PARLEY_CONFIG, ./config.yaml, ../config.yaml; else None.

    Raises:
        ConfigError: one was named that does not exist.
    """
    variables = os.environ if environ is None else environ
    named = variables.get("PARLEY_CONFIG")
    for value, origin in ((path, "--config"), (named, "PARLEY_CONFIG")):
        if value:
            if not Path(value).is_file():
                raise ConfigError(
                    f"{value}: no such file, though {origin} names it: correct the path"
                )
            return Path(value).absolute()
    candidates = (Path("config.yaml"), Path("..") / "config.yaml")
    return next((file.resolve() for file in candidates if file.is_file()), None)


def variables(
    folder: Path, environ: Mapping[str, str] | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what `$NAME` may name: the process's variables, and those of a folder's `.env` file."""
    return dict(os.environ if environ is None else environ), _dotenv(folder / ".env")


def _extensions(source: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file named by the environment, or the one beside the configuration; None = in the data folder."""
    if named := environ.get(EXTENSIONS_VARIABLE):
        return Path(named).expanduser().absolute()
    beside = (source.parent if source else Path()) / EXTENSIONS_FILE
    return beside.absolute() if beside.is_file() else None


def _dotenv(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    try:
        return {name: value for name, value in dotenv_values(file).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}): correct or remove it") from None


class _Loader(yaml.SafeLoader):
    """Notes keys that stand twice in one section: YAML takes the last and says nothing."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.notes: list[str] = []

    @override
    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,
    ) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str) and key.value in seen:
                line = key.start_mark.line + 1
                self.notes.append(
                    f"line {line}: the key `{key.value}` stands twice; the last holds"
                )
            if isinstance(key.value, str) and key.value != "<<":
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _read(source: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        loader = _Loader(source.read_text("utf-8"))
        tree = loader.get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{source}: {where}{what}: correct the YAML") from None
    if tree is None:
        return {}, []
    if not isinstance(tree, dict):
        raise ConfigError(f"{source}: must be a section of `key: value` lines at its top level")
    return {str(key): value for key, value in tree.items()}, loader.notes


class _Sections:
    """One configuration tree being turned into sections; problems and warnings are gathered, not raised."""

    def __init__(
        self, tree: dict[str, Any], warnings: list[str], problems: list[str], label: str
    ) -> None:
        self._tree = tree
        self._warnings = warnings
        self._problems = problems
        self._label = label

    def config(
        self, source: Path | None, environ: Mapping[str, str], secrets: frozenset[str]
    ) -> Config | None:
        """Return the checked whole, or None (then `problems` says why)."""
        root = self._take(_Root, "", _pick(self._tree, _Root))
        agent = self._take(AgentConfig, "", _pick(self._tree, AgentConfig))
        database = self._take(StoreConfig, "database", self._tree.get("database"))
        gateway = self._take(GatewayConfig, "gateway", self._tree.get("gateway"))
        channels = self._channels()
        bus = self._take(BusConfig, "channels", _pick(channels, BusConfig))
        bots = self._take(BotsConfig, "channels", _pick(channels, BotsConfig))
        self._unknown()
        if not (root and agent and database and gateway and bus and bots):
            return None
        self._problems += [f"{self._label}: {line}" for line in _clashes(gateway, database, bus)]
        if (
            gateway.admin_token is None
            and len(given := environ.get(TOKEN_VARIABLE, "")) >= MIN_TOKEN_CHARS
        ):
            gateway = gateway.model_copy(update={"admin_token": given})
        if root.config_version > CONFIG_VERSION:
            self._warn(f"config_version: {root.config_version} is newer than this Parley knows")
        return Config(
            source=source,
            home=Path(environ.get("PARLEY_HOME") or DEFAULT_HOME).expanduser().absolute(),
            extensions=_extensions(source, environ),
            environment=dict(environ),
            tracing=self._tracing(environ),
            log_level=root.log_level,
            log_format=root.log_format,
            agent=agent,
            database=database,
            gateway=gateway,
            bus=bus,
            bots=bots,
            warnings=tuple(self._warnings),
            secrets=secrets | ({gateway.admin_token} if gateway.admin_token else frozenset()),
        )

    def _take(self, model: type[SectionT], path: str, data: object) -> SectionT | None:
        for line in unknown_keys(model, data, path):
            self._warn(line)
        try:
            return model.model_validate(normal(model, data))
        except ValidationError as error:
            self._problems += [f"{self._label}: {line}" for line in describe(error, path)]
            return None

    def _channels(self) -> dict[str, Any]:
        channels = self._tree.get("channels")
        if channels is None:
            return {}
        if not isinstance(channels, dict):
            self._problems.append(
                f"{self._label}: channels: must be a section of `key: value` lines"
            )
            return {}
        return {str(key): value for key, value in channels.items()}

    def _unknown(self) -> None:
        known = [*_Root.model_fields, *AgentConfig.model_fields, "database", "gateway", "channels"]
        for key in self._tree:
            if key not in known:
                self._warn(unknown(key, "", known))
        known = [*BusConfig.model_fields, *BotsConfig.model_fields]
        for key in self._channels() if isinstance(self._tree.get("channels"), dict) else ():
            if key not in known:
                self._warn(unknown(key, "channels", known))

    def _tracing(self, environ: Mapping[str, str]) -> TracingConfig:
        try:
            return load_tracing_config(environ)
        except ValueError as error:
            self._problems.append(f"{self._label}: {error}")
            return TracingConfig()

    def _warn(self, line: str) -> None:
        self._warnings.append(f"{self._label}: {line}")


def _pick(tree: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key in model.model_fields}


def _clashes(gateway: GatewayConfig, database: StoreConfig, bus: BusConfig) -> Iterator[str]:
    """Yield what is wrong between keys that are each well-formed."""
    if gateway.auth == "none" and not gateway.is_loopback:
        yield (
            f"gateway.auth: `none` would open the API to everyone who reaches {gateway.host}:"
            " use `token`, or host 127.0.0.1"
        )
    if database.url.startswith(("postgres://", "postgresql://")):
        yield "database.url: PostgreSQL is not available yet: use sqlite:///parley.db"
    elif not database.url.startswith("sqlite:///") or not database.url.removeprefix("sqlite:///"):
        yield "database.url: must look like sqlite:///parley.db"
    for key, url in (("langgraph_url", bus.langgraph_url), ("gateway_url", bus.gateway_url)):
        if url is not None and not url.startswith(("http://", "https://")):
            yield f"channels.{key}: must start with http:// or https://"
