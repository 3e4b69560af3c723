"""The file tools as the model calls them: arguments in, text out."""

import codecs
import logging
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command

from agent.config import ToolConfig
from agent.errors import ObjectNotImportable
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE, Mount
from agent.sandbox.edits import MAX_DIFF_CHARS
from agent.sandbox.local import LocalSandboxProvider
from agent.thread_storage import ThreadStorage
from agent.tools.files import number_lines
from agent.tools.registry import built_in_tools, configured_tools, deduplicate_tools
from agent.tools.results import ToolLimits
from tests.agent.test_document_conversion import docx, pdf

THREAD = "t-1"


class FileToolsHarness:
    """The built-in tools over one data folder, called as the graph calls them."""

    def __init__(
        self,
        home: Path,
        limits: ToolLimits | None = None,
        *,
        sees: bool = False,
        sandboxes: LocalSandboxProvider | None = None,
    ) -> None:
        self.home = home
        self.folders = ThreadStorage(home).folders(THREAD)
        storage = ThreadStorage(home)
        tools = built_in_tools(
            sandboxes or LocalSandboxProvider(storage),
            limits or ToolLimits(),
            images=storage if sees else None,
        )
        self.tools = {tool.name: tool for tool in tools}

    async def raw(
        self, name: str, arguments: Mapping[str, object], *, thread: str | None = THREAD
    ) -> object:
        runtime: ToolRuntime[None, dict[str, Any]] = ToolRuntime(
            state={},
            context=None,
            config={"configurable": {"thread_id": thread}},
            stream_writer=lambda _: None,
            tool_call_id="call-1",
            store=None,
        )
        chosen = self.tools[name]
        assert isinstance(chosen, StructuredTool)
        assert chosen.coroutine is not None
        answer: object = await chosen.coroutine(runtime=runtime, **arguments)
        return answer

    async def present(self, *paths: str) -> ToolMessage | Command[None]:
        answer = await self.raw("present_files", {"filepaths": list(paths)})
        assert isinstance(answer, ToolMessage | Command)
        return answer

    async def text(self, name: str, **arguments: object) -> str:
        answer = await self.raw(name, arguments)
        assert isinstance(answer, str)
        assert str(self.home) not in answer
        return answer


@pytest.fixture
def bench(tmp_path: Path) -> FileToolsHarness:
    return FileToolsHarness(tmp_path)


async def test_line_numbers_count_in_the_limit_of_a_result(bench: FileToolsHarness) -> None:
    await bench.raw("write_file", {"path": "short.txt", "content": "x\n" * 30_000})
    shown = await bench.text("read_file", path="short.txt")
    page, _, note = shown.rpartition("\n... [")
    assert len(page) <= 50_000
    end = int(note.rpartition("offset=")[2].rstrip("]"))
    assert page.count("\n") + 1 == end // 2
    following = await bench.text("read_file", path="short.txt", offset=end)
    assert following.startswith(f"{end // 2 + 1}\tx\n")


async def test_a_file_is_written_read_changed_and_listed(bench: FileToolsHarness) -> None:
    path = f"{WORKSPACE}/notes/a.txt"
    assert await bench.text("write_file", path=path, content="one\ntwo\nthree\n") == "OK"
    changed = await bench.text("str_replace", path=path, old_str="two", new_str="2")
    assert changed == "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    assert await bench.text("write_file", path=path, content="four", append=True) == "OK"
    assert await bench.text("read_file", path=path) == "1\tone\n2\t2\n3\tthree\n4\tfour"
    assert await bench.text("ls", path=WORKSPACE) == f"{WORKSPACE}/notes/\n{path}"
    assert await bench.text("ls", path=UPLOADS) == "(empty)"
    assert await bench.text("glob", path=WORKSPACE, pattern="*.txt") == path
    assert await bench.text("grep", path=WORKSPACE, pattern="THREE") == f"{path}:3: three"
    assert await bench.text("grep", path=WORKSPACE, pattern="none") == "(no matches)"


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (2, 3, "2\tb\n3\tc\n[lines 2 to 3 of 4]"),
        (2, None, "2\tb\n3\tc\n4\td\n[lines 2 to 4 of 4]"),
        (None, 2, "1\ta\n2\tb\n[lines 1 to 2 of 4]"),
        (0, 1, "1\ta\n[lines 1 to 1 of 4]"),
        (4, 9, "4\td\n[lines 4 to 4 of 4]"),
        (9, None, "(empty)\n[there are 4 lines]"),
        (3, 2, "(empty)\n[there are 4 lines]"),
        (None, -1, "(empty)\n[there are 4 lines]"),
        (None, None, "1\ta\n2\tb\n3\tc\n4\td"),
    ],
)
async def test_ranges_of_lines(
    bench: FileToolsHarness, start: int | None, end: int | None, text: str
) -> None:
    await bench.text("write_file", path="a", content="a\nb\nc\nd")
    assert await bench.text("read_file", path="a", start_line=start, end_line=end) == text


