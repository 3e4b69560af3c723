"""Hostile input for the parsers of skills, MCP servers, commands and memory: each raises only its documented errors.

The inputs are valid ones with damage. PARLEY_FUZZ_EXAMPLES sets their number, and PARLEY_FUZZ_SEED selects different
ones. A failure prints both.
"""

import io
import json
import os
import string
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st
from mcp.types import CallToolResult
from pydantic import ValidationError

from agent.errors import (
    McpServerUnusable,
    McpSettingsInvalid,
    MemoryInvalid,
    PathNotAllowed,
    SkillInvalid,
    UrlNotAllowed,
)
from agent.mcp.launch_policy import check_launch
from agent.mcp.process import parse_message
from agent.mcp.redaction import redact_args, redact_url, restore_args
from agent.mcp.results import result_text
from agent.mcp.server_config import parse_server
from agent.mcp.settings import server_view
from agent.mcp.tool_names import MAX_CHARS, tool_name, unique_names
from agent.memory.extraction_prompt import parse_update
from agent.memory.schema import document_from_json, document_to_json
from agent.network.url_guard import parse_url
from agent.paths import MountTable, normalize_path
from agent.sandbox.host_paths import check_host_paths
from agent.skills.archive import unpack_skill
from agent.skills.manifest import is_name, parse_manifest
from agent.skills.scanner import parse_scan_result

EXAMPLES = int(os.environ.get("PARLEY_FUZZ_EXAMPLES", "40"))
SEED = int(os.environ.get("PARLEY_FUZZ_SEED", "1"))

T = TypeVar("T")
Test = Callable[..., None]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def fuzzed(**inputs: st.SearchStrategy[Any]) -> Callable[[Test], Test]:
    """Run a test with generated inputs. The fixed seed makes failures repeatable."""

    def decorate(test: Test) -> Test:
        limits = settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        return seed(SEED)(limits(given(**inputs)(test)))

    return decorate


def show_seed() -> None:
    """Print the seed if the test fails."""
    note(f"PARLEY_FUZZ_SEED={SEED} PARLEY_FUZZ_EXAMPLES={EXAMPLES}")


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Take a valid input and overwrite, remove, repeat or insert some parts of it."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(start + draw(st.integers(0, 40)), len(data))
        piece = draw(st.binary(max_size=12) | st.sampled_from([b"\0", b"\xff" * 4, b"PK\x05\x06"]))
        match draw(st.sampled_from(("overwrite", "remove", "repeat", "insert"))):
            case "overwrite":
                data[start : start + len(piece)] = piece
            case "remove":
                del data[start:end]
            case "repeat":
                data[start:start] = data[start:end] * draw(st.integers(1, 20))
            case _:
                data[start:start] = piece
    return bytes(data)


def damaged_text(*originals: str) -> st.SearchStrategy[str]:
    """Damage a valid text in the same way."""
    return damaged([text.encode() for text in originals]).map(
        lambda d: d.decode("utf-8", "replace")
    )


# ---- skills ------------------------------------------------------------------------------------

MANIFEST = """---
name: release-notes
description: "Writes: release notes"
license: MIT
allowed-tools: Bash(git:*) Read
metadata: {a: [1, {b: !!str c}], d: &x [*x]}
---
# Text
"""
MANIFESTS = (
    MANIFEST,
    "---\nname: a\ndescription: b: c\n---\n",
    "---\nname: a\ndescription: |\n  b\nallowed-tools: [a, b]\nx: {{{{[[[[\n---\n",
    "---\na: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\nname: 2026-01-01\ndescription: 1e9\n---\n",
)


@fuzzed(text=damaged_text(*MANIFESTS) | st.text(), strict=st.booleans())
def test_skill_manifests(text: str, strict: bool) -> None:
    show_seed()
    try:
        found = parse_manifest(text, strict=strict)
    except SkillInvalid as error:
        texts = [error.user_message]
    else:
        texts = [
            found.name,
            found.description,
            found.license or "",
            *(grant.name for grant in found.allowed_tools),
        ]
        assert is_name(found.name)
    assert all(text.isprintable() for text in texts)


def archive(*names: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive of a skill with these further files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as made:
        made.writestr("SKILL.md", MANIFESTS[1])
        for name in names:
            made.writestr(name, "text " * 20)
    return target.getvalue()


ARCHIVES = [
    archive("scripts/a.py", "b.txt"),
    archive("deep/er/than/that", "../out", method=zipfile.ZIP_STORED),
    archive("/etc/passwd", "a\\b", "C:x", "caf\u00e9.txt"),
]


@fuzzed(data=damaged(ARCHIVES) | st.binary(max_size=200))
def test_skill_archives(data: bytes) -> None:
    show_seed()
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder, "below", "skill")
        into.mkdir(parents=True)
        try:
            unpacked = unpack_skill(io.BytesIO(data), "a.skill", into)
        except SkillInvalid:
            unpacked = None
        outside = {path for path in Path(folder).rglob("*") if not path.is_relative_to(into)}
        assert outside == {into.parent}
        assert not any(path.is_symlink() for path in into.rglob("*"))
        if unpacked is not None:
            assert all(into.joinpath(*parts).is_file() for parts in unpacked.files)


@fuzzed(
    text=damaged_text('Well: {"decision": "allow", "reason": "a {b} c"} ```', "<think>{</think>{}")
)
def test_scan_results(text: str) -> None:
    show_seed()
    found = parse_scan_result(text)
    assert found is None or found.decision in ("allow", "warn", "block")


# ---- MCP ---------------------------------------------------------------------------------------

MESSAGES = [
    b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a"}],"isError":false}}',
    b'{"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"no","data":{"a":[1]}}}',
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}',
    b"[" * 3000,
    b'{"a":' * 3000,
]


