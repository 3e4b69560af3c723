"""The configuration: parses a YAML file and the environment into a validated `Config`."""

import os
import re
import sys
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.config import PARTIAL, AgentConfig
from agent.config.tracing import TracingConfig, is_langsmith_enabled, load_tracing_config
from bots.config import BotsConfig, find_shared_accounts, is_instance, section_model
from bus.config import BusConfig, ChannelPolicy
from bus.hooks.config import HookConfig, HookName
from bus.voice.config import VoiceConfig
from gateway.config_file import (
    ConfigError,
    YamlFile,
    find_config,
    join_path,
    parse_yaml,
    read_config_text,
    read_dotenv,
)
from gateway.config_validation import (
    drop_invalid,
    find_unknown_keys,
    format_validation_error,
    normalize,
    unknown_key_line,
)
from gateway.config_variables import MIN_SECRET_CHARS, resolve_variables
from gateway.gateway_config import MIN_TOKEN_CHARS, GatewayConfig
from gateway.langgraph_file import LangGraphFile, LangGraphFileError, read_langgraph_file
from gateway.telemetry_config import TelemetryConfig, load_telemetry_config
from store.config import StoreConfig
from store.files.config import StorageConfig

CONFIG_VERSION = 1
DEFAULT_HOME = ".parley"
WEBHOOK_KEY_FILE = "webhook_key"
TOKEN_FILE = "admin_token"  # noqa: S105 - the name of a file
EXTENSIONS_FILE = "extensions_config.json"
EXTENSIONS_VARIABLE = "PARLEY_EXTENSIONS_CONFIG_PATH"
TOKEN_VARIABLE = "PARLEY_ADMIN_TOKEN"  # noqa: S105 - the name of a variable

MAX_INVALID_ROUNDS = 5
"""Maximum number of rounds that drop invalid keys from a section, until the rest is valid."""