async def test_an_empty_file_reads_as_empty(bench: FileToolsHarness) -> None:
    await bench.text("write_file", path="a", content="")
    assert await bench.text("read_file", path="a") == "(empty)"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "/etc/passwd"}),
        ("read_file", {"path": "../../x"}),
        ("read_file", {"path": "none"}),
        ("read_file", {"path": "/mnt/user-data"}),
        ("write_file", {"path": "/mnt/skills/x", "content": "x"}),
        ("str_replace", {"path": "none", "old_str": "", "new_str": ""}),
        ("glob", {"path": "/etc", "pattern": "*"}),
        ("read_file", {"path": "none.pdf"}),
        ("read_file", {"path": "none.png"}),
        ("grep", {"path": WORKSPACE, "pattern": "["}),
    ],
)
async def test_errors_are_texts(
    bench: FileToolsHarness, name: str, arguments: dict[str, str]
) -> None:
    assert (await bench.text(name, **arguments)).startswith("Error: ")


async def test_missing_and_invalid_thread_ids_are_reported(bench: FileToolsHarness) -> None:
    without = await bench.raw("ls", {"path": WORKSPACE}, thread=None)
    assert str(without).startswith("Error: Thread ID is required")
    bad = await bench.raw("ls", {"path": WORKSPACE}, thread="../x")
    assert str(bad).startswith("Error: A thread id")


async def test_a_write_that_is_too_large_changes_nothing(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path, ToolLimits(write_bytes=10))
    assert await bench.text("write_file", path="a", content="ä" * 5) == "OK"
    answer = await bench.text("write_file", path="a", content="ä" * 6)
    assert answer.startswith("Error: the content has 12 bytes")
    assert "append" in answer
    assert await bench.text("read_file", path="a") == "1\t" + "ä" * 5
    assert await bench.text("write_file", path="a", content="x" * 50, append=True) == "OK"
    free = FileToolsHarness(tmp_path, ToolLimits(write_bytes=0))
    assert await free.text("write_file", path="a", content="x" * 100_000) == "OK"


def numbered(first: int, end: int) -> str:
    """Return the lines of the file of `test_long_files_are_read_on` as read_file shows them."""
    return "\n".join(f"{n + 1}\tline {n}" for n in range(first, end))


async def test_long_files_are_read_on(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path, ToolLimits(reading_chars=300))
    content = "".join(f"line {n}\n" for n in range(100))
    await bench.text("write_file", path="a.txt", content=content)
    first = await bench.text("read_file", path="a.txt")
    assert first == f"{numbered(0, 28)}\n... [characters 0 to 214 of 790; continue with offset=214]"
    assert (await bench.text("read_file", path="a.txt", offset=214)).startswith("29\tline 28\n")
    assert await bench.text("read_file", path="a.txt", offset=598) == numbered(76, 100)
    lines = await bench.text("read_file", path="a.txt", start_line=11, end_line=60, offset=296)
    assert lines == f"{numbered(47, 60)}\n[lines 11 to 60 of 100]"
    assert "there are 790 characters" in await bench.text("read_file", path="a.txt", offset=791)


async def test_a_line_that_is_longer_than_the_limit_is_read_in_parts(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path, ToolLimits(reading_chars=10))
    await bench.text("write_file", path="a.json", content="short\n" + "0123456789" * 2)
    note = "... [characters {} of 26; continue with offset={}]"
    assert await bench.text("read_file", path="a.json") == f"1\tshort\n{note.format('0 to 6', 6)}"
    part = await bench.text("read_file", path="a.json", offset=6)
    assert part == f"2\t01234567\n{note.format('6 to 14', 14)}"
    assert await bench.text("read_file", path="a.json", offset=18) == "2\t23456789"


