"""Targets: texts, files and structured data from people, models, servers and operators."""

import gzip
import io
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml
from fastapi import HTTPException
from mcp.types import CallToolResult
from pydantic import ValidationError

from agent.errors import (
    McpServerUnusable,
    MemoryInvalid,
    PathNotAllowed,
    SkillInvalid,
    UrlNotAllowed,
)
from agent.extensions import ExtensionsFile
from agent.mcp.process import parse_message
from agent.mcp.results import result_text
from agent.mcp.server_config import parse_server
from agent.mcp.settings import server_view
from agent.memory.extraction_prompt import parse_update
from agent.memory.schema import document_from_json, document_to_json
from agent.network.url_guard import parse_url
from agent.paths import MountTable, normalize_path
from agent.redaction import redact_error
from agent.sandbox.host_paths import check_host_paths
from agent.skills.archive import unpack_skill
from agent.skills.manifest import is_name, parse_manifest
from agent.skills.scanner import parse_scan_result
from agent.uploads.names import safe_name
from bots.feishu import format as feishu
from bots.slack import format as slack
from bots.telegram import format as telegram
from bots.telegram.rich_blocks import rich_blocks
from bus.messages import decode_inbound, decode_outbound
from bus.runs.questions import decode_question
from bus.runs.stream import parse_part
from gateway.backup.archive import extract_archive
from gateway.backup.create import write_backup
from gateway.command_errors import CommandFailed
from gateway.config import load_config
from gateway.config_file import ConfigError
from gateway.multipart import MultipartForm
from gateway.sse import parse_last_event_id
from gateway.terminal.markdown import render_markdown
from gateway.terminal.session_events import SESSION_EVENT
from tests.agent.test_fuzz import ARCHIVES, COMMANDS, MANIFESTS, MESSAGES, UPDATE
from tests.bots.markdown_samples import SAMPLE
from tests.lab.fuzz.mutation import damage_bytes, damage_json, damage_text, to_json
from tests.lab.fuzz.runner import Target

ROOT = Path(__file__).parents[3]
MARKDOWN = [part for part in SAMPLE.split("\n\n") if part] + [SAMPLE]
HIDDEN = frozenset(map(chr, (*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F)))) - {
    "\n",
    "\t",
}
"""Characters that control a terminal or change the order of text."""


@cache
def scratch() -> Path:
    """Return this process's folder, in memory if possible. Its users must empty it."""
    memory = Path("/dev/shm")  # noqa: S108 - a fresh folder in it
    return Path(tempfile.mkdtemp(prefix="parley-fuzz-", dir=memory if memory.is_dir() else None))


# ---- texts of people and models -------------------------------------------------------------------------------


def markdown(rng: Random) -> str:
    """Render a text for each platform."""
    text = "\n\n".join(damage_text(rng, rng.choice(MARKDOWN)) for _ in range(rng.randint(1, 4)))
    mrkdwn, card = slack.render(text).text, feishu.render(text, partial=rng.random() < 0.5)
    assert "<!channel>" not in mrkdwn
    assert "<at " not in card
    plain = telegram.render(text)
    size = len(plain.text.encode("utf-16-le", "replace")) // 2
    assert all(e.offset >= 0 and e.offset + e.length <= size for e in plain.entities)
    rich_blocks(text)
    shown = render_markdown(text)
    assert not HIDDEN & set(mrkdwn + card + plain.text + shown.replace("\x1b[", ""))
    return "accepted"


def commands(rng: Random) -> str:
    """Check the paths of a command line."""
    text = damage_text(rng, rng.choice(COMMANDS))
    try:
        check_host_paths(text, MountTable([]))
    except PathNotAllowed:
        return "refused"
    return "accepted"


def names_and_addresses(rng: Random) -> str:
    """Check paths, file names, URLs and event numbers."""
    text = damage_text(
        rng,
        rng.choice(
            ("/mnt/user-data/a//./b.txt", "../../etc", "https://u@h.org:80/a?b#c", "C:\\x.tar.gz")
        ),
    )
    parse_last_event_id(text)
    redact_error(text)
    name = safe_name(text)
    assert name is None or (
        Path(name).name == name and name not in (".", "..") and len(os.fsencode(name)) <= 255
    )
    try:
        path = normalize_path(text)
        assert not {"..", "."} & set(path.split("/"))
    except PathNotAllowed:
        pass
    try:
        url = parse_url(text)
        assert url.scheme in ("http", "https")
    except UrlNotAllowed:
        return "refused"
    return "accepted"


# ---- skills, MCP, memory ----------------------------------------------------------------------------------------


def skill_manifests(rng: Random) -> str:
    """Read the front matter of a skill, and the verdict of its review."""
    text = damage_text(rng, rng.choice(MANIFESTS))
    found = parse_scan_result(text + '{"decision": "allow", "reason": "x"}')
    assert found is None or found.decision in ("allow", "warn", "block")
    told = ""
    try:
        assert is_name(parse_manifest(text, strict=rng.random() < 0.5).name)
    except SkillInvalid as error:
        told = error.user_message
    assert told.isprintable()
    return "refused" if told else "accepted"


