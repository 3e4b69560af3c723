"""The public skills are valid and found, and their scripts work."""

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from agent.paths import OUTPUTS, SKILLS
from agent.skills.loader import SkillLoader, public_root
from agent.skills.manifest import parse_manifest
from agent.skills.registry import INSTALLATION
from agent.skills.scanner import SkillFile, _classify
from tests.agent.agent_harness import open_agent
from tests.agent.test_bubblewrap import needs_bubblewrap
from tests.agent.test_skills import call, prompt_of, put
from tests.fakes.model import ModelReply
from tests.fakes.scripted import ScriptedChatModel

PUBLIC = INSTALLATION / "skills" / "public"
NAMES = ["data-report", "deep-research", "meeting-notes"]

SALES = """region;day;amount
north;2024-01-01;1.200,50
south;2024-01-02;800,00
north;2024-01-03;99,50
south;2024-01-03;
south;2024-01-03;
"""

CAPTIONS = """WEBVTT

1
00:00:01.000 --> 00:00:03.000
<v Ana>Shall we ship on Friday?</v>

2
00:00:03.000 --> 00:00:05.000
<v Bo>Yes &amp; I test</v>

3
00:00:05.000 --> 00:00:06.000
<v Bo>it before.</v>
"""


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    # -I: as in the sandbox, nothing of this program can be imported.
    command = [sys.executable, "-I", str(PUBLIC / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def words_of(picture: Path) -> str:
    root = ET.parse(picture).getroot()  # noqa: S314 - our own script wrote it
    return "".join(root.itertext())


def test_public_skills_pass_the_installer(tmp_path: Path) -> None:
    root = public_root("skills", [tmp_path, INSTALLATION])
    shelf = SkillLoader(public=root, custom=tmp_path, container_path=SKILLS).load({})
    assert [skill.name for skill in shelf.enabled] == NAMES
    assert shelf.enabled == shelf.skills
    for skill in shelf.skills:
        assert (
            parse_manifest((skill.folder / "SKILL.md").read_text(), strict=True).name == skill.name
        )
        assert (skill.allowed_tools, skill.only_tools) == ((), None)
        files = [path for path in skill.folder.rglob("*") if path.is_file()]
        _classify([SkillFile.from_bytes(path.name, path.read_bytes()) for path in files])


async def test_public_skills_are_found_from_any_working_folder(tmp_path: Path) -> None:
    location = f"{SKILLS}/public/deep-research/SKILL.md"
    read = ModelReply(calls=(call("read_file", {"path": location}),))
    model = ScriptedChatModel.playing(read, "ok")
    async with open_agent(tmp_path, model) as agent:
        said = await agent.say("research this")
    for name in NAMES:
        assert f"<name>{name}</name>" in prompt_of(model)
    assert "Research with sources" in said[2].text


@needs_bubblewrap
@pytest.mark.skipif(
    shutil.which("python3", path="/usr/bin:/bin") is None,
    reason="python3 is not in the system's folders",
)
async def test_scripts_run_in_the_sandbox_without_changing_skills(tmp_path: Path) -> None:
    installed = put(tmp_path / "skills" / "custom" / "poems", "poems")
    installed.chmod(0o444)
    command = (
        "printf 'a,b\\n1,2\\n3,4\\n' > t.csv; "
        f"python3 {SKILLS}/public/data-report/scripts/report.py t.csv --out {OUTPUTS}/report; "
        f"head -n 2 {SKILLS}/custom/poems/SKILL.md; "
        f"echo evil >> {SKILLS}/custom/poems/SKILL.md; rm -rf {SKILLS}/custom/poems; ls {SKILLS}/*"
    )
    run = ModelReply(calls=(call("bash", {"command": command}),))
    model = ScriptedChatModel.playing(run, "ok")
    config = {"sandbox": {"use": "bubblewrap"}}
    async with open_agent(tmp_path, model, config) as agent:
        await agent.services.skills.set_enabled("deep-research", on=False)
        answer = (await agent.say("a report"))[2].text
        report = agent.folders().outputs / "report" / "report.md"
        assert report.read_text().startswith("# t\n\n2 rows, 2 columns.")
    assert "name: poems" in answer
    assert "deep-research" not in answer
    assert "meeting-notes" in answer
    assert "evil" not in installed.read_text()


def test_a_table_becomes_a_report_with_groups(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text(SALES)
    done = script(
        *("data-report/scripts/report.py", tmp_path / "sales.csv", "--out", tmp_path / "out"),
        *("--by", "Region", "--value", "amount"),
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "report.md").read_text()
    assert done.stdout == text
    assert "5 rows, 3 columns." in text
    assert "| north | 1,300 | 61.9% |" in text
    assert "| south | 800 | 38.1% |" in text
    assert "Rows that repeat another row exactly: 1." in text
    assert "`amount`: 2 of 5 cells are empty." in text
    assert words_of(tmp_path / "out" / "chart-groups.svg").count("north") == 1


def test_a_table_without_groups_shows_distributions(tmp_path: Path) -> None:
    rows = [f"{n},{'ab'[n % 2]},<x&{n % 3}>" for n in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["n,kind,odd|name", *rows, "9000,a,<x&1>"]))
    done = script("data-report/scripts/report.py", tmp_path / "t.csv", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "far from the others, for example 9,000." in done.stdout
    assert "odd\\|name" in done.stdout
    drawn = sorted(path.name for path in (tmp_path / "out").glob("*.svg"))
    assert drawn == ["chart-1.svg", "chart-2.svg", "chart-3.svg"]
    for name in drawn:
        assert words_of(tmp_path / "out" / name)


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("", [], "no rows"),
        ("a,b\n", [], "no rows"),
        ("a,b\n1,2\n", ["--by", "c"], "available: a, b"),
        (None, [], "There is no file"),
    ],
    ids=["empty", "header", "column", "missing"],
)
def test_invalid_tables(
    tmp_path: Path, content: str | None, arguments: list[str], said: str
) -> None:
    if content is not None:
        (tmp_path / "t.csv").write_text(content)
    done = script("data-report/scripts/report.py", tmp_path / "t.csv", *arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_captions_become_a_transcript(tmp_path: Path) -> None:
    (tmp_path / "call.vtt").write_text(CAPTIONS)
    done = script("meeting-notes/scripts/transcript.py", tmp_path / "call.vtt")
    assert done.stdout.splitlines() == [
        "Speakers",
        "Bo: 55% of the words, turns: 1",
        "Ana: 45% of the words, turns: 1",
        "",
        "Ana: Shall we ship on Friday?",
        "Bo: Yes & I test it before.",
    ]


def test_notes_without_speakers_are_unchanged(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(
        "[00:01] We ship.\n[00:02] We ship.\n12\n10:30 - Ana: Good.\n"
    )
    done = script("meeting-notes/scripts/transcript.py", tmp_path / "notes.txt")
    assert done.stdout.endswith("\n\nWe ship.\nAna: Good.\n")
    (tmp_path / "notes.txt").write_text("WEBVTT\n\n")
    assert script("meeting-notes/scripts/transcript.py", tmp_path / "notes.txt").returncode != 0