async def test_the_start_of_a_long_markdown_file_comes_with_its_headings(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path, ToolLimits(reading_chars=40))
    text = "# One\n" + "word " * 20 + "\n## Two\nend"
    await bench.text("write_file", path="a.md", content=text)
    first = await bench.text("read_file", path="a.md")
    assert first.endswith("offset=36]\n[4 lines; headings:]\nL1: One\nL3: Two")
    assert "headings" not in await bench.text("read_file", path="a.md", offset=40)
    await bench.text("write_file", path="short.md", content="# One\nend")
    assert await bench.text("read_file", path="short.md") == "1\t# One\n2\tend"


async def test_listings_say_when_there_is_more(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path)
    for n in range(3):
        await bench.text("write_file", path=f"file{n}.txt", content="y")
    found = await bench.text("glob", path=WORKSPACE, pattern="*", max_results=2)
    assert found.count("\n") == 2
    assert "there is more" in found


async def test_several_edits_are_made_together_or_not_at_all(bench: FileToolsHarness) -> None:
    before = "".join(f"line {n}\n" for n in range(1, 31))
    await bench.text("write_file", path="a.txt", content=before)
    edits = [
        {"old_str": "line 2\n", "new_str": "second\n"},
        {"old_str": "line 29", "new_str": "last but one"},
        {"old_str": "second\nline 3", "new_str": "both"},
    ]
    wrong = {"old_str": "line 1", "new_str": "x"}
    refused = await bench.text("str_replace", path="a.txt", edits=[*edits, wrong])
    assert refused.startswith("Error: edit 4: the text to replace occurs 11 times")
    assert "Nothing was changed" in refused
    assert await bench.text("read_file", path="a.txt") == number_lines(before, 1)
    assert await bench.text("str_replace", path="a.txt", edits=edits) == (
        "@@ -1,6 +1,5 @@\n line 1\n-line 2\n-line 3\n+both\n line 4\n line 5\n line 6\n"
        "@@ -26,5 +25,5 @@\n line 26\n line 27\n line 28\n-line 29\n+last but one\n line 30"
    )
    everywhere = {"old_str": "line", "new_str": "row", "replace_all": True}
    assert "+row 30" in await bench.text("str_replace", path="a.txt", edits=[everywhere])
    nothing = await bench.text("str_replace", path="a.txt", old_str="x")
    assert nothing == "Error: give old_str and new_str, or edits. Nothing was changed"


async def test_the_diff_of_an_edit_is_bounded(bench: FileToolsHarness) -> None:
    content = "".join(f"line {n}\n" for n in range(100_000))
    await bench.text("write_file", path="a.txt", content=content[:80_000])
    await bench.text("write_file", path="a.txt", content=content[80_000:], append=True)
    one = await bench.text("str_replace", path="a.txt", old_str="line 70000\n", new_str="x\n")
    assert "@@ -69998,7 +69998,7 @@\n line 69997\n" in one
    everywhere = {"old_str": "line", "new_str": "row", "replace_all": True}
    wide = await bench.text("str_replace", path="a.txt", **everywhere)
    assert wide == "[lines 1 to 100000 contain the changes: too many to show]"
    await bench.text("write_file", path="b.txt", content="".join(f"line {n}\n" for n in range(900)))
    long = await bench.text("str_replace", path="b.txt", **everywhere)
    assert len(long) <= MAX_DIFF_CHARS + 100
    assert long.endswith("more lines of the diff]")


async def test_a_pdf_is_read_by_pages(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path, ToolLimits(reading_chars=2_000))
    bench.folders.uploads.mkdir(parents=True)
    (bench.folders.uploads / "a.pdf").write_bytes(pdf(*(f"Text of page {n}" for n in range(1, 26))))
    path = f"{UPLOADS}/a.pdf"
    some = await bench.text("read_file", path=path, pages="3-4")
    assert some == (
        "## Page 3\n\nText of page 3\n\n## Page 4\n\nText of page 4\n\n"
        '[pages 3 to 4 of 25; continue with pages="5-6"]'
    )
    whole = await bench.text("read_file", path=path)
    assert "Text of page 20\n" in whole
    assert whole.endswith('[pages 1 to 20 of 25; continue with pages="21-25"]')
    last = await bench.text("read_file", path=path, pages="21 - 30")
    assert last.endswith("Text of page 25\n\n[pages 21 to 25 of 25]")
    assert "the document has only 25 pages" in await bench.text("read_file", path=path, pages="26")
    for wrong in ("0", "5-4", "1-21", "all"):
        refused = await bench.text("read_file", path=path, pages=wrong)
        assert refused == "Error: pages must be like 3 or 1-5, at most 20 at once"


