"""The documents on disk are complete, private, moved aside when invalid, and never mixed between scopes."""

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import MemoryInvalid, MemoryUnavailable
from agent.memory.schema import EMPTY_DOCUMENT, MemoryDocument, MemoryFact
from agent.memory.scope import DEFAULT, MemoryScope, memory_scope
from agent.memory.store import LOCK, MemoryStore

ANN = MemoryScope(scope="person:slack:T1:U1")


def with_fact(content: str) -> MemoryDocument:
    return MemoryDocument(last_number=1, facts=(MemoryFact(id="f1", content=content, number=1),))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_document_is_private_and_whole(tmp_path: Path) -> None:
    files = MemoryStore(tmp_path / "memory")
    assert files.read(ANN) == EMPTY_DOCUMENT
    assert not (tmp_path / "memory").exists()
    files.update(ANN, lambda _: with_fact("喜欢茶"))
    files.update(replace(ANN, agent="writer"), lambda _: with_fact("writes"))
    folder = tmp_path / "memory" / ANN.folder
    assert {path.name for path in folder.iterdir()} == {"memory.json", "scope", "agents"}
    assert mode(tmp_path / "memory") == mode(folder) == mode(folder / "agents") == 0o700
    assert mode(folder / "memory.json") == mode(folder / "scope") == 0o600
    assert "喜欢茶" in (folder / "memory.json").read_text("utf-8")
    assert MemoryStore(tmp_path / "memory").read(ANN) == with_fact("喜欢茶")
    assert [fact.content for fact in files.read(replace(ANN, agent="writer")).facts] == ["writes"]


def test_a_change_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    files = MemoryStore(tmp_path / "memory")
    assert files.update(ANN, lambda present: present) == EMPTY_DOCUMENT
    with pytest.raises(ZeroDivisionError):
        files.update(ANN, lambda _: 1 // 0)  # type: ignore[arg-type, return-value]
    assert [path.name for path in (tmp_path / "memory").iterdir()] == [LOCK]


_ADD = """
import sys
from dataclasses import replace
from pathlib import Path
from agent.memory.schema import MemoryFact
from agent.memory.scope import MemoryScope
from agent.memory.store import LOCK, MemoryStore
store, scope = MemoryStore(Path(sys.argv[1])), MemoryScope(scope="person:slack:T1:U1")
print("ready", flush=True)
sys.stdin.read()
for number in range(100):
    fact = MemoryFact(id=f"{sys.argv[2]}-{number}", content=f"fact {number}")
    store.update(scope, lambda present: replace(present, facts=(*present.facts, fact)))
"""


def test_processes_that_learn_at_once_lose_nothing(tmp_path: Path) -> None:
    def learn(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _ADD, str(tmp_path), name]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with learn("a") as first, learn("b") as second:
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.close()
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(MemoryStore(tmp_path).read(ANN).facts) == 200


def test_a_file_changed_by_hand_is_read_again(tmp_path: Path) -> None:
    files = MemoryStore(tmp_path)
    files.update(ANN, lambda _: with_fact("old"))
    path = tmp_path / ANN.folder / "memory.json"
    before = path.stat()
    path.write_text(json.dumps({"facts": [{"id": "f1", "content": "new"}]}))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert files.read(ANN).facts[0].content == "new"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"facts": 1}', b"\xff\xfe", b"[" * 100_000], ids=range(6)
)
def test_a_broken_file_is_kept_aside_before_anything_is_written(tmp_path: Path, raw: bytes) -> None:
    files = MemoryStore(tmp_path)
    files.update(ANN, lambda _: with_fact("lost"))
    folder = tmp_path / ANN.folder
    (folder / "memory.json").write_bytes(raw)
    assert files.update(ANN, lambda _: with_fact("new")) == with_fact("new")
    (aside,) = folder.glob("*.unreadable")
    assert aside.read_bytes() == raw
    assert files.read(ANN) == with_fact("new")


def test_a_broken_file_is_kept_aside_also_by_reading_and_only_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryStore(tmp_path)
    files.update(ANN, lambda _: with_fact("lost"))
    (tmp_path / ANN.folder / "memory.json").write_text("{")
    with caplog.at_level(logging.ERROR):
        assert files.read(ANN) == files.read(ANN) == EMPTY_DOCUMENT
    assert len(caplog.records) == 1
    assert len(list((tmp_path / ANN.folder).glob("*.unreadable"))) == 1


def test_a_failed_write_is_reported_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("a file where the folder should be")
    files = MemoryStore(tmp_path / "memory")
    with pytest.raises(MemoryUnavailable) as caught:
        files.update(ANN, lambda _: with_fact("x"))
    assert str(tmp_path) not in caught.value.user_message


