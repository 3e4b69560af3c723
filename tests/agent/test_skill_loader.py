"""Parsing SKILL.md, and finding skill folders."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import SkillInvalid
from agent.skills import manifest
from agent.skills.loader import MAX_DEPTH, SkillLoader, SkillSnapshot, public_root
from agent.skills.manifest import ToolGrant
from agent.skills.prompt import select_skills, skills_section
from tests.agent.test_skills import put


def text(*lines: str, name: str = "poems", description: str = "Writes poems.") -> str:
    return "\n".join(["---", f"name: {name}", f"description: {description}", *lines, "---", "Body"])


SOUND = {
    "plain": text(),
    "windows": text().replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + text(),
    "no body": "---\nname: poems\ndescription: Writes poems.\n---",
    "space behind dashes": text().replace("---\n", "---  \n", 1),
    "quoted": text(name='"poems"', description="'Writes poems.'"),
    "folded": text(description=">-\n  Writes\n  poems."),
    "unknown keys": text("hooks: [a]", "extra: {b: 1}"),
    "dashes in the body": text() + "\n---\nmore\n---\n",
}


@pytest.mark.parametrize("content", SOUND.values(), ids=SOUND)
def test_name_and_description_are_read_from_the_frontmatter(content: str) -> None:
    said = manifest.parse_manifest(content)
    assert (said.name, said.description) == ("poems", "Writes poems.")
    assert (said.license, said.allowed_tools, said.only_tools) == (None, (), None)


def test_all_frontmatter_keys() -> None:
    lines = (
        *("license: MIT", "allowed-tools: [bash, read_file, bash]", "version: 1", "author: A"),
        "metadata: {a: b, version: 1.0, nested: {c: d}, parley-only-tools: Bash Write}",
        "compatibility: Requires git",
    )
    said = manifest.parse_manifest(text(*lines), strict=True)
    assert said.license == "MIT"
    assert said.compatibility == "Requires git"
    assert said.metadata[:2] == (("a", "b"), ("version", "1.0"))
    assert said.allowed_tools == (ToolGrant("bash"), ToolGrant("read_file"))
    assert said.only_tools == ("bash", "write_file")


def test_the_standards_example_is_read() -> None:
    """This is the example from the specification on agentskills.io."""
    lines = (
        *("license: Apache-2.0", "metadata:", "  author: example-org", '  version: "1.0"'),
        "allowed-tools: Bash(git:*) Bash(jq:*) Read",
    )
    said = manifest.parse_manifest(text(*lines, name="pdf-processing"), strict=True)
    assert said.metadata == (("author", "example-org"), ("version", "1.0"))
    assert said.allowed_tools == (
        ToolGrant("bash", "git:*"),
        ToolGrant("bash", "jq:*"),
        ToolGrant("read_file"),
    )


def test_an_unquoted_colon_in_a_description() -> None:
    said = manifest.parse_manifest(text(description='Use it for: poems, songs: all "kinds"'))
    assert said.description == 'Use it for: poems, songs: all "kinds"'


BROKEN = {
    "nothing": ("", "must start with YAML"),
    "no frontmatter": ("# Poems", "must start with YAML"),
    "not closed": ("---\nname: poems\n", "must start with YAML"),
    "not first": ("\n\n" + text(), "must start with YAML"),
    "a list": ("---\n- a\n---\n", "`key: value`"),
    "a text": ("---\nhello\n---\n", "`key: value`"),
    "empty": ("---\n\n---\n", "`key: value`"),
    "not yaml": (text("a: [b"), "is not valid YAML"),
    "a tag": (text("a: !!python/object:os.system {}"), "is not valid YAML"),
    "no such date": (text("version: 2024-13-45"), "is not valid YAML"),
    "deep": (text(f"a: {'[' * 16_000}"), "too deeply"),
    "deep lists": (text(f"a:\n  {'- ' * 8_000}b"), "too deeply"),
    "not closed inside": (text(f"a: {'[' * 9}"), "is not valid YAML"),
    "no name": ("---\ndescription: a\n---\n", "no `name`"),
    "no description": ("---\nname: poems\n---\n", "no `description`"),
    "null": (text(description="null"), "no `description`"),
    "no text": (text(description="[a]"), "must be a non-empty string"),
    "blank": (text(description='"  "'), "must be a non-empty string"),
    "long description": (text(description="x" * 1025), "more than 1024"),
    "angle brackets": (text(description="</skill_system> do"), "must not contain"),
    "long frontmatter": (text(f"author: {'x' * 20_000}"), "more than 16384"),
    "tools as a mapping": (text("allowed-tools: {bash: 1}"), "must be a list"),
    "no tools": (text("allowed-tools:"), "must be a list"),
    "an empty tool": (text('allowed-tools: [bash, " "]'), "other than tool names"),
    "long compatibility": (text(f"compatibility: {'x' * 501}"), "1 to 500"),
    "empty compatibility": (text('compatibility: ""'), "1 to 500"),
    "metadata as a list": (text("metadata: [a]"), "`metadata` must"),
    "a number as tool": (text("allowed-tools: [1]"), "other than tool names"),
}


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN)
def test_invalid_manifests(content: str, reason: str) -> None:
    with pytest.raises(SkillInvalid, match=reason):
        manifest.parse_manifest(content)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Poems",
            "a_b",
            "a b",
            "-a",
            "a-",
            "a--b",
            "ä",
            "a/b",
            "..",
            "../a",
            "x" * 65,
            "''",
            "12",
        ),
        *("custom", "install", "'a\\nb'", "[a]"),
    ],
)
def test_invalid_skill_names(name: str) -> None:
    with pytest.raises(SkillInvalid, match="`name`"):
        manifest.parse_manifest(text(name=name))


@given(st.text(max_size=300))
def test_any_text_parses_or_raises_skill_invalid(content: str) -> None:
    for source in (content, f"---\n{content}\n---\n", text(content)):
        try:
            said = manifest.parse_manifest(source)
        except SkillInvalid:
            continue
        assert manifest.is_name(said.name)
        assert not set("<>") & set(said.description)


# ---- folders ------------------------------------------------------------------------------------


def look(root: Path, **switches: bool) -> SkillSnapshot:
    public, custom = root / "public", root / "custom"
    catalog = SkillLoader(public=public, custom=custom, container_path="/mnt/skills/")
    return catalog.load(switches)


def test_folders_are_searched_recursively(tmp_path: Path) -> None:
    put(tmp_path / "public" / "poems", "poems")
    put(tmp_path / "public" / "group" / "inner" / "songs", "songs")
    put(tmp_path / "public" / "poems" / "inside", "hidden-inside")
    put(tmp_path / "custom" / ".dot", "dotted")
    put(tmp_path / "custom", "the-root-itself")
    put(tmp_path.joinpath("custom", *"abcdefg"), "too-deep")
    put(tmp_path / "elsewhere", "linked")
    (tmp_path / "custom" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "custom" / "round").symlink_to(tmp_path / "custom")
    (tmp_path / "custom" / "a-file").write_text("x")
    shelf = look(tmp_path)
    assert {skill.name: skill.location for skill in shelf.skills} == {
        "linked": "/mnt/skills/custom/link/SKILL.md",
        "poems": "/mnt/skills/public/poems/SKILL.md",
        "songs": "/mnt/skills/public/group/inner/songs/SKILL.md",
    }
    assert shelf.skills[0].folder == tmp_path / "elsewhere"
    assert len("abcdefg") > MAX_DEPTH


def test_a_custom_skill_hides_the_public_one_even_if_disabled(tmp_path: Path) -> None:
    put(tmp_path / "public" / "poems", "poems", description="Public.")
    put(tmp_path / "custom" / "poems", "poems", description="Own.")
    (only,) = look(tmp_path).enabled
    assert (only.description, only.category) == ("Own.", "custom")
    assert look(tmp_path, poems=False).enabled == ()
    put(tmp_path / "custom" / "poems", "Broken Name")
    assert [skill.description for skill in look(tmp_path).enabled] == ["Public."]


def test_broken_skills_are_listed_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    public = tmp_path / "public"
    put(public / "poems", "poems")
    put(public / "zwilling", "poems")
    (public / "lower").mkdir()
    (public / "lower" / "skill.md").write_text(text())
    (public / "folder" / "SKILL.md").mkdir(parents=True)
    (public / "latin").mkdir()
    (public / "latin" / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    (public / "large").mkdir()
    (public / "large" / "SKILL.md").write_text(text() + "x" * manifest.MAX_BYTES)
    put(public / "new\nline", "newline")
    catalog = SkillLoader(public=public, custom=tmp_path / "none", container_path="/mnt/skills")
    with caplog.at_level(logging.WARNING):
        shelf = catalog.load({})
        assert catalog.load({}) == shelf
    reasons = {skill.name: skill.error for skill in shelf.skills if skill.error}
    assert reasons == {
        "folder": "SKILL.md is not a regular file",
        "large": "SKILL.md is larger than 256 KB",
        "latin": "SKILL.md is not UTF-8",
        "lower": "there is no file named exactly SKILL.md",
        "new\nline": "the folder name contains unprintable characters",
        "poems": "the name is already used by /mnt/skills/public/poems",
    }
    assert [skill.name for skill in shelf.enabled] == ["poems"]
    assert shelf.find("poems") == shelf.enabled[0]
    assert len(caplog.records) == 6


def test_skill_texts_are_escaped_in_the_prompt(tmp_path: Path) -> None:
    put(tmp_path / "public" / "a<b>&", "poems", description="Poems & more")
    section = skills_section(look(tmp_path).enabled)
    assert "<location>/mnt/skills/public/a&lt;b&gt;&amp;/SKILL.md</location>" in section
    assert "Poems &amp; more" in section
    assert skills_section(()) == ""


def test_skills_are_selected_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path / "public" / name, name)
    shelf = look(tmp_path)
    assert [skill.name for skill in select_skills(shelf.enabled, None)] == ["a", "b"]
    assert [skill.name for skill in select_skills(shelf.enabled, ["b", "none"])] == ["b"]
    assert select_skills(shelf.enabled, []) == ()


def test_public_skills_root(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (there / "skills" / "public").mkdir(parents=True)
    assert public_root("skills", [here, there]) == there / "skills" / "public"
    (here / "skills" / "public").mkdir(parents=True)
    assert public_root("skills", [here, there]) == here / "skills" / "public"
    assert public_root(str(tmp_path), [here, there]) == tmp_path / "public"
