"""Virtual paths: resolving, rejecting, masking."""

from pathlib import Path

import pytest

from agent.errors import PathNotAllowed
from agent.paths import Mount, MountTable, normalize_path

TABLE = MountTable(
    [
        Mount(virtual="/mnt/user-data/workspace", host=Path("/data/t/user-data/workspace")),
        Mount(virtual="/mnt/user-data/outputs", host=Path("/data/t/user-data/outputs")),
        Mount(virtual="/mnt/docs", host=Path("/srv/docs"), read_only=True),
        Mount(virtual="/mnt/docs/drafts", host=Path("/srv/drafts")),
    ]
)


@pytest.mark.parametrize(
    ("path", "virtual"),
    [
        ("/mnt/user-data/outputs/a.txt", "/mnt/user-data/outputs/a.txt"),
        ("/mnt/user-data/outputs/", "/mnt/user-data/outputs"),
        ("//mnt//user-data/./outputs/a", "/mnt/user-data/outputs/a"),
        ("a/b.txt", "/mnt/user-data/workspace/a/b.txt"),
        ("./a", "/mnt/user-data/workspace/a"),
        ("/mnt/docs/drafts/x", "/mnt/docs/drafts/x"),
        ("/mnt/docs/drafts2/x", "/mnt/docs/drafts2/x"),
        ("..hidden", "/mnt/user-data/workspace/..hidden"),
    ],
)
def test_locating_virtual_paths(path: str, virtual: str) -> None:
    mount, parts = TABLE.locate(path)
    assert "/".join((mount.virtual, *parts)) == virtual


@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "   ",
            "\0",
            "a\0b",
            "x" * 5000,
            "..",
            "../a",
            "/mnt/user-data/outputs/../../../etc/passwd",
        ),
        *("a\\..\\b", "..\\a", "a\\b", "/mnt/user-data", "/mnt/user-data/", "/mnt", "/"),
        *(
            "/mnt/user-data2/a",
            "/mnt/user-data/outputs2",
            "/mnt/user-data/outputs.bak/a",
            "/etc/passwd",
        ),
        *("/data/t/user-data/workspace/a", "/MNT/user-data/outputs/a", "~/a/../b"),
    ],
)
def test_a_path_is_refused(path: str) -> None:
    with pytest.raises(PathNotAllowed):
        TABLE.locate(path)


def test_errors_name_the_available_folders() -> None:
    with pytest.raises(PathNotAllowed, match="/mnt/user-data/outputs, /mnt/user-data/workspace"):
        TABLE.locate("/etc/passwd")


def test_read_only_folders_can_be_read_and_not_written() -> None:
    assert TABLE.locate("/mnt/docs/a")[0].read_only
    with pytest.raises(PathNotAllowed, match="write access to /mnt/docs is not allowed"):
        TABLE.locate("/mnt/docs/a", write=True)
    assert TABLE.locate("/mnt/docs/drafts/a", write=True)[1] == ("a",)


def test_host_paths_become_virtual_at_path_boundaries() -> None:
    text = "cat /srv/docs/a /srv/docs2 /srv/docs.bak /srv/docs: /data/t/user-data/outputs. /srv/drafts/x"
    assert TABLE.mask_host_paths(text) == (
        "cat /mnt/docs/a /srv/docs2 /srv/docs.bak /mnt/docs: /mnt/user-data/outputs. /mnt/docs/drafts/x"
    )


def test_normalizing_is_idempotent() -> None:
    assert normalize_path(normalize_path("a//b/./c")) == "/mnt/user-data/workspace/a/b/c"