_TIME_ZONE_RULE = re.compile(r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?\d.*")
"""A time zone that states its own offset: `UTC0`, `CET-1CEST,M3.5.0,M10.5.0/3`."""

SectionT = TypeVar("SectionT", bound=BaseModel)
VariablesT = TypeVar("VariablesT")


class _TopLevelConfig(BaseModel):
    """The top-level keys that are not sections."""

    config_version: int = CONFIG_VERSION
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"
    graphs: dict[str, str] = Field(default_factory=dict)
    hooks: dict[HookName, HookConfig] = Field(default_factory=dict)


class NodeConfig(BaseModel):
    """The `node` section: describes this process, one of several that may share a PostgreSQL database.

    Attributes:
        name: The name of this process in logs, in metrics and for other nodes; None = host name and port.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str | None = Field(default=None, min_length=1, max_length=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The validated configuration.

    Attributes:
        source: Its file; None = built-in defaults.
        home: The data folder, absolute.
        extensions: The possible paths of the file with MCP servers and disabled skills, absolute; see `ExtensionsFile`.
        unknown_keys: One line for each unknown key, which is probably misspelled.
        warnings: Other likely mistakes, such as duplicate keys, one line each.
        graphs: Additional assistants: maps names of LangGraph graphs to `./file.py:graph` or `module:graph`.
        hooks: Signed events of other systems, by name.
        secrets: Values to redact in logs.
        environment: All variables, including those from the `.env` file and from `langgraph.json`. The extensions
            file refers to them.
        import_folders: Folders of graphs' modules, in addition to the configuration's folder.
        dropped: Keys whose invalid parts were dropped, such as `models` or `channels.slack`. Such a configuration is
            only for further checks (`ConfigError.partial`).
        lines: Key path -> line of the file (`gateway/config_sources.py`).
        variables: Key path -> the environment variable that the value names.
        overrides: Key paths that the command line set.
    """

    source: Path | None
    home: Path
    extensions: tuple[Path, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"
    agent: AgentConfig
    database: StoreConfig
    storage: StorageConfig = field(default_factory=StorageConfig)
    node: NodeConfig = field(default_factory=NodeConfig)
    gateway: GatewayConfig
    bus: BusConfig
    bots: BotsConfig
    voice: VoiceConfig = field(default_factory=VoiceConfig)
    graphs: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, HookConfig] = field(default_factory=dict)
    unknown_keys: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    import_folders: tuple[Path, ...] = ()
    tracing: TracingConfig = field(default_factory=TracingConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    dropped: frozenset[str] = frozenset()
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    overrides: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def files(self) -> Path:
        """The folder of the files that all processes of the service need, or of this node's copy."""
        return self.storage.folder(self.home)

    @property
    def folder(self) -> Path:
        """The folder of the configuration file, or the working directory without one."""
        return (self.source.parent if self.source else Path()).absolute()

    @property
    def token_file(self) -> Path:
        """The file of the generated admin token."""
        return self.files / TOKEN_FILE

    @property
    def log_file(self) -> Path:
        """The log file to use while a chat occupies the terminal."""
        return self.home / "parley.log"

    @property
    def audit_file(self) -> Path:
        """The file of the audit log."""
        return self.home / "audit.log"

    @property
    def base_url(self) -> str:
        """URL of the gateway for clients on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.gateway.host, self.gateway.host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.gateway.port}"


def load_config(
    path: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    gateway: Mapping[str, str] = MappingProxyType({}),
    text: str | None = None,
) -> Config:
    """Read the configuration. Does not change the environment or files.

    The file is the first of `path`, $PARLEY_CONFIG, ./config.yaml and ../config.yaml, or none. Variables that `environ`
    lacks come from the `.env` file next to it.

    Args:
        path: The file, as given by `--config`.
        environ: Environment variables; None = the process's.
        gateway: Keys that replace keys of the `gateway` section.
        text: The text to read instead of the file's content. The file must exist.

    Raises:
        ConfigError: With one line per problem.
    """
    environ = os.environ if environ is None else environ
    source = find_config(path, environ)
    label = str(source) if source else "(built-in defaults)"
    folder = (source.parent if source else Path()).absolute()
    dotenv = read_dotenv(folder / ".env")
    graphs = _read_graphs(folder)
    variables = {**graphs.variables, **dotenv.variables, **environ}
    file = YamlFile(tree={})
    if source is not None:
        file = parse_yaml(read_config_text(source) if text is None else text, source)
    tree = dict(file.tree)
    if gateway and isinstance(section := tree.get("gateway") or {}, dict):
        tree["gateway"] = {**section, **gateway}
    resolved = resolve_variables(tree, variables)
    problems = [
        f"{label}: {key}: the environment variable {name} is not set: set it (a .env file next to the"
        " configuration works too), or write the value itself"
        for key, name in resolved.missing
    ]
    builder = _ConfigBuilder(
        resolved.tree,
        [*dotenv.problems, *graphs.warnings, *(f"{label}: {line}" for line in file.warnings)],
        problems,
        label,
    )
    config = builder.build(source, variables, frozenset(resolved.secrets))
    if config is not None:
        config = replace(
            config,
            import_folders=graphs.folders,
            lines=file.lines,
            variables=resolved.variables,
            overrides=frozenset(join_path("gateway", key) for key in gateway),
        )
    if problems or config is None:
        raise ConfigError(*problems, partial=config)
    return config


def _read_graphs(folder: Path) -> LangGraphFile:
    """Return the content of a `langgraph.json`; empty if it is unreadable, which loading the graphs reports later."""
    try:
        return read_langgraph_file(folder)
    except LangGraphFileError:
        return LangGraphFile()


def prepare_process_for_agent(
    config: Config, environ: MutableMapping[str, str] | None = None
) -> None:
    """Prepare the process for the configuration's imports and variables. Call it once when a program starts.

    Modules next to the configuration and in the folders of a `langgraph.json` become importable; they do not replace
    installed modules. Variables from the `.env` file and from `langgraph.json` are added to `environ` (default: the
    process's) if it lacks them, because some model classes read their keys there. LangChain's own tracing is turned off
    unless Parley's tracing is on, because LangChain uses different rules.
    """
    environ = os.environ if environ is None else environ
    for name, value in config.environment.items():
        environ.setdefault(name, value)
    if not is_langsmith_enabled(config.environment):
        environ["LANGSMITH_TRACING_V2"] = "false"
    for folder in map(str, (config.folder, *config.import_folders)):
        if folder not in sys.path:
            sys.path.append(folder)


def read_admin_token(config: Config, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the admin token that a client on this machine may use, or None."""
    variables = os.environ if environ is None else environ
    given = config.gateway.admin_token or variables.get(TOKEN_VARIABLE)
    if given:
        return given
    try:
        return config.token_file.read_text("utf-8").strip() or None
    except OSError:
        return None


def environment_variables(
    folder: Path, environ: Mapping[str, str] | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of the process (or `environ`) and of a folder's `.env` file."""
    variables = dict(os.environ if environ is None else environ)
    return variables, dict(read_dotenv(folder / ".env").variables)


def _extensions_places(
    source: Path | None, files: Path, environ: Mapping[str, str]
) -> tuple[Path, ...]:
    """Return the path named by the environment, or the paths next to the configuration and in the data folder."""
    if named := environ.get(EXTENSIONS_VARIABLE):
        return (Path(named).expanduser().absolute(),)
    beside = (source.parent if source else Path()) / EXTENSIONS_FILE
    return tuple(dict.fromkeys([beside.absolute(), files / EXTENSIONS_FILE]))


class _ConfigBuilder:
    """Validates the sections of a configuration tree; collects problems and warnings."""

    def __init__(
        self, tree: dict[str, Any], warnings: list[str], problems: list[str], label: str
    ) -> None:
        self._tree = tree
        self._warnings = warnings
        self._problems = problems
        self._label = label
        self._dropped: set[str] = set()
        self._unknown_keys: list[str] = []

    def build(
        self, source: Path | None, environ: Mapping[str, str], secrets: frozenset[str]
    ) -> Config | None:
        """Return the configuration without its invalid parts (see `problems`); None if it cannot be read at all."""
        root = self._validate(_TopLevelConfig, "", _pick_fields(self._tree, _TopLevelConfig))
        agent = self._validate(AgentConfig, "", _pick_fields(self._tree, AgentConfig))
        database = self._validate(StoreConfig, "database", self._tree.get("database"))
        storage = self._validate(StorageConfig, "storage", self._tree.get("storage"))
        node = self._validate(NodeConfig, "node", self._tree.get("node"))
        gateway = self._validate(GatewayConfig, "gateway", self._tree.get("gateway"))
        voice = self._validate(VoiceConfig, "voice", self._tree.get("voice"))
        channels = self._channels()
        bus = self._validate(BusConfig, "channels", _pick_fields(channels, BusConfig))
        bots = self._bots_config(channels)
        self._find_unknown_keys()
        if not (root and agent and database and storage and node and gateway and bus and bots):
            return None
        if voice is None:
            return None
        self._problems += [
            f"{self._label}: {line}" for line in _find_conflicts(gateway, database, bus)
        ]
        if (
            gateway.admin_token is None
            and len(given := environ.get(TOKEN_VARIABLE, "")) >= MIN_TOKEN_CHARS
        ):
            gateway = gateway.model_copy(update={"admin_token": given})
        if root.config_version > CONFIG_VERSION:
            self._warn(f"config_version: {root.config_version} is newer than this Parley knows")
        if problem := find_time_zone_problem(environ.get("TZ", "")):
            self._warn(problem)
        home = Path(environ.get("PARLEY_HOME") or DEFAULT_HOME).expanduser().absolute()
        return Config(
            source=source,
            home=home,
            extensions=_extensions_places(source, storage.folder(home), environ),
            environment=dict(environ),
            tracing=self._from_environment(load_tracing_config, environ),
            telemetry=self._from_environment(load_telemetry_config, environ),
            graphs=root.graphs,
            hooks=root.hooks,
            log_level=root.log_level,
            log_format=root.log_format,
            agent=agent,
            database=database,
            storage=storage,
            node=node,
            gateway=gateway,
            bus=bus,
            bots=bots,
            voice=voice,
            unknown_keys=tuple(self._unknown_keys),
            warnings=tuple(self._warnings),
            secrets=secrets | set(_passwords(gateway, database, storage, voice)),
            dropped=frozenset(self._dropped),
        )

    def _validate(self, model: type[SectionT], path: str, data: object) -> SectionT | None:
        for line in find_unknown_keys(model, data, path):
            self._add_unknown_key(line)
        data = normalize(model, data)
        try:
            return model.model_validate(data)
        except ValidationError as error:
            self._problems += [
                f"{self._label}: {line}" for line in format_validation_error(error, path)
            ]
            return self._validate_rest(model, path, data, error)

    def _validate_rest(
        self, model: type[SectionT], path: str, data: object, error: ValidationError
    ) -> SectionT | None:
        """Return a section without its invalid parts, so that the rest can be checked in the same round."""
        for _ in range(MAX_INVALID_ROUNDS):
            data, dropped = drop_invalid(data, error)
            self._dropped |= {join_path(path, key) for key in dropped} or {path}
            try:
                return model.model_validate({} if data is None else data, context=PARTIAL)
            except ValidationError as another:
                error = another
        return None

    def _bots_config(self, channels: Mapping[str, Any]) -> BotsConfig | None:
        """Return the channel sections. Each instance is validated under its own path."""
        bots = self._validate(BotsConfig, "channels", _pick_fields(channels, BotsConfig))
        instances: dict[str, ChannelPolicy | None] = {}
        for name, section in channels.items():
            if name in BotsConfig.model_fields or name in BusConfig.model_fields:
                continue
            try:
                model = section_model(name, section)
            except ValueError as error:
                self._problems.append(f"{self._label}: channels.{name}: {error}")
                continue
            if model is not None:
                instances[name] = self._validate(model, f"channels.{name}", section)
        if bots is None or None in instances.values():
            return None
        bots = BotsConfig.model_validate({**bots.sections, **instances})
        self._problems += [
            f"{self._label}: {key}: channels.{other} uses the same bot: give each its own"
            for key, other in find_shared_accounts(bots)
        ]
        return bots

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

    def _find_unknown_keys(self) -> None:
        known = [
            *_TopLevelConfig.model_fields,
            *AgentConfig.model_fields,
            "database",
            "storage",
            "node",
            "gateway",
            "voice",
            "channels",
        ]
        for key in self._tree:
            if key not in known:
                self._add_unknown_key(unknown_key_line(key, "", known))
        known = [*BusConfig.model_fields, *BotsConfig.model_fields]
        channels = self._tree.get("channels")
        for key, section in channels.items() if isinstance(channels, dict) else ():
            if str(key) not in known and not is_instance(section):
                self._add_unknown_key(unknown_key_line(key, "channels", known))

    def _from_environment(
        self, load: Callable[[Mapping[str, str]], VariablesT], environ: Mapping[str, str]
    ) -> VariablesT:
        """Return the settings from environment variables; the defaults if a variable is invalid."""
        try:
            return load(environ)
        except ValueError as error:
            self._problems.append(f"{self._label}: {error}")
            return load({})

    def _add_unknown_key(self, line: str) -> None:
        self._unknown_keys.append(f"{self._label}: {line}")

    def _warn(self, line: str) -> None:
        self._warnings.append(f"{self._label}: {line}")


def _passwords(
    gateway: GatewayConfig, database: StoreConfig, storage: StorageConfig, voice: VoiceConfig
) -> Iterator[str]:
    """Yield secrets that are not values of variables."""
    if gateway.admin_token:
        yield gateway.admin_token
    if len(database.password) >= MIN_SECRET_CHARS:
        yield database.password
    if storage.secret_access_key:
        yield storage.secret_access_key
    if voice.api_key:
        yield voice.api_key


def _pick_fields(tree: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key in model.model_fields}


def _find_conflicts(gateway: GatewayConfig, database: StoreConfig, bus: BusConfig) -> Iterator[str]:
    """Yield conflicts between keys that are valid individually."""
    if gateway.auth == "none" and not gateway.is_loopback:
        yield (
            f"gateway.auth: `none` would open the API to everyone who can reach {gateway.host}:"
            " use `token`, or host 127.0.0.1"
        )
    if database.url == "sqlite:///" or not (database.is_sqlite or database.is_postgres):
        yield "database.url: must look like sqlite:///parley.db or postgresql://user:password@host/name"
    for key, url in (("langgraph_url", bus.langgraph_url), ("gateway_url", bus.gateway_url)):
        if url is not None and not url.startswith(("http://", "https://")):
            yield f"channels.{key}: must start with http:// or https://"


def find_time_zone_problem(name: str) -> str | None:
    """Return a message if `TZ` does not name a time zone, else None. The C library (tzset(3)) would silently use UTC.

    >>> [find_time_zone_problem(name) for name in ("", "UTC0", "<+03>-3", "CET-1CEST,M3.5.0,M10.5.0/3")]
    [None, None, None, None]
    """
    plain = name.removeprefix(":")
    if not plain or _TIME_ZONE_RULE.fullmatch(plain) or _is_known_time_zone(plain):
        return None
    return (
        f"TZ: there is no time zone {plain} on this machine, so times are in UTC: set a name such as Europe/Berlin, or"
        " install tzdata"
    )


def _is_known_time_zone(name: str) -> bool:
    if name in ("UTC", "GMT", "Etc/UTC"):  # also on a machine without time zone data
        return True
    folders = [Path("/")] if name.startswith("/") else map(Path, zoneinfo.TZPATH)
    return ".." not in name and any((folder / name).is_file() for folder in folders)
