"""The local sandbox: no path leads out of its folders, nothing hangs, and no edit is lost."""

import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from agent.config import MountConfig
from agent.errors import SandboxError, SearchTimeout
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE, Mount, MountTable
from agent.sandbox.disk import DiskLimits, DiskMeter
from agent.sandbox.edits import TextEdit
from agent.sandbox.local import LocalSandbox, LocalSandboxProvider
from agent.sandbox.locks import PathLocks
from agent.sandbox.mounts import configured_mounts
from agent.sandbox.protocol import GrepQuery
from agent.thread_storage import ThreadStorage

THREAD = "t-1"
SECRET = "the secret outside"


class LocalSandboxHarness:
    """A thread's folders with a sandbox over them, and things outside that it must not reach."""

    def __init__(self, home: Path) -> None:
        self.folders = ThreadStorage(home).folders(THREAD)
        self.folders.create()
        self.outside = home / "outside"
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(SECRET)
        self.read_only = home / "docs"
        self.read_only.mkdir()
        (self.read_only / "a.txt").write_text("a")
        docs = Mount(virtual="/mnt/docs", host=self.read_only.resolve(), read_only=True)
        self.locks = PathLocks()
        self.sandbox = LocalSandbox(
            sandbox_id=f"local:{THREAD}",
            table=MountTable((*self.folders.mounts(), docs)),
            locks=self.locks,
            meter=DiskMeter(home, DiskLimits()),
        )


@pytest.fixture
def scene(tmp_path: Path) -> LocalSandboxHarness:
    return LocalSandboxHarness(tmp_path)


async def _error(scene: LocalSandboxHarness, method: str, path: str) -> str:
    """Return the text of the error that an operation on a path raises."""
    box = scene.sandbox
    operations: dict[str, Callable[[], Awaitable[object]]] = {
        "read": lambda: box.read_file(path),
        "write": lambda: box.write_file(path, "x"),
        "append": lambda: box.write_file(path, "x", append=True),
        "replace": lambda: box.edit_file(path, [TextEdit(old="secret", new="x", everywhere=True)]),
        "ls": lambda: box.list_dir(path),
        "glob": lambda: box.glob(path, "*", include_dirs=False, max_results=9),
        "grep": lambda: box.grep(path, GrepQuery(pattern="secret")),
        "check": lambda: box.check_file(path),
    }
    with pytest.raises(SandboxError) as caught:
        await operations[method]()
    text = caught.value.user_message
    assert str(scene.folders.root) not in text
    assert str(scene.outside) not in text
    return text


ALL = ("read", "write", "append", "replace", "ls", "glob", "grep", "check")


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("relative", [False, True])
async def test_no_symlink_leads_out(
    scene: LocalSandboxHarness, method: str, *, relative: bool
) -> None:
    target = Path("../../../../outside") if relative else scene.outside
    (scene.folders.workspace / "way").symlink_to(target)
    (scene.folders.workspace / "file").symlink_to(target / "secret.txt")
    for path in ("way", "way/secret.txt", "file"):
        assert "leads out" in await _error(scene, method, f"{WORKSPACE}/{path}")
    assert (scene.outside / "secret.txt").read_text() == SECRET


async def test_a_dangling_symlink_cannot_create_a_file_outside(scene: LocalSandboxHarness) -> None:
    (scene.folders.outputs / "new").symlink_to(scene.outside / "new.txt")
    assert "leads out" in await _error(scene, "write", f"{OUTPUTS}/new")
    assert not (scene.outside / "new.txt").exists()


async def test_a_symlink_into_another_folder_of_the_thread_is_refused(
    scene: LocalSandboxHarness,
) -> None:
    (scene.folders.uploads / "in.txt").write_text("in")
    (scene.folders.workspace / "up").symlink_to(scene.folders.uploads)
    assert "leads out" in await _error(scene, "write", f"{WORKSPACE}/up/in.txt")


