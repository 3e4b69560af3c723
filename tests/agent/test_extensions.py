"""The extensions file: change detection and atomic updates."""

import json
import logging
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from agent.errors import ExtensionsInvalid, ExtensionsWriteFailed
from agent.extensions import SERVERS, SKILLS, ExtensionsDocument, ExtensionsFile, section


def written(path: Path, content: object) -> ExtensionsFile:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return ExtensionsFile(path)


def switch_off(name: str) -> Callable[[ExtensionsDocument], None]:
    def change(document: ExtensionsDocument) -> None:
        section(document, SKILLS)[name] = {"enabled": False}

    return change


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


async def test_missing_and_empty_files(tmp_path: Path) -> None:
    missing = await ExtensionsFile(tmp_path / "none.json").load()
    assert (dict(missing.mcp_servers), dict(missing.skills), missing.interceptors) == ({}, {}, ())
    assert missing.error is None
    empty = await written(tmp_path / "empty.json", " \n").load()
    assert dict(empty.skills) == {}


async def test_aliases_are_read_and_invalid_entries_ignored(tmp_path: Path) -> None:
    file = written(
        tmp_path / "e.json",
        {
            "mcp_servers": {"a": {"command": "x", "env": {"K": "$KEY"}}, "broken": 3},
            "skills": {"on": {}, "off": {"enabled": False}, "text": {"enabled": "false"}},
            "mcpInterceptors": ["m:a", 4],
        },
    )
    said = await file.load()
    assert dict(said.mcp_servers) == {"a": {"command": "x", "env": {"K": "$KEY"}}}
    assert dict(said.skills) == {"on": True, "off": False, "text": False}
    assert said.interceptors == ("m:a",)


async def test_changes_of_equal_size_and_time_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    file = written(path, {"skills": {"aaa": False}})
    before = await file.load()
    path.write_text(json.dumps({"skills": {"bbb": False}}))
    after = await file.load()
    assert list(after.skills) == ["bbb"]
    assert after.signature != before.signature


@pytest.mark.parametrize(
    "broken",
    ["{", "[]", '"text"', '{"skills": []}', '{"mcpServers": 3}', "[" * 200_000, "\udcff"],
    ids=["cut", "list", "text", "skills", "servers", "deep", "bytes"],
)
async def test_an_invalid_file_keeps_the_previous_content_and_is_logged_once(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "e.json"
    file = written(path, {"skills": {"a": False}, "mcpServers": {"s": {}}})
    good = await file.load()
    path.write_bytes(broken.encode(errors="surrogateescape"))
    with caplog.at_level(logging.ERROR):
        held = [await file.load() for _ in range(3)][-1]
    assert (held.skills, held.mcp_servers, held.signature) == (
        good.skills,
        good.mcp_servers,
        good.signature,
    )
    assert held.error is not None
    assert str(tmp_path) not in held.error
    assert len(caplog.records) == 1
    with pytest.raises(ExtensionsInvalid):
        await file.update(switch_off("b"))
    assert path.read_bytes() == broken.encode(errors="surrogateescape")
    path.write_text('{"skills": {"a": true}}')
    mended = await file.load()
    assert (mended.error, dict(mended.skills)) == (None, {"a": True})


async def test_updates_keep_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    said = {"x-ours": [1], "mcp_servers": {"s": {"url": "u"}}, "skills": {"a": {"note": "n"}}}
    file = written(path, said)
    after = await file.update(switch_off("b"))
    assert dict(after.skills) == {"a": True, "b": False}
    assert json.loads(path.read_text()) == {
        **said,
        "skills": {"a": {"note": "n"}, "b": {"enabled": False}},
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names_in(tmp_path) == ["e.json"]


async def test_updates_create_the_file_and_follow_links(tmp_path: Path) -> None:
    real, link = tmp_path / "deep" / "real.json", tmp_path / "e.json"
    link.symlink_to(real)
    await ExtensionsFile(link).update(switch_off("a"))
    assert link.is_symlink()
    assert json.loads(real.read_text()) == {"skills": {"a": {"enabled": False}}}


async def test_concurrent_updates_are_all_kept(tmp_path: Path) -> None:
    file = ExtensionsFile(tmp_path / "e.json")
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(file.update, switch_off(f"s{number}"))
    assert len((await file.load()).skills) == 10


async def test_invalid_updates_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    file = written(path, {"skills": {"a": False}})

    def wrong(document: ExtensionsDocument) -> None:
        document[SERVERS] = ["not", "an", "object"]

    with pytest.raises(ExtensionsInvalid):
        await file.update(wrong)
    assert json.loads(path.read_text()) == {"skills": {"a": False}}


async def test_write_errors_have_a_user_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    file = ExtensionsFile(tmp_path / "file" / "e.json")
    with pytest.raises(ExtensionsWriteFailed) as caught:
        await file.update(switch_off("a"))
    assert str(tmp_path) not in caught.value.user_message


def disabled(file: ExtensionsFile) -> set[str]:
    found = file.read()
    servers = {name for name, entry in found.mcp_servers.items() if entry.get("enabled") is False}
    return servers | {name for name, is_enabled in found.skills.items() if not is_enabled}


def put(path: Path, skills: object, servers: object = None) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"skills": skills, "mcpServers": servers or {}}))


def test_a_file_that_appears_is_used_and_enables_nothing_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beside, data = tmp_path / "beside" / "e.json", tmp_path / "data" / "e.json"
    file = ExtensionsFile(beside, data)
    assert file.read().signature == "absent"
    put(data, {"a": {"enabled": False}, "b": {"enabled": False}}, {"s": {"enabled": False}})
    assert disabled(file) == {"a", "b", "s"}
    put(beside, {"b": {"enabled": True}}, {"s": {"command": "x"}, "t": {"command": "y"}})
    found = file.read()
    assert file.path == beside
    assert set(found.mcp_servers) == {"s", "t"}
    assert disabled(file) == disabled(ExtensionsFile(beside, data)) == {"a", "s"}
    assert "still disabled by another or an earlier file: a, s." in caplog.text
    put(beside, {"a": {"enabled": True}}, {"s": {"command": "x", "enabled": True}})
    assert disabled(file) == {"b"}
    data.unlink()
    put(beside, {})
    assert disabled(file) == set()


def test_a_file_that_moves_or_vanishes_enables_nothing(tmp_path: Path) -> None:
    beside, data = tmp_path / "beside" / "e.json", tmp_path / "data" / "e.json"
    file = ExtensionsFile(beside, data)
    put(beside, {"a": {"enabled": False}}, {"s": {"enabled": False}})
    assert disabled(file) == {"a", "s"}
    beside.rename(tmp_path / "e.json")
    assert disabled(file) == {"a"}
    data.parent.mkdir()
    (tmp_path / "e.json").rename(data)
    assert disabled(file) == {"a", "s"}
    # An entry of the current file replaces the remembered one.
    put(data, {})
    assert disabled(file) == set()


async def test_the_file_in_use_is_changed(tmp_path: Path) -> None:
    beside, data = tmp_path / "e.json", tmp_path / "data.json"
    file = ExtensionsFile(beside, data)
    await file.update(switch_off("a"))
    assert json.loads(data.read_text())["skills"] == {"a": {"enabled": False}}
    put(beside, {})
    await file.update(switch_off("b"))
    assert json.loads(beside.read_text())["skills"] == {"b": {"enabled": False}}
    assert disabled(file) == {"a", "b"}