async def test_other_documents_are_read_as_text(bench: FileToolsHarness) -> None:
    bench.folders.uploads.mkdir(parents=True)
    (bench.folders.uploads / "a.docx").write_bytes(docx(("Normal", "One paragraph")))
    assert await bench.text("read_file", path=f"{UPLOADS}/a.docx") == "One paragraph"
    (bench.folders.uploads / "b.docx").write_bytes(b"nothing")
    broken = await bench.text("read_file", path=f"{UPLOADS}/b.docx")
    assert broken.startswith("Error: the document is damaged")


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 2, 1)


async def test_an_image_is_shown_to_a_model_that_sees(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path, sees=True)
    bench.folders.uploads.mkdir(parents=True)
    (bench.folders.uploads / "a.png").write_bytes(PNG)
    (bench.folders.uploads / "b.png").write_bytes(b"no image")
    shown = await bench.raw("read_file", {"path": f"{UPLOADS}/a.png"})
    assert isinstance(shown, Command)
    assert isinstance(shown.update, dict)
    assert shown.update["viewed_images"] == {
        f"{UPLOADS}/a.png": {"mime_type": "image/png", "size": len(PNG)}
    }
    other = await bench.raw("read_file", {"path": f"{UPLOADS}/b.png"})
    assert isinstance(other, ToolMessage)
    assert other.status == "error"


async def test_a_model_that_does_not_see_is_told_what_an_image_is(bench: FileToolsHarness) -> None:
    bench.folders.uploads.mkdir(parents=True)
    (bench.folders.uploads / "a.png").write_bytes(PNG)
    told = await bench.text("read_file", path=f"{UPLOADS}/a.png")
    assert told == (
        f"[The file is an image (image/png, 2 x 1 pixels, {len(PNG)} bytes). You cannot see images.]"
    )
    (bench.folders.uploads / "b.png").write_bytes(b"no image")
    told = await bench.text("read_file", path=f"{UPLOADS}/b.png")
    assert told == "[The file is not an image of a known type. You cannot see images.]"


async def test_searches_without_a_folder_cover_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill/SKILL.md").write_text("# needle")
    shared = [Mount(virtual="/mnt/skills/public/ours", host=tmp_path / "skill", read_only=True)]
    storage = ThreadStorage(tmp_path / "home")
    sandboxes = LocalSandboxProvider(storage, shared=lambda: shared)
    bench = FileToolsHarness(tmp_path / "home", sandboxes=sandboxes)
    bench.folders.create()
    (bench.folders.uploads / "a.txt").write_text("needle")
    await bench.text("write_file", path="src/b.txt", content="a\nneedle")
    await bench.text("write_file", path=f"{OUTPUTS}/c.txt", content="needle")
    lines = await bench.text("grep", pattern="needle")
    assert lines.splitlines() == [
        "/mnt/skills/public/ours/SKILL.md:1: # needle",
        f"{OUTPUTS}/c.txt:1: needle",
        f"{UPLOADS}/a.txt:1: needle",
        f"{WORKSPACE}/src/b.txt:2: needle",
    ]
    cut = await bench.text("grep", pattern="needle", max_results=2)
    assert cut.splitlines()[2:] == ["... [there is more; narrow the path or the pattern]"]
    assert await bench.text("grep", pattern="needle", glob="src/*.txt") == (
        f"{WORKSPACE}/src/b.txt:2: needle"
    )
    found = await bench.text("glob", pattern="*.txt")
    assert found.splitlines() == [f"{OUTPUTS}/c.txt", f"{UPLOADS}/a.txt", f"{WORKSPACE}/src/b.txt"]
    assert await bench.text("glob", pattern="src/*") == f"{WORKSPACE}/src/b.txt"
    assert await bench.text("glob", pattern=f"{OUTPUTS}/*") == f"{OUTPUTS}/c.txt"
    assert await bench.text("glob", path="/mnt/user-data", pattern="uploads/*") == (
        f"{UPLOADS}/a.txt"
    )
    cut = await bench.text("glob", pattern="*.txt", max_results=2)
    assert cut.splitlines()[2:] == ["... [there is more; narrow the path or the pattern]"]
    assert await bench.text("ls", path="/mnt/user-data") == (
        f"{OUTPUTS}/\n{OUTPUTS}/c.txt\n{UPLOADS}/\n{UPLOADS}/a.txt\n{WORKSPACE}/\n{WORKSPACE}/src/"
    )