def test_forgetting_a_scope_leaves_nothing_of_it(tmp_path: Path) -> None:
    files = MemoryStore(tmp_path)
    for where in (ANN, replace(ANN, agent="writer"), MemoryScope(scope="room:x")):
        files.update(where, lambda _: with_fact("x"))
    (tmp_path / ANN.folder / "memory.json").write_text("{")
    files.read(ANN)
    files.delete(replace(ANN, agent="nobody"))
    files.delete(ANN)
    assert not (tmp_path / ANN.folder).exists()
    assert files.read(replace(ANN, agent="writer")) == EMPTY_DOCUMENT
    assert files.read(MemoryScope(scope="room:x")) == with_fact("x")
    names = [path.name for path in tmp_path.iterdir()]
    assert not [name for name in names if "u1" in name]


def test_agents_of_a_scope_share_the_numbers(tmp_path: Path) -> None:
    """Otherwise, `/forget 1` after `/agent writer` could delete a fact that the list did not show."""
    files = MemoryStore(tmp_path / "memory")
    writer = replace(ANN, agent="writer")

    def add(scope: MemoryScope, fact_id: str) -> int:
        fact = MemoryFact(id=fact_id, content=fact_id)
        made = files.update(scope, lambda known: replace(known, facts=(*known.facts, fact)))
        return made.facts[-1].number

    assert [add(ANN, "a"), add(writer, "b"), add(ANN, "c"), add(writer, "d")] == [1, 2, 3, 4]
    files.delete(writer)
    assert [add(ANN, "e"), add(writer, "f")] == [5, 6]
    files.delete(ANN)
    assert [add(writer, "g"), add(ANN, "h")] == [7, 8]
    assert [add(replace(ANN, scope="room:slack:T1:C1"), "i")] == [1]


def test_a_number_is_never_given_to_another_fact(tmp_path: Path) -> None:
    def learned(document: MemoryDocument) -> MemoryDocument:
        fact = MemoryFact(id=f"f{next(ids)}", content="x")
        return replace(document, facts=(*document.facts, fact))

    def last_forgotten(document: MemoryDocument) -> MemoryDocument:
        return replace(document, facts=document.facts[:-1])

    ids = count()
    files = MemoryStore(tmp_path)

    def numbers() -> list[int]:
        return [fact.number for fact in files.read(ANN).facts]

    for change in (learned, learned, learned, last_forgotten, learned):
        files.update(ANN, change)
    assert numbers() == [1, 2, 4]
    files.delete(ANN)
    files = MemoryStore(tmp_path)
    files.update(ANN, learned)
    assert numbers() == [5]
    exported = MemoryDocument(facts=(MemoryFact(id="other", content="x", number=5),))
    files.update(ANN, lambda _: exported)
    assert numbers() == [6]
    assert [info.scope for info in files.list_scopes()] == [ANN.scope]
    files.delete(ANN)


def test_scopes_are_listed_by_name(tmp_path: Path) -> None:
    files = MemoryStore(tmp_path)
    assert files.list_scopes() == []
    files.update(ANN, lambda _: with_fact("x"))
    files.update(MemoryScope(scope="你好/..", agent="a"), lambda _: with_fact("y"))
    (tmp_path / "stray").mkdir()
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "scope").write_text("person:other")
    listed = [(info.scope, info.agents, info.facts) for info in files.list_scopes()]
    assert listed == [(ANN.scope, (), 1), ("你好/..", ("a",), 0)]


# ---- scopes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "agent"),
    [
        ("x" * 513, None),
        ("a\nb", None),
        ("a\0", None),
        ("   ", None),
        ("\ud800", None),
        ("ok", "../x"),
        ("ok", "a/b"),
        ("ok", "x" * 65),
        ("ok", "\u212aate"),  # the Kelvin sign, which is a `k` in lower case
    ],
)
def test_invalid_scopes_are_refused(scope: str, agent: str | None) -> None:
    with pytest.raises(MemoryInvalid):
        memory_scope(scope, agent)


def test_without_a_scope_it_is_the_default() -> None:
    assert memory_scope(None, None) == memory_scope("", "") == MemoryScope()
    assert memory_scope().folder == DEFAULT
    assert memory_scope("x", "Writer") == memory_scope("x", "writer")


scope_texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)


@given(scope_texts, scope_texts)
def test_two_scopes_never_share_a_folder(one: str, other: str) -> None:
    if not one.strip() or not other.strip() or one == other:
        return
    assert memory_scope(one).folder != memory_scope(other).folder


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a:b", "a-b"),
        ("A:b", "a:b"),
        ("é", "e\u0301"),
        ("а", "a"),  # Cyrillic and Latin letters
        ("a ", "a"),
        ("default", "Default"),
        (memory_scope("person:x").folder, "person:x"),
        ("default", "default/"),
    ],
)
def test_look_alikes_are_different(one: str, other: str) -> None:
    assert memory_scope(one).folder.casefold() != memory_scope(other).folder.casefold()


@given(scope_texts)
def test_a_folder_is_one_plain_name(scope: str) -> None:
    if scope.strip():
        folder = memory_scope(scope).folder
        assert Path(folder).name == folder
        assert folder.isascii()
        assert len(folder) <= 100
        assert not folder.startswith((".", "-"))