async def test_a_symlink_within_its_folder_works(scene: LocalSandboxHarness) -> None:
    (scene.folders.workspace / "real").mkdir()
    (scene.folders.workspace / "way").symlink_to("real")
    await scene.sandbox.write_file(f"{WORKSPACE}/way/a.txt", "hello")
    assert (await scene.sandbox.read_file(f"{WORKSPACE}/real/a.txt")).text == "hello"


async def test_a_symlink_loop_is_reported(scene: LocalSandboxHarness) -> None:
    (scene.folders.workspace / "loop").symlink_to("loop")
    assert await _error(scene, "read", f"{WORKSPACE}/loop")


async def test_a_symlink_into_a_read_only_mount_is_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    (folder / "fixed").mkdir(parents=True)
    (folder / "fixed" / "a").write_text("a")
    (folder / "way").symlink_to("fixed")
    table = MountTable(
        [
            Mount(virtual="/mnt/all", host=folder.resolve()),
            Mount(virtual="/mnt/fixed", host=(folder / "fixed").resolve(), read_only=True),
        ]
    )
    sandbox = LocalSandbox(
        sandbox_id="s", table=table, locks=PathLocks(), meter=DiskMeter(tmp_path, DiskLimits())
    )
    assert (await sandbox.read_file("/mnt/all/way/a")).text == "a"
    with pytest.raises(SandboxError, match="write access to /mnt/fixed"):
        await sandbox.write_file("/mnt/all/way/a", "b")


async def test_read_only_mounts_are_not_written(scene: LocalSandboxHarness) -> None:
    for method in ("write", "append", "replace"):
        assert "write access" in await _error(scene, method, "/mnt/docs/a.txt")
    assert (await scene.sandbox.read_file("/mnt/docs/a.txt")).text == "a"


@pytest.mark.parametrize("method", ["read", "append", "grep", "check", "replace"])
async def test_a_fifo_does_not_block(scene: LocalSandboxHarness, method: str) -> None:
    os.mkfifo(scene.folders.workspace / "pipe")
    with anyio.fail_after(20):
        assert "not a regular file" in await _error(scene, method, f"{WORKSPACE}/pipe")


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("read", "none.txt", "no such file or folder"),
        ("replace", "none.txt", "no such file or folder"),
        ("ls", "none", "no such file or folder"),
        ("read", ".", "this is a folder"),
        ("write", ".", "this is a folder"),
        ("read", "folder", "this is a folder"),
        ("write", "folder", "this is a folder"),
        ("append", "folder", "this is a folder"),
        ("write", "file/below", "not a folder"),
        ("write", "x" * 300, "the name is too long"),
        ("read", "binary", "binary"),
        ("read", "random", "not text in a known encoding"),
        ("replace", "big-endian", "convert it to UTF-8 first"),
        ("ls", "file", "not a folder"),
    ],
)
async def test_errors_are_plain(
    scene: LocalSandboxHarness, method: str, path: str, text: str
) -> None:
    (scene.folders.workspace / "folder").mkdir()
    (scene.folders.workspace / "file").write_text("x")
    (scene.folders.workspace / "binary").write_bytes(b"a\0b")
    (scene.folders.workspace / "random").write_bytes(bytes(range(1, 256)))
    (scene.folders.workspace / "big-endian").write_bytes(b"\xfe\xff\0a")
    assert text in await _error(scene, method, f"{WORKSPACE}/{path}")


async def test_writing_replaces_appends_and_keeps_line_ends_and_permissions(
    scene: LocalSandboxHarness,
) -> None:
    box, path = scene.sandbox, f"{WORKSPACE}/new/deep/a.sh"
    await box.write_file(path, "one\r\n")
    host = scene.folders.workspace / "new/deep/a.sh"
    host.chmod(0o755)
    await box.write_file(path, "two\r\n")
    await box.write_file(path, "three", append=True)
    assert host.read_bytes() == b"two\r\nthree"
    assert host.stat().st_mode & 0o777 == 0o755
    assert [entry.name for entry in host.parent.iterdir()] == ["a.sh"]


