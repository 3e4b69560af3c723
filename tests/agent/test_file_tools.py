"""The file tools as the model calls them: arguments in, text out."""

import codecs
import logging
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
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE
from agent.sandbox.local import LocalSandboxProvider
from agent.thread_storage import ThreadStorage
from agent.tools.registry import built_in_tools, configured_tools, deduplicate_tools
from agent.tools.results import ToolLimits

THREAD = "t-1"


class FileToolsHarness:
    """The built-in tools over one data folder, called like the graph calls them."""

    def __init__(self, home: Path, limits: ToolLimits | None = None) -> None:
        self.home = home
        self.folders = ThreadStorage(home).folders(THREAD)
        tools = built_in_tools(LocalSandboxProvider(ThreadStorage(home)), limits or ToolLimits())
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


async def test_a_file_is_written_read_changed_and_listed(bench: FileToolsHarness) -> None:
    path = f"{WORKSPACE}/notes/a.txt"
    assert await bench.text("write_file", path=path, content="one\ntwo\nthree\n") == "OK"
    assert await bench.text("str_replace", path=path, old_str="two", new_str="2") == "OK"
    assert await bench.text("write_file", path=path, content="four", append=True) == "OK"
    assert await bench.text("read_file", path=path) == "one\n2\nthree\nfour"
    assert await bench.text("ls", path=WORKSPACE) == f"{WORKSPACE}/notes/\n{path}"
    assert await bench.text("ls", path=UPLOADS) == "(empty)"
    assert await bench.text("glob", path=WORKSPACE, pattern="*.txt") == path
    assert await bench.text("grep", path=WORKSPACE, pattern="THREE") == f"{path}:3: three"
    assert await bench.text("grep", path=WORKSPACE, pattern="none") == "(no matches)"


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (2, 3, "b\nc\n[lines 2 to 3 of 4]"),
        (2, None, "b\nc\nd\n[lines 2 to 4 of 4]"),
        (None, 2, "a\nb\n[lines 1 to 2 of 4]"),
        (0, 1, "a\n[lines 1 to 1 of 4]"),
        (4, 9, "d\n[lines 4 to 4 of 4]"),
        (9, None, "(empty)\n[there are 4 lines]"),
        (3, 2, "(empty)\n[there are 4 lines]"),
        (None, -1, "(empty)\n[there are 4 lines]"),
        (None, None, "a\nb\nc\nd"),
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
        ("ls", {"path": "/mnt/user-data"}),
        ("write_file", {"path": "/mnt/skills/x", "content": "x"}),
        ("str_replace", {"path": "none", "old_str": "", "new_str": ""}),
        ("glob", {"path": "/", "pattern": "*"}),
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
    assert await bench.text("read_file", path="a") == "ä" * 5
    assert await bench.text("write_file", path="a", content="x" * 50, append=True) == "OK"
    free = FileToolsHarness(tmp_path, ToolLimits(write_bytes=0))
    assert await free.text("write_file", path="a", content="x" * 100_000) == "OK"


async def test_long_files_are_read_on(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path, ToolLimits(reading_chars=300))
    content = "".join(f"line {n}\n" for n in range(100))
    await bench.text("write_file", path="a.txt", content=content)
    first = await bench.text("read_file", path="a.txt")
    assert first == f"{content[:300]}\n... [characters 0 to 300 of 790; read on with offset=300]"
    last = await bench.text("read_file", path="a.txt", offset=600)
    assert last == content[600:]
    lines = await bench.text("read_file", path="a.txt", start_line=11, end_line=60, offset=300)
    assert (
        lines == "".join(f"line {n}\n" for n in range(10, 60))[300:-1] + "\n[lines 11 to 60 of 101]"
    )
    assert "there are 790 characters" in await bench.text("read_file", path="a.txt", offset=791)


async def test_the_start_of_a_long_markdown_file_comes_with_its_headings(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path, ToolLimits(reading_chars=40))
    text = "# One\n" + "word " * 20 + "\n## Two\nend"
    await bench.text("write_file", path="a.md", content=text)
    first = await bench.text("read_file", path="a.md")
    assert first.endswith("offset=40]\n[4 lines; headings:]\nL1: One\nL3: Two")
    assert "headings" not in await bench.text("read_file", path="a.md", offset=40)
    await bench.text("write_file", path="short.md", content="# One\nend")
    assert await bench.text("read_file", path="short.md") == "# One\nend"


async def test_listings_say_when_there_is_more(tmp_path: Path) -> None:
    bench = FileToolsHarness(tmp_path)
    for n in range(3):
        await bench.text("write_file", path=f"file{n}.txt", content="y")
    found = await bench.text("glob", path=WORKSPACE, pattern="*", max_results=2)
    assert found.count("\n") == 2
    assert "there is more" in found


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
    assert await bench.text("read_file", path=f"{UPLOADS}/short.csv") == f"{text}\n{told}"
    read = await bench.text("read_file", path=f"{UPLOADS}/long.csv", start_line=50_002)
    assert read.startswith(text)
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
    """Return where the file is, and its path for the tools."""
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
    assert changed == "OK"
    now = text.replace(f"{last}\n", f"{first}!\n") + f"{first}\nid,1\n"
    assert file.read_bytes() == now.encode(encoding)


async def test_what_an_encoding_cannot_hold_is_refused(bench: FileToolsHarness) -> None:
    content = OF_OFFICE_PROGRAMS["cp1251"].encode("cp1251")
    file, path = place_in_workspace(bench, content)
    for call in (
        bench.text("write_file", path=path, content="Привет 张", append=True),
        bench.text("str_replace", path=path, old_str="Москва", new_str="张"),
    ):
        assert "the file is cp1251, which cannot hold '张', nothing was written" in await call
    assert file.read_bytes() == content


async def test_a_file_that_would_not_stay_the_same_is_not_changed(bench: FileToolsHarness) -> None:
    """UTF-16 with another byte order: a rewritten file would get this machine's byte order."""
    content = codecs.BOM_UTF16_BE + "姓名\t部门\n".encode("utf-16-be")
    file, path = place_in_workspace(bench, content)
    for call in (
        bench.text("write_file", path=path, content="a", append=True),
        bench.text("str_replace", path=path, old_str="姓名", new_str="名"),
    ):
        assert "convert it to UTF-8 first" in await call
    assert file.read_bytes() == content
