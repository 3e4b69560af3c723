"""The configuration: its sources, accepted values, and error messages."""

import os
import re
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from agent.config import AgentConfig, ModelConfig
from bots.config import BotsConfig
from bus.config import BusConfig, SessionConfig
from gateway.config import Config, load_config, prepare_process_for_agent, read_admin_token
from gateway.config_file import ConfigError, find_config
from gateway.gateway_config import GatewayConfig
from store.config import StoreConfig

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def loaded(folder: Path, text: str, **environ: str) -> Config:
    file = folder / "config.yaml"
    file.write_text(text, "utf-8")
    return load_config(str(file), environ)


def problems(folder: Path, text: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, **environ)
    return caught.value.problems


def test_nothing_configured_means_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "a" / "b"
    empty.mkdir(parents=True)
    monkeypatch.chdir(empty)
    config = load_config(None, {})
    assert config.source is None
    assert config.home == empty / ".parley"
    assert config.gateway == GatewayConfig()
    assert config.base_url == "http://127.0.0.1:8001"
    assert not config.bots.slack.enabled
    assert config.bus.max_concurrent_runs == 16
    assert config.agent.chat_models[0].name == "demo"
    assert config.warnings == ()


def test_configuration_files_are_searched_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    files = {
        "above": tmp_path / "config.yaml",
        "here": inner / "config.yaml",
        "variable": tmp_path / "variable.yaml",
        "argument": tmp_path / "argument.yaml",
    }
    found = []
    environ: dict[str, str] = {}
    for port, (name, file) in enumerate(files.items(), start=1):
        file.write_text(f"gateway: {{port: {port}}}")
        if name == "variable":
            environ["PARLEY_CONFIG"] = str(file)
        argument = str(file) if name == "argument" else None
        found.append(load_config(argument, environ).gateway.port)
    assert found == [1, 2, 3, 4]


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_a_named_file_must_exist(tmp_path: Path, by: str) -> None:
    missing = str(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="no such file"):
        load_config(missing, {}) if by == "argument" else load_config(
            None, {"PARLEY_CONFIG": missing}
        )


def test_the_environment_overrides_dotenv_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "A_TOKEN=from-the-file\nPARLEY_HOME=/data/parley\nB_TOKEN=only-file\n"
    )
    text = "gateway: {admin_token: $A_TOKEN}\nmodels: [{name: m, use: 'x:Y', model: m, api_key: $B_TOKEN}]"
    environ = {"A_TOKEN": "from-outside"}
    file = tmp_path / "config.yaml"
    file.write_text(text)
    config = load_config(str(file), environ)
    assert config.gateway.admin_token == "from-outside"
    assert config.agent.models[0].extra_keys()["api_key"] == "only-file"
    assert config.home == Path("/data/parley")
    assert config.environment["B_TOKEN"] == "only-file"
    assert environ == {"A_TOKEN": "from-outside"}
    assert config.secrets >= {"from-outside", "only-file"}


def test_a_broken_line_of_dotenv_is_named_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, dotenv = tmp_path / "config.yaml", tmp_path / ".env"
    file.write_text("gateway: {admin_token: $A_TOKEN}\n")
    dotenv.write_text("# tokens\n\nsk-secret-key\nA_TOKEN=from-the-file\nB_TOKEN='no end\n")
    config = load_config(str(file), {})
    assert config.gateway.admin_token == "from-the-file"
    told = "is not of the form NAME=value, so it is ignored: correct or remove it"
    assert list(config.warnings) == [f"{dotenv}: line {n}: {told}" for n in (3, 5)]
    assert caplog.records == []  # python-dotenv's own warnings do not name the file


def test_the_password_of_a_postgres_url_is_redacted_in_logs(tmp_path: Path) -> None:
    url = "postgresql://parley:s%2Fcret-word@db.example.com:5432/parley?sslmode=require"
    config = loaded(tmp_path, f"database: {{url: '{url}'}}")
    assert config.database.is_postgres
    assert "s/cret-word" in config.secrets