def skill_archives(rng: Random) -> str:
    """Unpack a skill. Nothing may appear outside its folder."""
    folder = scratch() / "skill"
    into = folder / "into"
    into.mkdir(parents=True)
    try:
        unpack_skill(io.BytesIO(damage_bytes(rng, rng.choice(ARCHIVES))), "a.skill", into)
        outcome = "accepted"
    except SkillInvalid:
        outcome = "refused"
    assert [path.name for path in folder.iterdir()] == ["into"]
    assert not any(path.is_symlink() for path in into.rglob("*"))
    shutil.rmtree(folder)
    return outcome


SERVERS: list[Any] = [
    {"type": "stdio", "command": "npx", "args": ["-y", "x", "--token=$B"], "env": {"A": "$A"}, "enabled": True},
    {"type": "http", "url": "https://u:p@h/?key=s", "headers": {"Authorization": "Bearer $B"}, "timeout": 3,
     "oauth": {"token_url": "https://t", "client_id": "c", "client_secret": "$B", "grant_type": "client_credentials"}},
]  # fmt: skip
RESULTS: list[Any] = [
    {"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                 {"type": "resource", "resource": {"uri": "x://a", "text": "b"}},
                 {"type": "resource_link", "name": "n", "uri": "x://a"}],
     "structuredContent": {"a": [1]}, "isError": False},
]  # fmt: skip


def mcp_servers(rng: Random) -> str:
    """Read a server's settings."""
    entry = damage_json(rng, rng.choice(SERVERS), SERVERS)
    if not isinstance(entry, dict):
        return "refused"
    assert not str(server_view(entry)["url"]).startswith("https://u:p@")
    told = ""
    try:
        parse_server(entry, {"A": "npx", "B": "secret"})
    except McpServerUnusable as error:
        told = error.user_message
    assert "\n" not in told
    return "refused" if told else "accepted"


def mcp_messages(rng: Random) -> str:
    """Read a line and a result from a server."""
    found = parse_message(damage_bytes(rng, rng.choice(MESSAGES)))
    try:
        assert result_text(CallToolResult.model_validate(damage_json(rng, RESULTS[0], RESULTS)))
    except ValidationError:
        return "refused"
    return "refused" if isinstance(found, Exception) else "accepted"


DOCUMENT: Any = {
    "version": "1.0", "lastUpdated": "2026-01-01T00:00:00Z",
    "user": {"workContext": {"summary": "a", "updatedAt": ""}}, "history": {"recentMonths": {"summary": "b"}},
    "facts": [{"id": "fact_1", "content": "c", "category": "goal", "confidence": 0.5, "createdAt": "x", "source": "t"}],
}  # fmt: skip


def memory(rng: Random) -> str:
    """Read a model's update of the notes, and stored notes."""
    parse_update(damage_text(rng, UPDATE))
    try:
        document = document_from_json(damage_json(rng, DOCUMENT))
    except MemoryInvalid:
        return "refused"
    assert (
        document_from_json(json.loads(json.dumps(document_to_json(document), allow_nan=False)))
        == document
    )
    return "accepted"


# ---- servers, clients, stored rows ------------------------------------------------------------------------------

PARTS: list[Any] = [
    {"run_id": "r", "attempt": 1},
    [
        {
            "type": "AIMessageChunk",
            "id": "m",
            "content": [{"type": "text", "text": "a"}],
            "additional_kwargs": {},
        },
        {},
    ],
    {
        "messages": [{"type": "ai", "content": "x", "id": "m", "tool_calls": []}],
        "artifacts": ["a"],
        "title": "t",
    },
    {"error": "E", "message": "m"},
    {"type": "task_running", "name": "x"},
    {"status": "success"},
]
EVENTS = ("metadata", "messages", "messages-tuple", "values", "custom", "error", "end", "other|x")


def stream_events(rng: Random) -> str:
    """Read streams of a LangGraph server, and of the service to a terminal."""
    part = parse_part(rng.choice(EVENTS), damage_json(rng, rng.choice(PARTS), PARTS))
    line = {"kind": "message", "id": "1", "text": "a", "final": True}
    with suppress(ValidationError):
        SESSION_EVENT.validate_json(damage_bytes(rng, to_json(damage_json(rng, line, PARTS))))
    return "ignored" if part is None else "accepted"


ROWS: list[Any] = [
    {"event_id": "e", "message_id": "m", "key": {"channel": "slack", "workspace": "T", "chat": "C", "topic": ""},
     "reply_target": {"chat": "C", "response_url": "x"}, "sender": {"user_id": "U", "name": "n"}, "text": "hi",
     "is_private": True, "is_addressed": True, "attachments": [{"kind": "file", "name": "a", "ref": "r", "size": 3}]},
    {"kind": "text", "reply_target": {"chat": "C"}, "markdown": "*a*"},
    {"kind": "file", "reply_target": {"chat": "C"}, "name": "a", "path": "/x", "mime_type": "a/b"},
    {"options": ["a"], "interrupts": [{"id": "i", "kind": "approval", "calls": []}]},
]  # fmt: skip