async def test_a_file_with_the_line_ends_of_windows_is_edited_and_keeps_them(
    scene: LocalSandboxHarness,
) -> None:
    box, host = scene.sandbox, scene.folders.workspace / "a.csv"
    host.write_bytes(b"name;age\r\nAnn;30\r\nBob;40\r\n")
    await box.edit_file(str(host.name), [TextEdit(old="Ann;30\nBob;40", new="Ann;31\nBob;41")])
    await box.edit_file(str(host.name), [TextEdit(old="Bob;41", new="Bob;41\nEve;50")])
    assert host.read_bytes() == b"name;age\r\nAnn;31\r\nBob;41\r\nEve;50\r\n"
    host.write_bytes(b"one\r\ntwo\nthree\n")
    await box.edit_file(str(host.name), [TextEdit(old="two\nthree", new="2\n3")])
    assert host.read_bytes() == b"one\r\n2\n3\n"


async def test_text_that_cannot_be_encoded_changes_nothing(scene: LocalSandboxHarness) -> None:
    await scene.sandbox.write_file(f"{WORKSPACE}/a", "old")
    with pytest.raises(SandboxError, match="not valid text"):
        await scene.sandbox.write_file(f"{WORKSPACE}/a", "\ud800")
    assert (await scene.sandbox.read_file(f"{WORKSPACE}/a")).text == "old"


async def test_replacing_text(scene: LocalSandboxHarness) -> None:
    box, path = scene.sandbox, f"{WORKSPACE}/a"
    await box.write_file(path, "x x")
    with pytest.raises(SandboxError, match="occurs 2 times"):
        await box.edit_file(path, [TextEdit(old="x", new="y")])
    assert (await box.read_file(path)).text == "x x"
    await box.edit_file(path, [TextEdit(old="x", new="y", everywhere=True)])
    assert (await box.read_file(path)).text == "y y"
    await box.edit_file(path, [TextEdit(old="y y", new="x")])
    assert (await box.read_file(path)).text == "x"
    with pytest.raises(SandboxError, match="was not found"):
        await box.edit_file(path, [TextEdit(old="", new="z", everywhere=True)])
    await box.write_file(path, "")
    with pytest.raises(SandboxError, match="was not found"):
        await box.edit_file(path, [TextEdit(old="x", new="y")])


async def test_parallel_edits_of_one_file_are_all_kept(scene: LocalSandboxHarness) -> None:
    box, path = scene.sandbox, f"{WORKSPACE}/log"
    await box.write_file(path, "".join(f"<{n}>" for n in range(10)))

    async def edit(n: int) -> None:
        await box.edit_file(path, [TextEdit(old=f"<{n}>", new=f"[{n}]")])
        await box.write_file(path, f"+{n}", append=True)

    async with anyio.create_task_group() as group:
        for n in range(10):
            group.start_soon(edit, n)
    text = (await box.read_file(path)).text
    assert all(f"[{n}]" in text and f"+{n}" in text for n in range(10))
    assert len(scene.locks) == 0


async def test_two_sandboxes_do_not_wait_for_each_other() -> None:
    locks, entered = PathLocks(), threading.Event()

    def second() -> None:
        with locks.locked("two", "/same"):
            entered.set()

    with locks.locked("one", "/same"):
        with anyio.fail_after(20):
            await anyio.to_thread.run_sync(second)
        assert len(locks) == 1
    assert entered.is_set()
    assert len(locks) == 0