@fuzzed(line=damaged(MESSAGES))
def test_lines_of_mcp_servers(line: bytes) -> None:
    show_seed()
    found = parse_message(line)
    assert isinstance(found, Exception) or found.message.root.jsonrpc == "2.0"


CONTENT = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "?"]).flatmap(
    lambda kind: st.fixed_dictionaries(
        {"type": st.just(kind)},
        optional={
            "text": st.text(max_size=20),
            "data": st.text(max_size=20),
            "mimeType": st.sampled_from(["image/png", "a/b", ""]) | st.text(max_size=5),
            "name": st.text(max_size=5),
            "uri": st.sampled_from(["x://a", "", "\0"]),
            "resource": st.fixed_dictionaries(
                {"uri": st.just("x://a")}, optional={"text": st.text(), "blob": st.text()}
            ),
        },
    )
)


@fuzzed(
    content=st.lists(CONTENT, max_size=4), structured=st.none() | st.dictionaries(st.text(), JSON)
)
def test_results_of_mcp_tools(content: list[object], structured: object) -> None:
    show_seed()
    try:
        result = CallToolResult.model_validate(
            {"content": content, "structuredContent": structured}
        )
    except ValidationError:
        return
    assert result_text(result)


SERVER_KEYS = ("type", "transport", "command", "args", "env", "url", "headers", "oauth", "enabled")
SERVERS = st.dictionaries(
    st.sampled_from(SERVER_KEYS),
    JSON | st.sampled_from(["stdio", "http", "$A", "https://u:p@h/?key=s", ["--token=$B", "-c"]]),
)


@fuzzed(entry=SERVERS)
def test_entries_of_mcp_servers(entry: dict[str, Any]) -> None:
    show_seed()
    server_view(entry)
    try:
        parse_server(entry, {"A": "npx", "B": "secret"})
        told = ""
    except McpServerUnusable as error:
        told = error.user_message
    assert "\n" not in told


@fuzzed(
    args=st.lists(st.text(max_size=30) | st.sampled_from(["--token", "-k=***", "https://a:b@c"]))
)
def test_redacted_arguments_are_restored(args: list[str]) -> None:
    show_seed()
    assert restore_args("x", redact_args(args), args) == args
    for arg in args:
        redact_url(arg)
    try:
        check_launch("x", "npx", args, {arg: arg for arg in args}, ["npx"])
        told = ""
    except McpSettingsInvalid as error:
        told = error.user_message
    assert "\n" not in told


@fuzzed(names=st.lists(st.tuples(st.text(max_size=80), st.text(max_size=80)), max_size=5))
def test_names_of_mcp_tools(names: list[tuple[str, str]]) -> None:
    show_seed()
    allowed = set(string.ascii_letters + string.digits + "_-")
    for name in (*unique_names(names).values(), *(tool_name(*one) for one in names)):
        assert set(name) <= allowed
        assert len(name) <= MAX_CHARS


# ---- commands, paths, URLs ---------------------------------------------------------------------

COMMANDS = (
    "for f in $(ls | grep 'a b'); do cat \"$f\" >> out.txt 2>&1; done && rm -rf ~/x",
    "cat <<-'EOF' | bash -c \"$(printf '%s' `id`)\"\n\t$(rm -rf /)\nEOF\n",
    "diff <(sort a) >(tee b) || { echo ${x:-$((1 + (2)))}; } # end",
    "((((((" * 20 + "$($($($(" * 20 + "'" + '"`\\',
)


@fuzzed(text=damaged_text(*COMMANDS) | st.text(alphabet="$()`'\"\\<>|&;#{} \n\tab-"))
def test_commands(text: str) -> None:
    show_seed()
    with suppress(PathNotAllowed):
        check_host_paths(text, MountTable([]))


@fuzzed(path=damaged_text("/mnt/user-data/outputs/a.txt", "../../etc", "a//./b\\c") | st.text())
def test_paths(path: str) -> None:
    show_seed()
    try:
        normal = normalize_path(path)
    except PathNotAllowed:
        return
    assert normal.startswith("/")
    assert not {"..", ".", ""} & set(normal.split("/")[1:]) or normal == "/"


@fuzzed(
    url=damaged_text(
        "https://user@example.org:80/a?b#c", "http://[::1%25x]/", "https://ex\u00e4mple.org"
    )
)
def test_urls(url: str) -> None:
    show_seed()
    try:
        found = parse_url(url)
    except UrlNotAllowed:
        return
    assert found.scheme in ("http", "https")
    assert not found.userinfo


# ---- memory ------------------------------------------------------------------------------------

UPDATE = (
    '<think>x</think>```json\n{"user": {"workContext": {"summary": "a", "shouldUpdate": true}}, "history": {}, '
    '"newFacts": [{"content": "b", "category": "goal", "confidence": 1e400}], "factsToRemove": ["fact_1"]}\n```'
)


@fuzzed(text=damaged_text(UPDATE, "{" * 2000, '{"a":' * 2000))
def test_answers_of_the_memory_model(text: str) -> None:
    show_seed()
    parse_update(text)


@fuzzed(
    data=st.dictionaries(st.sampled_from(("user", "history", "facts", "lastUpdated")), JSON) | JSON
)
def test_memory_documents(data: object) -> None:
    show_seed()
    try:
        document = document_from_json(data)
    except MemoryInvalid:
        return
    stored = json.loads(json.dumps(document_to_json(document), allow_nan=False))
    assert document_from_json(stored) == document


@pytest.mark.parametrize("raw", [b"\xff\xfe", b'"' + b"a" * 100, b"1" * 5000])
def test_numbers_and_bytes_of_mcp_servers(raw: bytes) -> None:
    assert isinstance(parse_message(raw), Exception)