def test_a_missing_variable_names_key_and_variable(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, "models: [{name: m, use: 'x:Y', model: m, api_key: $NO_KEY}]")
    assert "models[0].api_key" in line
    assert "NO_KEY" in line
    assert "config.yaml" in line
    assert "set it" in line


def test_a_dollar_sign_inside_a_text_is_text(tmp_path: Path) -> None:
    config = loaded(
        tmp_path, "title: {enabled: true, prompt: '5 $X'}\ngateway: {admin_token: '$ecret-9'}"
    )
    assert config.gateway.admin_token == "$ecret-9"


def test_variables_become_numbers_where_numbers_are_wanted(tmp_path: Path) -> None:
    assert loaded(tmp_path, "gateway: {port: $PORT}", PORT="9000").gateway.port == 9000


def test_a_disabled_channel_needs_no_variables(tmp_path: Path) -> None:
    text = "channels: {{slack: {{enabled: {}, bot_token: $NO_BOT, app_token: xapp-literal}}}}"
    config = loaded(tmp_path, text.format("false"))
    assert (config.bots.slack.bot_token, config.bots.slack.app_token) == ("", "xapp-literal")
    assert loaded(tmp_path, "channels: {slack: {bot_token: $NO_BOT}}").bots.slack.bot_token == ""
    (line,) = problems(tmp_path, text.format("true"))
    assert "channels.slack.bot_token" in line
    assert "NO_BOT" in line


def test_ids_may_be_written_as_numbers(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "channels: {telegram: {enabled: true, allowed_users: [42], session: {users: {42: {busy: interrupt}}}}}",
    )
    assert config.bots.telegram.allowed_users == ["42"]
    assert config.bots.telegram.session.users["42"].busy == "interrupt"


@pytest.mark.parametrize(
    "section", ["title", "database", "gateway", "channels", "models", "memory", "sandbox", "tools"]
)
def test_a_null_section_means_defaults(tmp_path: Path, section: str) -> None:
    assert loaded(tmp_path, f"{section}:\n") == loaded(tmp_path, "{}")


def test_a_null_channel_and_a_null_key_mean_defaults(tmp_path: Path) -> None:
    config = loaded(tmp_path, "channels: {slack: null, max_concurrent_runs: null, session: null}")
    assert config.bus == BusConfig()
    assert config.bots == BotsConfig()


@pytest.mark.parametrize(
    ("text", "path", "guess"),
    [
        ("log_levl: debug", "log_levl", "log_level"),
        ("gateway: {prot: 1}", "gateway.prot", "port"),
        ("channels: {slak: {enabled: true}}", "channels.slak", "slack"),
        ("channels: {telegram: {bot_tokn: x}}", "channels.telegram.bot_tokn", "bot_token"),
        ("models: [{name: a, use: 'x:Y', model: m, suports_vision: 1}]", "models[0].suports_vision", "supports_vision"),
        ("channels: {feishu: {session: {buzy: queue}}}", "channels.feishu.session.buzy", "busy"),
    ],
)  # fmt: skip
def test_unknown_keys_are_named_with_the_nearest_known_one(
    tmp_path: Path, text: str, path: str, guess: str
) -> None:
    (line,) = loaded(tmp_path, text).unknown_keys
    assert f"{path}: unknown key" in line
    assert f"`{guess}`" in line
    assert "config.yaml" in line


