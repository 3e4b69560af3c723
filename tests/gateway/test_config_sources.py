"""The source of each configuration key."""

from itertools import pairwise
from pathlib import Path

import pytest

from gateway.config import Config, load_config
from gateway.config_file import ConfigError, parse_yaml
from gateway.config_sources import KeyInForce, find_source, find_sources, list_keys

TEXT = """\
log_level: debug
models:
  - name: a
    use: agent.models.demo:DemoChatModel
    model: a
    api_key: $MODEL_KEY
    default_headers: {X-Api-Key: written-into-the-file}
channels:
  slack: {streaming: true, allowed_users: [U1, $COLLEAGUE]}
  support: {platform: telegram, bot_token: "12:written-too"}
database: {url: "postgresql://bot:hush-hush@db/parley"}
"""
SECRETS = ("a-secret-key", "written-into-the-file", "written-too", "hush-hush", "0123456789abcdef")
VARIABLES = {
    "MODEL_KEY": "a-secret-key",
    "COLLEAGUE": "U22222",
    "PARLEY_ADMIN_TOKEN": "0123456789abcdef",
}


def load(folder: Path, text: str = TEXT) -> Config:
    file = folder / "config.yaml"
    file.write_text(text, "utf-8")
    return load_config(str(file), VARIABLES, gateway={"port": "8007"})


def keys(started: Config, applied: Config | None = None) -> dict[str, KeyInForce]:
    return {row.path: row for row in list_keys(started, applied or started)}


@pytest.mark.parametrize(
    ("path", "origin", "line", "variable"),
    [
        ("log_level", "file", 1, ""),
        ("log_format", "default", 0, ""),
        ("models[0].name", "file", 3, ""),
        ("models[0].api_key", "environment", 6, "MODEL_KEY"),
        ("models[0].default_headers.X-Api-Key", "file", 7, ""),
        ("channels.slack.streaming", "file", 9, ""),
        ("channels.slack.mode", "default", 0, ""),
        ("channels.support.bot_token", "file", 10, ""),
        ("gateway.port", "command_line", 0, ""),
        ("gateway.admin_token", "environment", 0, "PARLEY_ADMIN_TOKEN"),
    ],
)
def test_the_source_of_a_key(
    tmp_path: Path, path: str, origin: str, line: int, variable: str
) -> None:
    config = load(tmp_path)
    source = find_source(config, path)
    assert (source.origin, source.line, source.variable) == (origin, line, variable)
    assert source.file == (str(config.source) if line else "")
    assert find_sources(config)[path] == source


def test_values_are_masked_and_variables_stay_names(tmp_path: Path) -> None:
    rows = keys(load(tmp_path))
    assert rows["models[0].api_key"].value == "$MODEL_KEY"
    assert rows["channels.support.bot_token"].value == "***"
    assert rows["channels.slack.allowed_users"].value == ["U1", "$COLLEAGUE"]
    assert rows["database.url"].value == "postgresql://bot:***@db/parley"
    assert rows["channels.slack.streaming"].value is True
    shown = repr(rows)
    assert [secret for secret in (*SECRETS, "U22222") if secret in shown] == []


def test_a_change_that_needs_a_restart_is_not_in_force(tmp_path: Path) -> None:
    started = load(tmp_path)
    changed = load(
        tmp_path, TEXT.replace("streaming: true", "streaming: false").replace("debug", "error")
    )
    rows = keys(started, changed)
    assert rows["log_level"].value == "error"
    assert rows["channels.slack.streaming"].value is True
    waiting = {path for path, row in rows.items() if row.waits_for_restart}
    assert waiting == {"channels.slack.streaming"}


def test_merged_sections_and_aliases_keep_their_lines() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: [*a]\n"
    lines = parse_yaml(text, Path("config.yaml")).lines
    assert lines == {
        "a": 1,
        "a.x": 1,
        "a.y": 1,
        "b": 2,
        "b.x": 1,
        "b.y": 4,
        "c": 5,
        "c[0]": 1,
        "c[0].x": 1,
        "c[0].y": 1,
    }


def test_aliases_inside_aliases_are_refused_before_they_fill_the_memory() -> None:
    names = "abcdefghij"
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]" for before, name in pairwise(names)
    ]
    with pytest.raises(ConfigError, match="more than 100000 keys"):
        parse_yaml("\n".join(lines), Path("config.yaml"))
