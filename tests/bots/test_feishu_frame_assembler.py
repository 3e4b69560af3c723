"""Small parts of the Feishu adapter (the SDK import, frames, reassembly, delays, cards), and the fake itself."""

import pytest

from bots.feishu import cards
from bots.feishu.frame_assembler import FrameAssembler
from bots.feishu.rest import FeishuApp
from bots.feishu.sdk import Frame, FrameCodec, FrameError
from gateway.playground.feishu import cards as feishu_cards
from gateway.playground.feishu import wire as feishu_wire
from gateway.playground.feishu.cards import InvalidCard


def test_frames_agree_with_an_independent_codec() -> None:
    codec = FrameCodec()
    frame = Frame(
        seq_id=2**40, log_id=2**63, service=2**31 - 1, method=1, headers={"type": "event", "名": "值"},
        payload=bytes(range(256)), log_id_new="log",
    )  # fmt: skip
    assert codec.decode(codec.encode(frame)) == frame
    seen = feishu_wire.decode(codec.encode(frame))
    assert (seen.seq_id, seen.log_id, seen.service, seen.method) == (2**40, 2**63, 2**31 - 1, 1)
    assert (seen.headers, seen.payload, seen.log_id_new) == (
        dict(frame.headers),
        frame.payload,
        "log",
    )
    assert seen.missing == set()
    assert codec.decode(feishu_wire.encode(seen)) == frame


@pytest.mark.parametrize(
    "data", [b"\x08", b"\xff" * 20, b"hello", b"\x2a\x05\x0a\x01\xff\x12\x00", b"\x7b" * 5000]
)
def test_data_that_is_not_a_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameCodec().decode(data)


def part(name: str, number: int | str, total: int | str, payload: bytes = b"x") -> Frame:
    return Frame(
        headers={"message_id": name, "sum": str(total), "seq": str(number)}, payload=payload
    )


def test_parts_are_joined_in_order_however_they_arrive() -> None:
    parts = FrameAssembler(keep_s=5)
    assert parts.add(part("a", 2, 3, b"3")) is None
    assert parts.add(part("b", 0, 2, b"x")) is None
    assert parts.add(part("a", 0, 3, b"1")) is None
    assert parts.add(part("a", 0, 3, b"1")) is None
    assert parts.add(part("a", 1, 3, b"2")) == b"123"
    assert parts.add(part("b", 1, 2, b"y")) == b"xy"


@pytest.mark.parametrize("total", ["", "0", "1", "-1", "x", "1" * 400])
def test_a_frame_without_a_sensible_number_of_parts_is_whole(total: str) -> None:
    assert FrameAssembler(keep_s=5).add(part("a", 0, total)) == b"x"


@pytest.mark.parametrize(("number", "total"), [(5, 3), (0, 100_000)])
def test_impossible_parts_are_dropped(number: int, total: int) -> None:
    assert FrameAssembler(keep_s=5).add(part("a", number, total)) is None


def test_parts_that_stay_alone_are_forgotten() -> None:
    clock = [0.0]
    parts = FrameAssembler(keep_s=5, clock=lambda: clock[0])
    parts.add(part("a", 0, 2, b"old"))
    clock[0] = 6.0
    parts.add(part("b", 0, 2))
    assert parts.add(part("a", 1, 2, b"new")) is None


def test_unfinished_parts_are_bounded_in_bytes() -> None:
    parts = FrameAssembler(keep_s=1e9)
    for number in range(12):
        parts.add(part(f"m{number}", 0, 2, b"x" * 2_000_000))
    assert parts.add(part("m0", 1, 2, b"y")) is None
    assert parts.add(part("m11", 1, 2, b"y")) == b"x" * 2_000_000 + b"y"


@pytest.mark.parametrize(
    ("domain", "local"),
    [
        ("https://open.feishu.cn", False),
        ("https://open.larksuite.com", False),
        ("http://127.0.0.1:9", True),
        ("http://localhost:9", True),
        ("http://[::1]:9", True),
        ("not a url", False),
    ],
)
def test_local_servers_are_known(domain: str, local: bool) -> None:
    app = FeishuApp(app_id="cli_1", app_secret="hidden", domain=domain)
    assert app.local is local
    assert "hidden" not in repr(app)


def test_cards_are_what_the_platform_takes() -> None:
    for card in (
        cards.final_card("text"), cards.final_card(""), cards.progress_card(""), cards.progress_card("text"),
        cards.plain_text_card("text", final=True), cards.plain_text_card("", final=False),
    ):  # fmt: skip
        assert feishu_cards.check(card) == card


def element(**fields: object) -> dict[str, object]:
    return {"schema": "2.0", "config": {"update_multi": True}, "body": {"elements": [fields]}}


TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n\n"


@pytest.mark.parametrize(
    "card",
    [
        {"elements": [{"tag": "markdown", "content": "x"}]},
        element(tag="note", elements=[]),
        element(tag="markdown"),
        element(tag="markdown", content="x", colour="red"),
        element(tag="div", text={"tag": "plain_text", "content": "x", "size": 1}),
        element(tag="markdown", content=TABLE * 4),
        element(tag="markdown", content="x") | {"extra": 1},
        [],
    ],
)
def test_the_fake_refuses_what_the_platform_refuses(card: object) -> None:
    with pytest.raises(InvalidCard):
        feishu_cards.check(card)


def test_the_fake_does_not_count_tables_in_code() -> None:
    card = element(tag="markdown", content=TABLE * 3 + "```\n" + TABLE * 3 + "```")
    assert feishu_cards.check(card) == card