def stored_rows(rng: Random) -> str:
    """Read rows that were damaged or that another version wrote."""
    body = json.dumps(damage_json(rng, rng.choice(ROWS), ROWS))
    if rng.random() < 0.3:
        body = damage_text(rng, body)
    decode_question(body)
    outcome = "refused"
    for decode in (decode_inbound, decode_outbound):
        try:
            decode(body)
            outcome = "accepted"
        except ValueError:
            pass
    return outcome


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n'
    b"Content-Type: text/plain\r\n\r\nhello\r\n"
    b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--b--\r\n'
)


def multipart(rng: Random) -> str:
    """Read an upload that arrives in pieces."""
    body = damage_bytes(rng, FORM)
    cuts = sorted(rng.randint(0, len(body)) for _ in range(rng.randint(0, 4)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    kind = "multipart/form-data; boundary=b"
    if rng.random() < 0.2:  # headers are read as Latin-1
        kind = damage_bytes(rng, kind.encode()).decode("latin-1")
    try:
        return finished(_read_form(kind, pieces))
    except HTTPException as error:
        status = error.status_code
    assert status == 400
    return "refused"


async def _read_form(kind: str, pieces: list[bytes]) -> str:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            if piece:
                yield piece

    count = 0
    async for file in MultipartForm(kind, body()).files():
        count += 1
        async for chunk in file.chunks:
            assert len(chunk) <= 10_000_000
    return f"{min(count, 2)} files"


def finished(coroutine: Coroutine[Any, Any, str]) -> str:
    """Return the result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return str(end.value)
    raise AssertionError("it waits")


# ---- files of operators ---------------------------------------------------------------------------------------


@cache
def configuration() -> tuple[str, ...]:
    """Return parts of the example configuration, each a valid configuration."""
    text = (ROOT / "config.example.yaml").read_text("utf-8")
    tree = yaml.safe_load(text)
    return tuple(yaml.safe_dump({key: value}) for key, value in tree.items())


def configurations(rng: Random) -> str:
    """Load a configuration and an extensions file."""
    text = "".join(rng.sample(configuration(), rng.randint(1, 3)))
    if rng.random() < 0.5:
        text = json.dumps(damage_json(rng, yaml.safe_load(text)), ensure_ascii=False)  # YAML, too
    file = scratch() / "config.yaml"
    file.write_bytes(
        damage_bytes(rng, text.encode("utf-8", "replace"))
        if rng.random() < 0.7
        else text.encode("utf-8", "replace")
    )
    extensions = scratch() / "extensions.json"
    extensions.write_bytes(
        damage_bytes(
            rng,
            to_json(
                damage_json(
                    rng, {"mcpServers": {"a": SERVERS[0]}, "skills": {"b": {"enabled": True}}}
                )
            ),
        )
    )
    ExtensionsFile(extensions).read()
    try:
        load_config(str(file), {"PARLEY_HOME": str(scratch() / "home")})
    except ConfigError as error:
        problems = error.problems
    else:
        return "accepted"
    assert problems
    assert all("\n" not in line for line in problems)
    return "refused"


@cache
def backup() -> bytes:
    """Return a small backup, not compressed."""
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    config = load_config(None, {"PARLEY_HOME": str(folder / "home")})
    config.home.mkdir()
    with closing(sqlite3.connect(config.home / "parley.db")) as journal:
        journal.executescript(
            "CREATE TABLE parley_schema (version INTEGER); INSERT INTO parley_schema VALUES (1)"
        )
    (config.home / "USER.md").write_text("x" * 700)
    (config.home / "link").symlink_to("USER.md")
    write_backup(config, folder / "backup.tar.gz")
    return gzip.decompress((folder / "backup.tar.gz").read_bytes())


def backups(rng: Random) -> str:
    """Unpack a backup. Nothing may appear outside its folder."""
    data = gzip.compress(damage_bytes(rng, backup()), 1)
    folder = scratch() / "restore"
    into = folder / "into"
    into.mkdir(parents=True)
    file = scratch() / "backup.tar.gz"
    file.write_bytes(damage_bytes(rng, data) if rng.random() < 0.2 else data)
    try:
        extract_archive(file, into, wanted=lambda _: True)
        outcome = "accepted"
        assert (into / "home" / "USER.md").read_text() == "x" * 700
    except CommandFailed:
        outcome = "refused"
    assert [path.name for path in folder.iterdir()] == ["into"]
    shutil.rmtree(folder)
    return outcome


TARGETS = (
    Target(name="markdown", run=markdown, weight=0.3),
    Target(name="commands", run=commands),
    Target(name="names-and-addresses", run=names_and_addresses),
    Target(name="skill-manifests", run=skill_manifests, weight=0.5),
    Target(name="skill-archives", run=skill_archives, weight=0.5),
    Target(name="mcp-servers", run=mcp_servers),
    Target(name="mcp-messages", run=mcp_messages),
    Target(name="memory", run=memory),
    Target(name="stream-events", run=stream_events),
    Target(name="stored-rows", run=stored_rows),
    Target(name="multipart", run=multipart),
    Target(name="configurations", run=configurations, weight=0.05),
    Target(name="backups", run=backups, weight=0.2),
)