async def test_listing_skips_ignored_names_and_links(scene: LocalSandboxHarness) -> None:
    workspace = scene.folders.workspace
    for name in ("src/deep/deeper", "node_modules/x", ".git"):
        (workspace / name).mkdir(parents=True)
    (workspace / "src/a.py").write_text("")
    (workspace / "src/a.pyc").write_text("")
    (workspace / "bad\nname").write_text("")
    (workspace / "way").symlink_to(scene.outside)
    listing = await scene.sandbox.list_dir(WORKSPACE)
    assert listing.lines == (
        f"{WORKSPACE}/bad?name",
        f"{WORKSPACE}/src/",
        f"{WORKSPACE}/src/a.py",
        f"{WORKSPACE}/src/deep/",
        f"{WORKSPACE}/way",
    )


async def test_finding_files(scene: LocalSandboxHarness) -> None:
    for name in ("a.md", "docs/b.md", "docs/x/c.md", "docs/x/d.txt"):
        await scene.sandbox.write_file(f"{UPLOADS}/{name}", "")

    async def found(pattern: str, **more: bool | int) -> list[str]:
        include_dirs, most = bool(more.get("include_dirs")), int(more.get("most", 100))
        listing = await scene.sandbox.glob(
            UPLOADS, pattern, include_dirs=include_dirs, max_results=most
        )
        return [line.removeprefix(f"{UPLOADS}/") for line in listing.lines]

    assert await found("*.md") == ["a.md", "docs/b.md", "docs/x/c.md"]
    assert await found("docs/*.md") == ["docs/b.md"]
    assert await found("docs/**/*.md") == ["docs/b.md", "docs/x/c.md"]
    assert await found("**", include_dirs=True) == [
        *("a.md", "docs/", "docs/b.md", "docs/x/", "docs/x/c.md", "docs/x/d.txt")
    ]
    assert await found("*.md", most=2) == ["a.md", "docs/b.md"]


async def test_searching(scene: LocalSandboxHarness) -> None:
    box = scene.sandbox
    await box.write_file(f"{WORKSPACE}/a.py", "import os\nIMPORT = 1\n" + "x" * 3000 + "port\n")
    await box.write_file(f"{WORKSPACE}/b.txt", "a.b import\naxb\n")
    (scene.folders.workspace / "c.bin").write_bytes(b"import\0")
    (scene.folders.workspace / "way").symlink_to(scene.outside)

    async def lines(pattern: str, path: str = WORKSPACE, **more: object) -> list[str]:
        listing = await box.grep(path, GrepQuery(pattern=pattern, **more))  # type: ignore[arg-type]
        return [line.removeprefix(f"{WORKSPACE}/") for line in listing.lines]

    assert await lines("import") == ["a.py:1: import os", "b.txt:1: a.b import"]
    assert await lines("import", case_sensitive=False, glob="*.py") == [
        *("a.py:1: import os", "a.py:2: IMPORT = 1")
    ]
    assert await lines("a.b", literal=True) == ["b.txt:1: a.b import"]
    assert await lines("axb", f"{WORKSPACE}/b.txt") == ["b.txt:2: axb"]
    assert await lines("secret") == []
    assert (await box.grep(WORKSPACE, GrepQuery(pattern="import", max_results=1))).truncated
    with pytest.raises(SandboxError, match="not a valid regular expression"):
        await lines("(")


async def test_a_search_that_would_never_end_is_stopped(scene: LocalSandboxHarness) -> None:
    impatient = LocalSandbox(
        sandbox_id="s",
        table=MountTable(scene.folders.mounts()),
        locks=PathLocks(),
        meter=DiskMeter(scene.folders.root, DiskLimits()),
        search_deadline_s=0.3,
    )
    await impatient.write_file(f"{WORKSPACE}/a", "a" * 60)
    with anyio.fail_after(20), pytest.raises(SearchTimeout):
        await impatient.grep(WORKSPACE, GrepQuery(pattern="(a+)+$b"))


async def test_check_file_returns_the_normalized_path(scene: LocalSandboxHarness) -> None:
    await scene.sandbox.write_file(f"{OUTPUTS}/a.txt", "x")
    assert await scene.sandbox.check_file(f"{OUTPUTS}//./a.txt") == f"{OUTPUTS}/a.txt"
    assert "not a regular file" in await _error(scene, "check", OUTPUTS)


