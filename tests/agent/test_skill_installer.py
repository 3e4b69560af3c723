"""Installing, editing and scanning `.skill` archives. Rejected archives leave nothing behind."""

import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import anyio
import pytest
from blockbuster import blockbuster_ctx

from agent.config import AgentConfig
from agent.custom_agents import CustomAgent
from agent.errors import SkillBlocked, SkillExists, SkillInvalid, SkillWriteFailed
from agent.factory import open_agent_factory
from agent.services import AgentSetup
from agent.skills import archive
from agent.skills.installer import SkillInstaller
from agent.zip_limits import MAX_ENTRIES
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.test_skills import custom, prompt_of, put
from tests.fakes.model import ModelReply
from tests.fakes.scripted import ScriptedChatModel

MD = "---\nname: poems\ndescription: Writes poems.\n---\nFirst, breathe.\n"
ALLOW = '{"decision": "allow", "reason": "harmless"}'
NO_SCAN = {"skills": {"scan": "none"}}

Entry = tuple[str | zipfile.ZipInfo, str | bytes]


def packed(*entries: Entry, compression: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    """Return an archive. Entries may share a name."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as out:
        for name, content in entries:
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            info.compress_type = compression
            out.writestr(info, content)
    target.seek(0)
    return target


def special(name: str, mode: int) -> zipfile.ZipInfo:
    """Return an entry with a Unix mode."""
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def patched(archive_: io.BytesIO, old: bytes, new: bytes, count: int = -1) -> io.BytesIO:
    """Return the archive with some raw bytes replaced."""
    raw = archive_.getvalue()
    assert old in raw
    return io.BytesIO(raw.replace(old, new, count))


def encrypted() -> io.BytesIO:
    raw = bytearray(packed(("SKILL.md", MD)).getvalue())
    at = raw.index(b"PK\x01\x02")
    raw[at + 8] |= 1
    return io.BytesIO(bytes(raw))


def lying(declared: int) -> io.BytesIO:
    """Return an archive whose headers claim this unpacked size for a file."""
    made = packed(("SKILL.md", MD), ("big.txt", b"x" * 5000))
    sizes = struct.pack("<L", 5000)
    return patched(made, sizes, struct.pack("<L", declared))


def cut() -> io.BytesIO:
    whole = packed(("SKILL.md", MD), ("a.txt", os.urandom(4000))).getvalue()
    return io.BytesIO(whole[:1000] + whole[3000:])


def corrupt() -> io.BytesIO:
    made = packed(("SKILL.md", MD), ("a.txt", b"abcdefgh" * 9), compression=zipfile.ZIP_STORED)
    return patched(made, b"abcdefgh", b"abcdefgX", 1)


def many() -> io.BytesIO:
    return packed(("SKILL.md", MD), *((f"f{n}", "") for n in range(MAX_ENTRIES)))


def hidden_count() -> io.BytesIO:
    """Return an archive with this many entries whose end record says 1."""
    raw = bytearray(many().getvalue())
    at = raw.rindex(b"PK\x05\x06")
    raw[at + 8 : at + 12] = struct.pack("<HH", 1, 1)
    return io.BytesIO(bytes(raw))


LINK = stat.S_IFLNK | 0o777
SOUND: Entry = ("SKILL.md", MD)

ATTACKS: dict[str, Callable[[], IO[bytes]]] = {
    "parent": lambda: packed(SOUND, ("../evil.txt", "x")),
    "parent-inside": lambda: packed(SOUND, ("a/../../evil.txt", "x")),
    "parent-in-ignored": lambda: packed(SOUND, ("__MACOSX/../../evil.txt", "x")),
    "absolute": lambda: packed(SOUND, ("/etc/evil", "x")),
    "double-slash": lambda: packed(SOUND, ("a//b", "x")),
    "dot": lambda: packed(SOUND, ("./a", "x")),
    "drive": lambda: packed(SOUND, ("C:/evil.txt", "x")),
    "drive-relative": lambda: packed(SOUND, ("c:evil.txt", "x")),
    "backslash": lambda: packed(SOUND, ("..\\evil.txt", "x")),
    "unc": lambda: packed(SOUND, ("\\\\host\\share\\evil", "x")),
    "nul": lambda: patched(packed(SOUND, ("evilQ.txt", "x")), b"evilQ", b"evil\0"),
    "newline": lambda: packed(SOUND, ("a\nb", "x")),
    "override": lambda: packed(SOUND, ("a\u202egpj.exe", "x")),
    "empty-name": lambda: patched(packed(SOUND, ("Q", "x")), b"Q", b"/"),
    "long-part": lambda: packed(SOUND, ("x" * 256, "x")),
    "deep": lambda: packed(SOUND, ("/".join("d" * 17), "x")),
    "twice": lambda: patched(packed(SOUND, ("a1", "x"), ("a2", "y")), b"a2", b"a1"),
    "case": lambda: packed(SOUND, ("a/Read", "x"), ("A/read", "y")),
    "unicode": lambda: packed(SOUND, ("\u00e9", "x"), ("e\u0301", "y")),
    "file-and-folder": lambda: packed(SOUND, ("a", "x"), ("a/b", "y")),
    "fifo": lambda: packed(SOUND, (special("pipe", stat.S_IFIFO | 0o644), "")),
    "device": lambda: packed(SOUND, (special("sda", stat.S_IFBLK | 0o644), "")),
    "skill-is-a-link": lambda: packed((special("SKILL.md", LINK), "/etc/passwd")),
    "encrypted": encrypted,
    "bzip2": lambda: packed(SOUND, compression=zipfile.ZIP_BZIP2),
    "lzma": lambda: packed(SOUND, compression=zipfile.ZIP_LZMA),
    "says-less": lambda: lying(10),
    "says-more": lambda: lying(4_000_000_000),
    "cut": cut,
    "corrupt": corrupt,
    "no-zip": lambda: io.BytesIO(b"not a zip at all"),
    "empty-file": lambda: io.BytesIO(b""),
    "empty-zip": packed,
    "end-record-only": lambda: io.BytesIO(b"PK\x05\x06" + b"\xff" * 18),
    "entries": many,
    "entries-hidden": hidden_count,
    "no-skill": lambda: packed(("README.md", "x")),
    "wrong-case": lambda: packed(("poems/skill.md", MD)),
    "too-deep": lambda: packed(("a/b/SKILL.md", MD)),
    "two-tops": lambda: packed(("a/SKILL.md", MD), ("b/c.txt", "x")),
    "second": lambda: packed(SOUND, ("inner/SKILL.md", MD)),
    "second-case": lambda: packed(SOUND, ("inner/skill.MD", MD)),
    "only-hidden": lambda: packed((".poems/SKILL.md", MD)),
    "name-escapes": lambda: packed(("SKILL.md", MD.replace("poems", "../../poems", 1))),
    "name-slash": lambda: packed(("SKILL.md", MD.replace("poems", "a/b", 1))),
    "name-reserved": lambda: packed(("SKILL.md", MD.replace("poems", "install", 1))),
    "unknown-key": lambda: packed(("SKILL.md", MD.replace("---\nname", "---\nhooks: x\nname"))),
    "no-frontmatter": lambda: packed(("SKILL.md", "Just text")),
    "not-utf-8": lambda: packed(("SKILL.md", b"---\nname: \xff\n---\n")),
    "large-skill": lambda: packed(("SKILL.md", MD + "x" * 300_000)),
}


@asynccontextmanager
async def workshop(
    home: Path, *answers: str | ModelReply | Exception, scan: bool = False
) -> AsyncIterator[tuple[AgentHarness, SkillInstaller, ScriptedChatModel]]:
    model = ScriptedChatModel.playing(*answers)
    async with open_agent(home, model, None if scan else NO_SCAN) as agent:
        yield agent, agent.services.skill_installer, model


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def left_in(home: Path) -> list[str]:
    return list_of(custom(home))


def list_of(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


async def test_rejected_archives_leave_nothing(tmp_path: Path) -> None:
    assert len(ATTACKS) >= 20
    async with workshop(made(tmp_path / "home")) as (_agent, shop, _model):
        for name, attack in ATTACKS.items():
            with pytest.raises(SkillInvalid) as caught:
                await shop.install(attack(), "a.skill")
            said = caught.value.user_message
            assert str(tmp_path) not in said, name
            assert said.isprintable(), name
            assert left_in(tmp_path / "home") == [], name
        installed = await shop.install(packed(SOUND), "a.skill")
        assert installed.skill.name == "poems"
    assert list_of(tmp_path) == ["home"]


async def test_total_size_is_counted_while_unpacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 10_000)  # a number, not a function of ours
    async with workshop(tmp_path) as (_, shop, _m):
        bomb = packed(SOUND, ("a.txt", b"0" * 6000), ("b.txt", b"0" * 6000))
        with pytest.raises(SkillInvalid, match="unpacks to more"):
            await shop.install(bomb, "bomb.skill")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("filename", ["a.zip", "skill", "a.skill.txt", ""])
async def test_the_file_suffix_is_checked(tmp_path: Path, filename: str) -> None:
    with pytest.raises(SkillInvalid, match="must end with"):
        archive.unpack_skill(packed(SOUND), filename, tmp_path)


async def test_installed_skills_are_available_and_read_only(tmp_path: Path) -> None:
    made = packed(
        ("poems/", ""),
        ("poems/SKILL.md", MD),
        (special("poems/run.sh", stat.S_IFREG | 0o755), "#!/bin/sh\n"),
        ("poems/deep/er/a.txt", "x"),
        ("poems/.env", "SECRET=1"),
        ("__MACOSX/poems/._SKILL.md", "x"),
        (special("poems/link", LINK), "/etc/passwd"),
    )
    async with workshop(tmp_path, "ok") as (agent, shop, model):
        installed = await shop.install(made, "Poems.SKILL")
        assert installed.notes == ("links were ignored: poems/link",)
        await agent.say("hello")
        assert "<name>poems</name>" in prompt_of(model)
    folder = custom(tmp_path) / "poems"
    modes = {
        path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
    }
    assert modes == {
        ".": 0o755,
        "SKILL.md": 0o444,
        "run.sh": 0o555,
        "deep": 0o755,
        "deep/er": 0o755,
        "deep/er/a.txt": 0o444,
    }
    assert left_in(tmp_path) == [".history", "poems"]


async def test_concurrent_installations_install_once(tmp_path: Path) -> None:
    outcomes: list[str] = []

    async def install(shop: SkillInstaller) -> None:
        try:
            outcomes.append((await shop.install(packed(SOUND), "a.skill")).skill.name)
        except SkillExists:
            outcomes.append("exists")

    async with workshop(tmp_path) as (_, shop, _m):
        async with anyio.create_task_group() as tasks:
            for _n in range(5):
                tasks.start_soon(install, shop)
        assert sorted(outcomes) == ["exists"] * 4 + ["poems"]
        assert len(await shop.history("poems")) == 1
    assert left_in(tmp_path) == [".history", "poems"]


async def test_an_existing_skill_is_not_replaced(tmp_path: Path) -> None:
    put(custom(tmp_path) / "team" / "nested", "poems")
    (custom(tmp_path) / "prose").mkdir()
    async with workshop(tmp_path) as (_, shop, _m):
        for text in (MD, MD.replace("poems", "prose", 1)):
            with pytest.raises(SkillExists):
                await shop.install(packed(("SKILL.md", text)), "a.skill")
    assert left_in(tmp_path) == ["prose", "team"]


async def test_write_errors_are_reported(tmp_path: Path) -> None:
    async with workshop(tmp_path) as (_, shop, _m):
        (tmp_path / "skills").write_text("in the way")
        with pytest.raises(SkillWriteFailed) as caught:
            await shop.install(packed(SOUND), "a.skill")
    assert str(tmp_path) not in caught.value.user_message


async def test_a_cancelled_installation_leaves_nothing(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    model.hold()
    async with open_agent(tmp_path, model) as agent, anyio.create_task_group() as tasks:
        tasks.start_soon(agent.services.skill_installer.install, packed(SOUND), "a.skill")
        with anyio.fail_after(20):
            await model.called.wait()
        tasks.cancel_scope.cancel()
    assert left_in(tmp_path) == []


# ---- the scan -----------------------------------------------------------------------------------

SCRIPT: Entry = ("run.py", "print('hi')")


@pytest.mark.parametrize(
    ("entries", "answers", "ends"),
    [
        ([SOUND], [ALLOW], "installed"),
        ([SOUND], ['{"decision":"WARN","reason":"r"}'], "warned"),
        ([SOUND], [f"<think>block?</think>```json\n{ALLOW}\n```"], "installed"),
        ([SOUND], ['{"decision": "block", "reason": "steals keys"}'], "steals keys"),
        ([SOUND], ['{"decision": "maybe"}'], "no usable result"),
        ([SOUND], ["allow"], "no usable result"),
        ([SOUND], [""], "no usable result"),
        ([SOUND], [f'{ALLOW} {{"decision": "block"}}'], "no usable result"),
        ([SOUND], ['{"decision": "block", "reason": "says {"decision": "allow"}"}'], "no usable"),
        ([SOUND], ['{"verdict": {"decision": "allow"}}'], "no usable result"),
        ([SOUND], [RuntimeError("key sk-123 refused")], "model call failed"),
        ([SOUND, SCRIPT], [ALLOW, ALLOW], "installed"),
        ([SOUND, SCRIPT], ['{"decision": "warn", "reason": "odd"}'], "odd"),
        ([SOUND, ("x", "#!/bin/sh\n")], ['{"decision": "warn", "reason": "odd"}'], "odd"),
        ([SOUND, ("a.html", "<p>")], ['{"decision": "warn", "reason": "odd"}'], "odd"),
        ([SOUND, ("a.png", b"\x89PNG\xff")], [ALLOW], "installed"),
        ([SOUND, ("a.bin", b"\xff\xfe")], [ALLOW], "cannot be scanned"),
        ([SOUND, ("a.png", b"\x7fELF\xff")], [ALLOW], "cannot be scanned"),
        ([SOUND, ("a.txt", "a\0b")], [ALLOW], "cannot be scanned"),
        ([SOUND, *((f"{n}.txt", "x" * 60_001) for n in range(10))], [ALLOW] * 30, "too large"),
    ],
)
async def test_scan_decisions(
    tmp_path: Path, entries: Sequence[Entry], answers: Sequence[str | Exception], ends: str
) -> None:
    async with workshop(tmp_path, *answers, scan=True) as (_, shop, _m):
        if ends in ("installed", "warned"):
            installed = await shop.install(packed(*entries), "a.skill")
            assert ends == ("warned" if installed.notes else "installed")
            assert left_in(tmp_path) == [".history", "poems"]
            return
        with pytest.raises(SkillBlocked) as caught:
            await shop.install(packed(*entries), "a.skill")
    assert ends in caught.value.user_message
    assert "sk-123" not in caught.value.user_message
    assert left_in(tmp_path) == []


async def test_long_files_are_scanned_in_parts(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(12_000))
    async with workshop(tmp_path, *[ALLOW] * 5, scan=True) as (_, shop, model):
        await shop.install(packed(SOUND, ("long.txt", text)), "a.skill")
    shown = "".join(prompt[1].text for prompt in model.prompts)
    assert all(f"line {number}\n" in shown for number in (0, 5_999, 11_999))
    fences = {prompt[1].text.splitlines()[0].split()[0] for prompt in model.prompts}
    assert len(fences) == len(model.prompts)  # each has a new one, which the skill cannot know
    assert all(prompt[1].text.endswith(" end") for prompt in model.prompts)


async def test_the_demo_model_cannot_scan_skills(tmp_path: Path) -> None:
    config = AgentConfig.model_validate({"models": []})
    async with open_agent_factory(AgentSetup(config=config, home=tmp_path)) as agents:
        with pytest.raises(SkillBlocked, match=r"skills\.scan to none"):
            await agents.services.skill_installer.install(packed(SOUND), "a.skill")
    assert left_in(tmp_path) == []


# ---- editing ------------------------------------------------------------------------------------


def version(text: str) -> str:
    return MD.replace("First, breathe.", text)


async def test_edits_are_scanned_recorded_and_rolled_back(tmp_path: Path) -> None:
    block = '{"decision": "block", "reason": "no"}'
    answers = [ALLOW, ALLOW, block, ALLOW, ALLOW, block]
    async with workshop(tmp_path, *answers, scan=True) as (agent, shop, _):
        await shop.install(packed(SOUND), "a.skill")
        await shop.edit("poems", version("Two."))
        with pytest.raises(SkillBlocked):
            await shop.edit("poems", version("Evil."))
        assert (await shop.content("poems"))[1] == version("Two.")
        await shop.rollback("poems", 1)
        assert (await shop.content("poems"))[1] == MD
        await shop.delete("poems")
        assert (await agent.services.skills.load()).find("poems") is None
        await shop.rollback("poems", -1)
        assert (await shop.content("poems"))[1] == MD
        with pytest.raises(SkillBlocked):
            await shop.rollback("poems", 1)
        changes = await shop.history("poems")
    actions = ["install", "update", "rollback", "delete", "rollback"]
    assert [change.action for change in changes] == actions
    assert [change.decision for change in changes] == ["allow", "allow", "allow", None, "allow"]
    assert left_in(tmp_path) == [".history", "poems"]
    file = custom(tmp_path) / "poems" / "SKILL.md"
    assert stat.S_IMODE(file.stat().st_mode) == 0o444
    log = custom(tmp_path) / ".history" / "poems.jsonl"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert len([json.loads(line) for line in log.read_text().splitlines()]) == 5


@pytest.mark.parametrize(
    "content",
    [
        "",
        "text",
        MD.replace("poems", "prose", 1),
        MD.replace("name", "hooks: 1\nname", 1),
        "x" * 300_000,
    ],
    ids=["empty", "no frontmatter", "renamed", "unknown key", "large"],
)
async def test_invalid_edits_change_nothing(tmp_path: Path, content: str) -> None:
    put(custom(tmp_path) / "poems", "poems")
    before = (custom(tmp_path) / "poems" / "SKILL.md").read_text()
    async with workshop(tmp_path) as (_, shop, _m):
        with pytest.raises(SkillInvalid):
            await shop.edit("poems", content)
        assert (await shop.content("poems"))[1] == before


async def test_a_broken_skill_can_be_fixed(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "Wrong Name")
    async with workshop(tmp_path) as (agent, shop, _):
        skill, text = await shop.content("poems")
        assert skill.error is not None
        assert "Wrong Name" in text
        assert (await shop.edit("poems", MD)).error is None
        assert (await agent.services.skills.load()).find("poems") is not None


async def test_linked_skills_are_not_changed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "poems")
    custom(tmp_path).mkdir(parents=True)
    (custom(tmp_path) / "poems").symlink_to(tmp_path / "elsewhere")
    async with workshop(tmp_path) as (agent, shop, _):
        assert (await agent.services.skills.load()).find("poems") is not None
        with pytest.raises(SkillInvalid, match="is a link"):
            await shop.delete("poems")
        with pytest.raises(SkillInvalid, match="is a link"):
            await shop.edit("poems", MD)
    assert (tmp_path / "elsewhere" / "SKILL.md").exists()


async def test_nothing_blocks_the_loop(tmp_path: Path) -> None:
    async with workshop(tmp_path, *"123") as (agent, shop, _):
        with blockbuster_ctx(scanned_modules=["agent"]):
            await shop.install(packed(SOUND), "a.skill")
            await shop.edit("poems", version("Two."))
            await shop.rollback("poems", -1)
            await shop.content("poems")
            await agent.services.skills.set_enabled("poems", on=False)
            await agent.services.custom_agents.create(CustomAgent(name="poet", soul="Rhyme."))
            await agent.services.custom_agents.write_profile("We are many.")
            await agent.say("hello", agent_name="poet")
            await agent.services.custom_agents.update("poet", lambda old: old)
            assert len(await agent.services.custom_agents.list_agents()) == 1
            await agent.services.custom_agents.delete("poet")
            await shop.delete("poems")
            assert len(await shop.history("poems")) == 4
