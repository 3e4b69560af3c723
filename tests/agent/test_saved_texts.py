"""Files with text that requests leave out: their quota, the bucket, and failed writes."""

from pathlib import Path

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from typing_extensions import override

from agent.middleware.visible_history import VisibleHistory
from agent.paths import SKILLS, WORKSPACE
from agent.sandbox.local import LocalSandboxProvider
from agent.saved_texts import RESULTS, SAVED_TO, SavedTexts, text_path
from agent.thread_storage import ThreadStorage
from store.errors import StoreError
from store.files.mirror import FileArea, SharedFolder, thread_area

THREAD = "t"
PATHS = [f"{RESULTS}/bash-{number:012x}.txt" for number in range(3)]


class Bucket(SharedFolder):
    """Records the stored objects."""

    is_remote = True

    def __init__(self, *, works: bool = True) -> None:
        self.stored: list[FileArea] = []
        self._works = works

    @override
    async def store(self, area: FileArea) -> None:
        if not self._works:
            raise StoreError("no bucket")
        self.stored.append(area)


def saved_texts(home: Path, bucket: Bucket | None = None, quota_mb: float = 10) -> SavedTexts:
    return SavedTexts(LocalSandboxProvider(ThreadStorage(home)), quota_mb, bucket)


async def test_files_are_stored_in_the_bucket_before_a_request_names_them(tmp_path: Path) -> None:
    bucket = Bucket()
    texts = dict.fromkeys(PATHS, "text")
    assert await saved_texts(tmp_path, bucket).save_all(THREAD, texts) == set()
    assert bucket.stored == [thread_area(THREAD)]
    broken = Bucket(works=False)
    assert await saved_texts(tmp_path, broken).save_all(THREAD, texts) == set(PATHS)


async def test_the_oldest_files_make_room(tmp_path: Path) -> None:
    texts = dict.fromkeys(PATHS, "x" * 40_000)
    await saved_texts(tmp_path, quota_mb=1).save_all(THREAD, texts)  # a tenth: 105 kB
    folder = ThreadStorage(tmp_path).folders(THREAD).outputs / ".tool-results"
    assert len(list(folder.iterdir())) == 2


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folders = ThreadStorage(tmp_path).folders(THREAD)
    folders.create()
    (folders.outputs / ".tool-results").write_text("in the way")
    assert await saved_texts(tmp_path).save_all(THREAD, {PATHS[0]: "text"}) == {PATHS[0]}


async def test_a_file_is_read_as_it_is_now_but_copies_may_be_deleted(tmp_path: Path) -> None:
    texts, folders = saved_texts(tmp_path), ThreadStorage(tmp_path).folders(THREAD)
    folders.create()
    (folders.workspace / "a.txt").write_text("now")
    assert await texts.current(THREAD, "a.txt") == (f"{WORKSPACE}/a.txt", "now")
    await texts.save(THREAD, PATHS[0], "copy")
    for path in ("gone.txt", WORKSPACE, "/etc/passwd", PATHS[0]):
        assert await texts.current(THREAD, path) is None


def history(**kwargs: object) -> VisibleHistory:
    call = {"name": "bash", "args": {}, "id": "c"}
    thread: list[AnyMessage] = [
        HumanMessage("q", id="q"),
        AIMessage("", tool_calls=[call], id="a"),
        ToolMessage("begin " + "x" * 5_000, name="bash", tool_call_id="c", id="r", **kwargs),
        AIMessage("end", id="e"),
    ]
    return VisibleHistory(thread)


def test_a_left_out_result_names_its_file() -> None:
    whole = history()
    left_out = whole.without_results(3, SKILLS)
    shown = left_out.messages[2].text
    assert shown.startswith("begin ")
    assert len(shown) < 500
    assert text_path(whole.thread[2]) in shown
    assert "could not be saved" in left_out.with_unsaved({"r"}).messages[2].text
    assert left_out.without_results(2, SKILLS) is left_out  # the border only moves forward
    assert VisibleHistory(whole.thread[:1], None, left_out.left_out).messages == whole.thread[:1]


def test_a_result_that_a_tool_call_saved_keeps_its_file() -> None:
    left_out = history(additional_kwargs={SAVED_TO: PATHS[0]}).without_results(3, SKILLS)
    assert PATHS[0] in left_out.messages[2].text
    assert left_out.partial_texts == {}


def test_the_longest_texts_are_shortened_first() -> None:
    thread: list[AnyMessage] = [
        HumanMessage("short", id="1"),
        HumanMessage("m" * 4_000, id="2"),
        HumanMessage("l" * 40_000, id="3"),
    ]
    shown = VisibleHistory(thread).shortened(3_000).messages
    assert [message is old for message, old in zip(shown, thread, strict=True)] == [
        True,
        True,
        False,
    ]
    assert 7_000 < len(shown[2].text) < 8_500
    fits = VisibleHistory(thread)
    assert fits.shortened(20_000) is fits