@pytest.fixture
def time_zones(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with the only available time zone."""
    folder = tmp_path / "zones"
    (folder / "Europe").mkdir(parents=True)
    (folder / "Europe" / "Berlin").write_bytes(b"TZif")
    (tmp_path / "Berlin").write_bytes(b"TZif")
    zoneinfo.reset_tzpath(to=[folder])
    yield folder
    zoneinfo.reset_tzpath()


@pytest.mark.parametrize(
    ("zone", "is_known"),
    [
        *[("", True), ("UTC", True), (":UTC", True), ("EST5EDT", True), ("<-03>3", True)],
        *[
            ("Europe/Berlin", True),
            ("Nowhere/Atlantis", False),
            (":Mars", False),
            ("Europe", False),
        ],
        *[("../Berlin", False), ("/dev/null/Berlin", False)],
    ],
)
@pytest.mark.usefixtures("time_zones")
def test_an_unknown_time_zone_is_reported(tmp_path: Path, zone: str, *, is_known: bool) -> None:
    (tmp_path / "config.yaml").write_text("{}")
    config = load_config(str(tmp_path / "config.yaml"), {"TZ": zone})
    told = f"no time zone {zone.removeprefix(':')} "
    assert [told in line for line in config.warnings] == [True] * (not is_known)


def test_keys_for_a_class_and_session_contents_are_free(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        """
models: [{name: a, use: "x:Y", model: m, temperature: 0.5, base_url: null}]
tools: [{name: t, group: g, use: "x:y", max_results: 3}]
channels: {session: {config: {anything: 1}, context: {whatever: {deep: null}}}}
""",
    )
    assert config.warnings == ()
    assert config.agent.models[0].extra_keys() == {"temperature": 0.5, "base_url": None}
    assert config.bus.session.context == {"whatever": {"deep": None}}


def test_a_duplicate_key_is_reported(tmp_path: Path) -> None:
    (line,) = loaded(tmp_path, "log_level: info\nlog_level: debug\n").warnings
    assert "line 2" in line
    assert "log_level" in line


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gateway: {port: abc}", ["gateway.port", "whole number"]),
        ("gateway: {port: 70000}", ["gateway.port", "65535"]),
        ("gateway: []", ["gateway", "section"]),
        ("channels: x", ["channels", "section"]),
        ("channels: {slack: yes}", ["channels.slack", "section"]),
        ("channels: {telegram: {dm_policy: everyone}}", ["channels.telegram.dm_policy", "pairing"]),
        ("log_level: loud", ["log_level", "'debug'"]),
        ("models: {name: x}", ["models", "list"]),
        ("models: [{name: x, model: y}]", ["models[0].use", "missing"]),
        ("models: [{name: x, use: 'a:b', model: y}, {name: x, use: 'a:b', model: y}]", ["models", "twice"]),
        ("gateway: {auth: none, host: 0.0.0.0}", ["gateway.auth", "127.0.0.1"]),
        ("gateway: {cors_origins: ['*']}", ["gateway.cors_origins", "origins"]),
        ("gateway: {admin_token: short}", ["gateway.admin_token", "8"]),
        ("gateway: {admin_token: \"p\u00e4sswort-p\u00e4sswort\"}", ["gateway.admin_token", "ASCII"]),
        ("database: {url: 'sqlite:///'}", ["database.url", "sqlite:///parley.db"]),
        ("database: {url: 'mysql://db'}", ["database.url", "sqlite:///parley.db", "postgresql://"]),
        ("channels: {langgraph_url: 'localhost:2024'}", ["channels.langgraph_url", "http://"]),
        ("database: {url: 'postgresql://['}", ["database.url", "URL"]),
        ("channels: {telegram: {webhook_url: 'https://['}}", ["channels.telegram.webhook_url", "URL"]),
        ("a: [1", ["line 1"]),
        ("a: 1\nb: 2024-13-45", ["line 2, column 4", "impossible"]),
        ("a: !!int b", ["line 1, column 4", "impossible"]),
        ("a: !!timestamp b", ["line 1, column 4", "impossible"]),
        ("a: !!map b", ["line 1, column 4", "mapping"]),
        (f"a: {'9' * 5000}", ["line 1, column 4", "impossible"]),
        ("a: &a [*a]", ["line 1, column 4", "alias of itself"]),
        ("- a\n- b", ["top level"]),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_file_and_key_path(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    lines = problems(tmp_path, text)
    assert len(lines) == 1
    assert "\n" not in lines[0]
    for part in [str(tmp_path / "config.yaml"), *parts]:
        assert part in lines[0]


def test_a_key_that_is_a_number_is_reported_like_any_unknown_one(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("channels: {1: {enabled: true}}\n2: {3: 4}\n")
    unknown = load_config(str(file), {}).unknown_keys
    assert [line.partition(": ")[2] for line in unknown] == [
        "2: unknown key, ignored",
        "channels.1: unknown key, ignored",
    ]


def test_all_mistakes_are_reported_together_without_values(tmp_path: Path) -> None:
    lines = problems(
        tmp_path,
        "gateway: {port: hush-hush}\nlog_format: hush-hush\n"
        "channels: {max_queue: hush-hush, feishu: {mode: hush-hush}}",
    )
    assert len(lines) == 4
    assert not any("hush-hush" in line for line in lines)


def test_binary_data_and_a_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(str(tmp_path / "config.yaml"), {})
    with pytest.raises(ConfigError, match="no such file"):
        load_config(str(tmp_path), {})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_auth_none_is_possible_on_loopback(tmp_path: Path, host: str) -> None:
    config = loaded(tmp_path, f"gateway: {{auth: none, host: '{host}'}}")
    assert config.gateway.auth == "none"


def test_the_token_comes_from_config_environment_or_file(tmp_path: Path) -> None:
    environ = {"PARLEY_HOME": str(tmp_path)}
    config = load_config(None, environ)
    assert read_admin_token(config, environ) is None
    config.token_file.write_text("from-the-file\n")
    assert read_admin_token(config, environ) == "from-the-file"
    environ["PARLEY_ADMIN_TOKEN"] = "from-the-environment"
    assert read_admin_token(config, environ) == "from-the-environment"
    assert load_config(None, environ).gateway.admin_token == "from-the-environment"
    configured = loaded(tmp_path, "gateway: {admin_token: from-config}", **environ)
    assert read_admin_token(configured, environ) == "from-config"


def test_the_command_line_may_replace_keys_of_the_gateway(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("gateway: {port: 1, auth: none}")
    config = load_config(str(file), {}, gateway={"port": "9000"})
    assert (config.gateway.port, config.gateway.auth) == (9000, "none")
    with pytest.raises(ConfigError, match=r"gateway\.auth"):
        load_config(str(file), {}, gateway={"host": "0.0.0.0"})  # noqa: S104 - refused


def test_no_secret_in_the_text_form(tmp_path: Path) -> None:
    config = loaded(tmp_path, "gateway: {admin_token: $T}", T="hush-hush-token")
    assert "hush-hush" not in repr(config)


def test_the_example_is_valid() -> None:
    config = load_config(str(EXAMPLE), {"PARLEY_HOME": "/nonexistent"})
    assert config.warnings == ()
    assert not any(getattr(config.bots, name).enabled for name in ("slack", "telegram", "feishu"))


def test_instances_are_sections_of_their_own(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        "channels: {support: {platform: telegram, enabled: true, bot_token: '1:a', allowed_users: [42],"
        " bot_tokn: x}, quiet: {platform: slack, bot_token: $NO_BOT}}",
    )
    support = config.bots.sections["support"]
    assert (support.enabled, support.allowed_users) == (True, ["42"])
    assert not config.bots.sections["quiet"].enabled
    (line,) = config.unknown_keys
    assert "channels.support.bot_tokn" in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("channels: {support: {platform: irc}}", ["channels.support", "slack, telegram or feishu"]),
        ("channels: {s: {platform: slack, mode: x}}", ["channels.s.mode", "socket"]),
        ("channels: {s: {platform: slack, dm_policy: [x]}}", ["channels.s.dm_policy"]),
        (
            "channels: {a: {platform: feishu, enabled: true, app_id: i},"
            " b: {platform: feishu, enabled: true, app_id: i}}",
            ["channels.b.app_id", "channels.a uses the same bot"],
        ),
    ],
)
def test_wrong_instances_name_their_key(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert all(word in str(caught.value) for word in words)


def uncommented() -> dict[str, Any]:
    """Return the example with every commented key uncommented."""
    lines = [re.sub(r"^(\s*)#-", r"\1", line) for line in EXAMPLE.read_text("utf-8").splitlines()]
    tree = yaml.safe_load("\n".join(lines))
    assert isinstance(tree, dict)
    return tree


def test_every_key_of_the_example_is_known(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(uncommented()))
    names = set(re.findall(r"\$([A-Z_]+)", EXAMPLE.read_text("utf-8")))
    config = load_config(str(file), dict.fromkeys(names, "a-value-that-is-long"))
    assert config.warnings == ()
    assert config.agent.models


def missing(model: type[BaseModel], tree: object, path: str) -> list[str]:
    """Return the paths of the fields of `model` that `tree` does not mention."""
    if not isinstance(tree, dict):
        return [path]
    lines: list[str] = []
    for name, field in model.model_fields.items():
        if name not in tree:
            lines.append(f"{path}.{name}")
            continue
        inner = [
            kind
            for kind in (field.annotation, *get_args(field.annotation))
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        value = tree[name]
        if isinstance(value, list):
            continue  # entries are in comments; those of `models` are checked below
        if isinstance(value, dict) and get_origin(field.annotation) is dict:
            value = {key: 0 for entry in value.values() if isinstance(entry, dict) for key in entry}
        if inner and inner[0] is not SessionConfig:
            lines += missing(inner[0], value, f"{path}.{name}")
    return lines


def test_every_known_key_is_in_the_example() -> None:
    tree = uncommented()
    lines = missing(AgentConfig, tree, "")
    for key in ("config_version", "log_level", "log_format"):
        assert key in tree
    of_models = {key: value for entry in tree["models"] for key, value in entry.items()}
    lines += missing(ModelConfig, of_models, "models")
    lines += missing(StoreConfig, tree["database"], "database")
    lines += missing(GatewayConfig, tree["gateway"], "gateway")
    lines += missing(BusConfig, tree["channels"], "channels")
    terminal = {**tree["channels"]["terminal"], "mode": ""}  # it has only one mode
    lines += missing(BotsConfig, {**tree["channels"], "terminal": terminal}, "channels")
    lines += missing(
        SessionConfig, {**tree["channels"]["session"], "chats": {}, "users": {}}, "session"
    )
    assert lines == []


def test_tracing_without_credentials_is_reported_like_any_mistake(tmp_path: Path) -> None:
    environ = {"PARLEY_HOME": str(tmp_path), "LANGFUSE_TRACING": "1", "LANGSMITH_TRACING": "on"}
    file = tmp_path / "config.yaml"
    file.write_text("log_level: info\n")
    with pytest.raises(ConfigError, match="LANGSMITH_API_KEY is not set") as caught:
        load_config(str(file), environ)
    assert len(caught.value.problems) == 1


def test_langchain_does_not_trace_what_is_switched_off(tmp_path: Path) -> None:
    environ = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "true"}
    file = tmp_path / "config.yaml"
    file.write_text("")
    config = load_config(str(file), environ)
    assert config.tracing.langsmith is None
    prepare_process_for_agent(config, environ)
    assert environ["LANGSMITH_TRACING_V2"] == "false"


def test_exported_variables_do_not_replace_those_of_the_process(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A_KEY=from-the-file\nB_KEY=from-the-file\n")
    (tmp_path / "config.yaml").write_text("")
    environ = {"A_KEY": "from-the-process"}
    prepare_process_for_agent(load_config(str(tmp_path / "config.yaml"), environ), environ)
    assert environ["A_KEY"] == "from-the-process"
    assert environ["B_KEY"] == "from-the-file"


def test_folders_that_belong_to_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands say so in one line. As root, the test switches to the user `nobody`."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    inner.parent.chmod(0)
    user = os.geteuid()
    try:
        os.seteuid(user or 65534)
        for named in (None, str(inner.parent / "config.yaml")):
            with pytest.raises(ConfigError, match="cannot be read"):
                find_config(named, {})
    finally:
        os.seteuid(user)
        inner.parent.chmod(0o700)