async def test_presenting_files(bench: FileToolsHarness) -> None:
    await bench.text("write_file", path=f"{OUTPUTS}/a.txt", content="x")
    await bench.text("write_file", path=f"{WORKSPACE}/b.txt", content="x")
    good = await bench.present(f"{OUTPUTS}/./a.txt")
    assert isinstance(good, Command)
    assert isinstance(good.update, dict)
    assert good.update["artifacts"] == [f"{OUTPUTS}/a.txt"]
    assert good.update["messages"][0].content == "Successfully presented files"
    for paths in (
        [f"{WORKSPACE}/b.txt"],
        [f"{OUTPUTS}/a.txt", f"{WORKSPACE}/b.txt"],
        [f"{OUTPUTS}/none.txt"],
        [OUTPUTS],
        ["/etc/passwd"],
        ["b.txt"],
    ):
        bad = await bench.present(*paths)
        assert isinstance(bad, ToolMessage)
        assert bad.status == "error"
        assert bad.text.startswith("Error: ")
    elsewhere = await bench.present("b.txt")
    assert isinstance(elsewhere, ToolMessage)
    assert f"Only files in {OUTPUTS} can be presented: b.txt" in elsewhere.text
    assert "Copy the file there" in elsewhere.text


async def test_a_presented_link_out_of_outputs_is_refused(
    bench: FileToolsHarness, tmp_path: Path
) -> None:
    bench.folders.create()
    (tmp_path / "secret").write_text("s")
    (bench.folders.outputs / "a.txt").symlink_to(tmp_path / "secret")
    bad = await bench.present(f"{OUTPUTS}/a.txt")
    assert isinstance(bad, ToolMessage)
    assert "leads out" in bad.text


def test_there_is_no_bash_without_confinement(bench: FileToolsHarness) -> None:
    assert list(bench.tools) == [
        *("ls", "read_file", "write_file", "str_replace", "glob", "grep"),
        *("present_files", "ask_clarification"),
    ]


def test_the_schema_shows_no_runtime_to_the_model(bench: FileToolsHarness) -> None:
    for built_in in bench.tools.values():
        offered = convert_to_openai_tool(built_in)["function"]["parameters"]["properties"]
        assert "runtime" not in offered
        assert all("description" in argument for argument in offered.values())


@tool
def twice(text: str) -> str:
    """Say it twice."""
    return text * 2


def make_tool(*, word: str) -> BaseTool:
    """Build a tool that says its word."""
    return StructuredTool.from_function(lambda: word, name="say", description="Say it.")


NOT_A_TOOL = "no"


def test_configured_tools_come_by_name_and_group() -> None:
    entries = [
        ToolConfig(name="twice", group="text", use=f"{__name__}:twice"),
        ToolConfig.model_validate(
            {"name": "say", "group": "web", "use": f"{__name__}:make_tool", "word": "hello"}
        ),
    ]
    assert [found.name for found in configured_tools(entries)] == ["twice", "say"]
    assert [found.name for found in configured_tools(entries, groups=["web"])] == ["say"]
    assert configured_tools(entries)[1].invoke({}) == "hello"


@pytest.mark.parametrize("attribute", ["NOT_A_TOOL", "make_tool", "missing"])
def test_an_invalid_entry_is_named_without_secrets(attribute: str) -> None:
    entry = {"name": "bad", "group": "g", "use": f"{__name__}:{attribute}", "api_key": "sk-secret"}
    with pytest.raises(ObjectNotImportable) as caught:
        configured_tools([ToolConfig.model_validate(entry)])
    assert "sk-secret" not in str(caught.value)


def test_duplicate_tool_names_keep_the_first(caplog: pytest.LogCaptureFixture) -> None:
    other = StructuredTool.from_function(lambda: "x", name="twice", description="Other.")
    with caplog.at_level(logging.WARNING):
        assert deduplicate_tools([twice, other]) == [twice]
    assert "duplicate tool name twice" in caplog.text