async def test_sandboxes_are_one_for_each_thread(tmp_path: Path) -> None:
    boxes = LocalSandboxProvider(ThreadStorage(tmp_path))
    one, two = await boxes.acquire("one"), await boxes.acquire("two")
    await one.write_file(f"{WORKSPACE}/a", "of one")
    with pytest.raises(SandboxError, match="no such file"):
        await two.read_file(f"{WORKSPACE}/a")
    again = await boxes.acquire("one")
    await boxes.release(boxes.sandbox_id("one"))
    assert (await again.read_file(f"{WORKSPACE}/a")).text == "of one"


def test_invalid_mounts_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = MountConfig(host_path=str(tmp_path), container_path="/data/")
    bad = [
        MountConfig(host_path="relative", container_path="/a"),
        MountConfig(host_path=str(tmp_path / "none"), container_path="/b"),
        MountConfig(host_path=str(tmp_path), container_path="c"),
        MountConfig(host_path=str(tmp_path), container_path="/mnt/user-data/workspace"),
        MountConfig(host_path=str(tmp_path), container_path="/mnt"),
        MountConfig(host_path=str(tmp_path), container_path="/x/../mnt/skills"),
    ]
    assert configured_mounts([*bad, good]) == (
        Mount(virtual="/data", host=tmp_path.resolve(), read_only=True),
    )
    assert len(caplog.records) == len(bad)


def skill(home: Path, kind: str, name: str) -> Mount:
    folder = home / "kept" / kind / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"# {name}\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "more.md").write_text("more of it\n")
    return Mount(virtual=f"/mnt/skills/{kind}/{name}", host=folder, read_only=True)


async def test_shared_mounts_are_listed_from_their_parent(tmp_path: Path) -> None:
    shown = [
        skill(tmp_path, "public", "charts"),
        skill(tmp_path, "public", "tables"),
        skill(tmp_path, "custom", "ours"),
    ]
    (tmp_path / "kept/public/hidden").mkdir()
    box = await LocalSandboxProvider(ThreadStorage(tmp_path), shared=lambda: shown).acquire(THREAD)
    assert (await box.list_dir("/mnt/skills")).lines == (
        *("/mnt/skills/custom/", "/mnt/skills/custom/ours/"),
        *("/mnt/skills/public/", "/mnt/skills/public/charts/", "/mnt/skills/public/tables/"),
    )
    assert (await box.list_dir("/mnt/skills/custom/")).lines == (
        *("/mnt/skills/custom/ours/", "/mnt/skills/custom/ours/SKILL.md"),
        "/mnt/skills/custom/ours/deep/",
    )
    found = await box.glob("/mnt/skills", "public/**/*.md", include_dirs=False, max_results=3)
    assert found.truncated
    assert found.lines == (
        *("/mnt/skills/public/charts/SKILL.md", "/mnt/skills/public/charts/deep/more.md"),
        "/mnt/skills/public/tables/SKILL.md",
    )
    lines = (await box.grep("/mnt/skills", GrepQuery(pattern="^#", glob="*/ours/*"))).lines
    assert lines == ("/mnt/skills/custom/ours/SKILL.md:1: # ours",)


async def test_shared_mounts_are_current_and_read_only(tmp_path: Path) -> None:
    shown = [skill(tmp_path, "public", "charts")]
    sandboxes = LocalSandboxProvider(ThreadStorage(tmp_path), shared=lambda: shown)
    path = "/mnt/skills/public/charts/SKILL.md"
    with pytest.raises(SandboxError, match="write access"):
        await (await sandboxes.acquire(THREAD)).write_file(path, "mine")
    shown.clear()
    box = await sandboxes.acquire(THREAD)
    for asked in (path, "/mnt/skills", "/mnt/skills/public", "/etc"):
        with pytest.raises(SandboxError, match="only paths below"):
            await box.list_dir(asked)
