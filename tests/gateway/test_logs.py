"""Log lines and their redaction."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in logs.QUIET_LOGGERS}
    for handler in handlers:
        root.removeHandler(handler)
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.mark.parametrize("style", ["console", "json"])
def test_no_secret_reaches_the_log(tmp_path: Path, style: str) -> None:
    file = tmp_path / "folder" / "parley.log"
    logs.configure_logging("info", style, secrets=["hush-hush"], file=file)  # type: ignore[arg-type]
    log = logging.getLogger("test")
    log.info("the token is %s", "hush-hush")
    log.info("POST https://api.telegram.org/bot12345:AAabcdefgh-1/getMe")
    log.info("slack says %s and xapp-1-A0-abcdef", "xoxb-123456-abcdef")
    log.info("Authorization: Bearer abcdefgh12345")
    log.error("failed", exc_info=ValueError("hush-hush in an error"))
    text = file.read_text()
    assert text.count("***") >= 6
    for secret in ("hush-hush", "AAabcdefgh", "xoxb-", "xapp-", "abcdefgh12345"):
        assert secret not in text
    assert "ValueError" in text


def test_json_is_one_object_a_line(tmp_path: Path) -> None:
    file = tmp_path / "parley.log"
    logs.configure_logging("warning", "json", secrets=[], file=file)
    log = logging.getLogger("test")
    log.info("not written")
    log.warning("two\nlines %s", "你好")
    (line,) = file.read_text().splitlines()
    fields = json.loads(line)
    assert fields["message"] == "two\nlines 你好"
    assert (fields["level"], fields["logger"]) == ("warning", "test")
    assert fields["time"].endswith("+00:00")


def test_chatty_libraries_are_kept_down(tmp_path: Path) -> None:
    file = tmp_path / "parley.log"
    logs.configure_logging("debug", "auto", secrets=[], file=file)
    for name in ("httpx", "httpx2", "mcp.client.streamable_http"):
        logging.getLogger(name).info("GET https://api.example/secret-path")
    assert file.read_text() == ""


def test_configuring_again_replaces(tmp_path: Path) -> None:
    for name in ("a", "b"):
        logs.configure_logging("info", "console", secrets=[], file=tmp_path / name)
    logging.getLogger("test").info("once")
    assert (tmp_path / "a").read_text() == ""
    assert "once" in (tmp_path / "b").read_text()


def test_text_from_outside_cannot_look_like_a_record(tmp_path: Path) -> None:
    file = tmp_path / "parley.log"
    logs.configure_logging("info", "console", secrets=[], file=file)
    forged = "x\n12:00:00 INFO    gateway: all is well\r\x1b[2J\u2028end"
    logging.getLogger("test").warning("message of %s", forged)
    logging.getLogger("test").error("failed", exc_info=ValueError(forged))
    lines = file.read_text().splitlines()
    assert [line for line in lines if line[:1].isdigit() and "all is well" in line] == []
    assert "\\r\\x1b[2J\\u2028end" in lines[1]


def test_the_log_file_is_limited_in_size(tmp_path: Path) -> None:
    file = tmp_path / "parley.log"
    logs.configure_logging("info", "console", secrets=[], file=file)
    line = "x" * 1_000_000
    for _ in range(42):
        logging.getLogger("test").info(line)
    sizes = [one.stat().st_size for one in tmp_path.iterdir()]
    assert len(sizes) == 1 + logs.MAX_ROTATED_FILES
    assert sum(sizes) <= len(sizes) * logs.MAX_FILE_BYTES