OF_OFFICE_PROGRAMS = {
    "gb18030": "姓名,部门,金额\n张三,销售,100\n李四,财务,200\n",
    "big5": "姓名,部門,合約金額\n張三,銷售部,100\n李四,財務部,200\n備註,已出貨,台北科技有限公司\n",
    "shift_jis": "氏名,部署,契約金額\n山田太郎,営業部,100\n佐藤花子,経理部,200\n備考,発送済み,東京電機\n",
    "euc_kr": "이름,부서,계약금액\n홍길동,영업부,100\n김철수,재무부,200\n비고,발송완료,서울전자 주식회사\n",
    "cp1252": "Name;Straße\nMüller;Königsallee\nJosé;Café\n",
    "cp1251": "Имя;Отдел;Сумма\nИванов;Продажи;100\nПетров;Бухгалтерия;200\nИтого;Москва;300\n",
    "utf-16": "姓名\t部门\n张三\t销售\n",
}


@pytest.mark.parametrize("encoding", OF_OFFICE_PROGRAMS)
async def test_text_of_an_office_program_is_read(bench: FileToolsHarness, encoding: str) -> None:
    text = OF_OFFICE_PROGRAMS[encoding]
    long = "id,name\n" + "1,abc\n" * 50_000 + text
    bench.folders.uploads.mkdir(parents=True)
    (bench.folders.uploads / "short.csv").write_bytes(text.encode(encoding))
    (bench.folders.uploads / "long.csv").write_bytes(long.encode(encoding))
    told = f"[the file is {encoding}, not UTF-8]"
    short = await bench.text("read_file", path=f"{UPLOADS}/short.csv")
    assert short == f"{number_lines(text, 1)}\n{told}"
    read = await bench.text("read_file", path=f"{UPLOADS}/long.csv", start_line=50_002)
    assert read.startswith(number_lines(text, 50_002))
    assert read.endswith(told)


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16"])
async def test_text_of_an_office_program_is_searched(
    bench: FileToolsHarness, encoding: str
) -> None:
    text = OF_OFFICE_PROGRAMS[encoding]
    bench.folders.uploads.mkdir(parents=True)
    (bench.folders.uploads / "a.csv").write_bytes(text.encode(encoding))
    found = await bench.text("grep", path=UPLOADS, pattern="张三")
    assert found == f"{UPLOADS}/a.csv:2: {text.splitlines()[1]}"


def place_in_workspace(bench: FileToolsHarness, content: bytes) -> tuple[Path, str]:
    """Write a file into the workspace. Return its host path and its path for the tools."""
    bench.folders.workspace.mkdir(parents=True, exist_ok=True)
    file = bench.folders.workspace / "a.csv"
    file.write_bytes(content)
    return file, f"{WORKSPACE}/a.csv"


@pytest.mark.parametrize("encoding", OF_OFFICE_PROGRAMS)
async def test_a_changed_file_keeps_its_encoding(bench: FileToolsHarness, encoding: str) -> None:
    text = OF_OFFICE_PROGRAMS[encoding]
    first, _, rest = text.partition("\n")
    file, path = place_in_workspace(bench, text.encode(encoding))
    assert await bench.text("write_file", path=path, content=f"{first}\n", append=True) == "OK"
    assert await bench.text("write_file", path=path, content="id,1\n", append=True) == "OK"
    last = rest.splitlines()[-1]
    changed = await bench.text("str_replace", path=path, old_str=f"{last}\n", new_str=f"{first}!\n")
    assert f"-{last}\n+{first}!" in changed
    now = text.replace(f"{last}\n", f"{first}!\n") + f"{first}\nid,1\n"
    assert file.read_bytes() == now.encode(encoding)


async def test_text_that_an_encoding_cannot_represent_is_refused(bench: FileToolsHarness) -> None:
    content = OF_OFFICE_PROGRAMS["cp1251"].encode("cp1251")
    file, path = place_in_workspace(bench, content)
    for call in (
        bench.text("write_file", path=path, content="Привет 张", append=True),
        bench.text("str_replace", path=path, old_str="Москва", new_str="张"),
    ):
        assert "the file is cp1251, which cannot hold '张', nothing was written" in await call
    assert file.read_bytes() == content


async def test_a_file_that_would_not_stay_the_same_is_not_changed(bench: FileToolsHarness) -> None:
    """UTF-16 with the other byte order: rewriting the file would change it to this machine's byte order."""
    content = codecs.BOM_UTF16_BE + "姓名\t部门\n".encode("utf-16-be")
    file, path = place_in_workspace(bench, content)
    for call in (
        bench.text("write_file", path=path, content="a", append=True),
        bench.text("str_replace", path=path, old_str="姓名", new_str="名"),
    ):
        assert "convert it to UTF-8 first" in await call
    assert file.read_bytes() == content
