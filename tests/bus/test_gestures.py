"""The messages of one gesture are one turn, with the parts in order, even if other messages arrive in between."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bus.config import BusConfig, ChannelPolicy, RateLimit, SessionConfig
from bus.inbound.gestures import MAX_PARTS, fits, is_incomplete, part_of, with_parts
from bus.locales.en import ENGLISH
from bus.messages import Attachment, InboundMessage, MessageDeletion, MessageEdit
from bus.platform import Disposition
from bus.runs.uploads import upload_filename
from tests.bus.harness import BusHarness, inbound_message, running_bus
from tests.bus.test_bus_approvals import APPROVE, asked, resumed
from tests.bus.test_uploads import DownloadingPlatform
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import ButtonPlatform, CardPlatform, PreviewPlatform

TEAM = ChannelPolicy(dm_policy="open", group_policy="mention")
LIMIT = 4096


def photo(number: int) -> dict[str, Any]:
    """Return the fields of a message with a picture."""
    file = Attachment(name="photo.jpg", mime="image/jpeg", kind="image", ref=f"p{number}")
    return {"attachments": (file,), "order": number}


def forward(words: str, order: int = 0) -> dict[str, Any]:
    """Return the fields of a forwarded message."""
    return {"quoted": f"[Forwarded]\n> Ann: {words}", "is_forwarded": True, "order": order}


def in_group(event: str, **changes: object) -> dict[str, Any]:
    """Return the fields of a message that begins a chain of replies."""
    return {
        "is_private": False,
        "is_addressed": False,
        "track_replies": True,
        "chat": "g",
        "topic": event,
        "event": event,
        **changes,
    }


def platform() -> DownloadingPlatform:
    made = DownloadingPlatform()
    made.content = {f"p{number}": [b"\xff\xd8\xff" + bytes([number])] for number in range(10)}
    made.content["r"] = [b"x"]
    return made


def uploaded(number: int) -> str:
    """Return a picture's name in the thread."""
    return upload_filename(photo(number)["attachments"][0])


def message_of(event: str, text: str = "", **changes: object) -> InboundMessage:
    return inbound_message(text, event, **changes)


# ---- the table --------------------------------------------------------------------------------

FILES = photo(1)
CUT: dict[str, Any] = {"text": "a" * LIMIT, "is_cut": True}
TEXT = {"text": "words"}
CAPTION = {**FILES, "text": "words"}
REPLY_WITH_FILE = {**CAPTION, "quoted": "> Ann: what she sent"}


@pytest.mark.parametrize(
    ("sent", "is_one"),
    [
        ((CUT, TEXT), True),
        ((CUT, CUT, TEXT), True),
        ((CUT, TEXT, TEXT), False),
        ((CUT, FILES), True),
        ((TEXT, TEXT), False),
        ((TEXT, CUT), False),
        ((TEXT, FILES, FILES), True),
        ((TEXT, forward("a"), forward("b")), True),
        ((TEXT, FILES, TEXT), False),
        ((TEXT, CAPTION), False),
        ((FILES, TEXT), True),
        ((FILES, TEXT, TEXT), False),
        ((FILES, TEXT, FILES), False),
        ((FILES, CUT, TEXT), True),
        ((FILES, CAPTION, FILES), True),
        ((CAPTION, TEXT), False),
        ((forward("a"), forward("b"), TEXT), True),
        ((forward("a"), {**forward("b"), **FILES}), True),
        ((REPLY_WITH_FILE, FILES), True),
        ((REPLY_WITH_FILE, TEXT), False),
        (({**FILES, "album": "A"}, {**FILES, "album": "B"}), False),
        (({**CAPTION, "album": "A"}, {**CAPTION, "album": "A"}), True),
        ((TEXT, {**FILES, "album": "A"}, {**CAPTION, "album": "A"}), True),
        ((TEXT, {**forward("a"), "album": "A"}, {**forward("b"), "album": "B"}), True),
        ((FILES, {**TEXT, "replies_to": ("x",)}), False),
        (({**FILES, "replies_to": ("x",)}, TEXT), True),
        (({**FILES, "replies_to": ("x",)}, {**TEXT, "replies_to": ("y",)}), False),
        (({**FILES, "sent_at": 100.0}, {**TEXT, "sent_at": 102.0}), True),
        (({**FILES, "sent_at": 100.0}, {**TEXT, "sent_at": 160.0}), False),
    ],
)
def test_which_messages_are_one_gesture(sent: tuple[dict[str, Any], ...], is_one: bool) -> None:
    first, *rest = [
        message_of(f"e{order}", **{**fields, "order": order})
        for order, fields in enumerate(sent, start=1)
    ]
    for ordered in (rest, rest[::-1]):
        parts, taken = [part_of(first)], True
        for message in ordered:
            taken = taken and fits(first, parts, message, came_at=0.0)
            parts.append(part_of(message))
        # If an album follows a comment, its first message to arrive must have no caption.
        if ordered is rest or (is_one and not first.album and not rest[0].album):
            assert taken is is_one


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        (TEXT, False),
        (CUT, True),
        (FILES, True),
        (CAPTION, True),
        (REPLY_WITH_FILE, False),
        (forward("a"), True),
        ({**TEXT, "album": "A"}, True),
        ({**FILES, "answers_row": 3}, False),
    ],
)
def test_these_messages_wait_for_further_parts(fields: dict[str, Any], waits: bool) -> None:
    assert is_incomplete(message_of("e", **fields)) is waits


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("x" * LIMIT, "y" * 704, "x" * LIMIT + "y" * 704),
        ("x" * 4000, "y", "x" * 4000 + "y"),
        ("word " * 800 + "end", "next", "word " * 800 + "end\nnext"),
        ("word " * 819 + "w", "ord", "word " * 819 + "word"),
        ("word " * 800, "next", "word " * 800 + "next"),
    ],
)
def test_a_paste_is_put_together_as_it_was(first: str, second: str, whole: str) -> None:
    message = message_of("a", first, is_cut=True)
    rest = message_of("b", second, order=1)
    assert with_parts(message, [part_of(rest), part_of(message)]).text == whole


# ---- one turn ---------------------------------------------------------------------------------


async def test_a_paste_of_two_messages_is_one_turn(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("a" * LIMIT, is_cut=True)
        await harness.send("b" * 704)
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["a" * LIMIT + "b" * 704]
        await harness.wait_until_finished()


async def test_a_text_that_only_looks_cut_is_answered_alone(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("a" * LIMIT, is_cut=True)
        await harness.expect_replies("Hello you")
        await harness.send("thanks")
        await harness.wait_for_runs(2)
        assert harness.prompts() == ["a" * LIMIT, "thanks"]


async def test_forwards_join_the_comment_that_is_being_answered(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.hold_next_run("never")
        await harness.send("who is right?", order=1)
        await harness.wait_for_runs(1)
        for number in (3, 2, 4):
            sent = harness.send("", **forward(f"message {number}", number))
            assert await sent is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        assert harness.prompts()[-1] == (
            "who is right?\n\n[Forwarded]\n> Ann: message 2\n\n"
            "[Forwarded]\n> Ann: message 3\n\n[Forwarded]\n> Ann: message 4"
        )
        await harness.wait_until_finished()
        assert len(harness.thread_messages()) == 2


async def test_forwards_join_a_comment_that_waits_for_another_answer(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("who is right?")
        await harness.send("", **forward("me"))
        await harness.send("", **forward("no, me"))
        await eventually(harness.unfinished_events, lambda events: events == ["e1", "e2"])
        gate.set()
        await harness.expect_replies("First", "Hello you")
        assert harness.prompts()[1] == (
            "who is right?\n\n[Forwarded]\n> Ann: me\n\n[Forwarded]\n> Ann: no, me"
        )


async def test_a_picture_and_its_words_are_one_turn(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await harness.send("", **photo(1))
        await eventually(harness.unfinished_events, lambda events: events == ["e1"])
        await harness.send("what is this?", order=2)
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["what is this?"]
        assert [name for _, name, _ in harness.gateway.uploads] == [uploaded(1)]


async def test_the_words_behind_a_picture_tell_the_language_of_the_answer(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        harness.server.scripts.append(Script(error={"error": "X", "message": "broken"}))
        await harness.send("", **photo(1))
        await harness.send("这张照片里是什么？", order=2)
        await eventually(lambda: harness.platform.texts)
        assert any("\u4e00" <= char <= "\u9fff" for char in harness.platform.texts[0])


async def test_each_caption_is_next_to_its_picture(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await harness.send("right", album="A", **photo(3))
        await harness.send("", album="A", **photo(1))
        await harness.send("left", album="A", **photo(2))
        await harness.expect_replies("Hello you")
        assert harness.prompts() == [f"[{uploaded(2)}] left\n[{uploaded(3)}] right"]
        files = [name for _, name, _ in harness.gateway.uploads]
        assert files == [uploaded(1), uploaded(2), uploaded(3)]


async def test_a_caption_names_its_picture_as_the_thread_does(tmp_path: Path) -> None:
    """The platform does not report a picture's type, so its bytes determine it."""
    async with running_bus(tmp_path, platform=platform()) as harness:
        for number, words in ((1, "before"), (2, "after")):
            file = replace(photo(number)["attachments"][0], name="image")
            await harness.send(words, attachments=(file,), order=number)
        await harness.expect_replies("Hello you")
        first, second = (name for _, name, _ in harness.gateway.uploads)
        assert first.endswith(".jpg")
        assert harness.prompts() == [f"[{first}] before\n[{second}] after"]


async def test_forwarded_pictures_keep_their_captions_and_origins(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        for number in (2, 1):
            await harness.send("", **{**photo(number), **forward(f"picture {number}", number)})
        await harness.expect_replies("Hello you")
        assert harness.prompts() == [
            f"[{uploaded(1)}]\n[Forwarded]\n> Ann: picture 1\n\n"
            f"[{uploaded(2)}]\n[Forwarded]\n> Ann: picture 2"
        ]


async def test_the_rest_that_comes_first_is_put_behind(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.hold_next_run("never")
        await harness.send("b", order=2)
        await harness.wait_for_runs(1)
        await harness.send("a" * LIMIT, is_cut=True, order=1)
        await harness.expect_replies("Hello you")
        assert harness.prompts()[-1] == "a" * LIMIT + "b"


async def test_a_steered_turn_is_run_again_with_its_files(tmp_path: Path) -> None:
    policy = ChannelPolicy(dm_policy="open", session=SessionConfig(busy="steer"))
    async with running_bus(tmp_path, platform=platform(), policy=policy) as harness:
        harness.server.accepts_injection = True
        harness.hold_next_run("never")
        await harness.send("what is this?")
        await harness.wait_for_runs(1)
        await harness.send("", **photo(1))
        await harness.expect_replies("Hello you")
        assert harness.server.runs[0].injected == []
        assert [name for _, name, _ in harness.gateway.uploads] == [uploaded(1)]


async def test_a_part_after_the_answer_began_is_the_next_message(tmp_path: Path) -> None:
    cards = CardPlatform("fake")
    async with running_bus(tmp_path, platform=cards) as harness:
        harness.server.scripts.append(Script(words=("Half", " done"), hang_after=1))
        await harness.send("who is right?")
        await eventually(lambda: "Half" in "".join(cards.texts))
        await harness.send("", **forward("me"))
        await harness.send("/stop")
        await harness.wait_for_runs(2)
        assert harness.prompts()[1] == "[Forwarded]\n> Ann: me"


async def test_a_part_after_a_draft_of_the_answer_is_the_next_message(tmp_path: Path) -> None:
    drafts = PreviewPlatform("fake")
    async with running_bus(tmp_path, platform=drafts) as harness:
        harness.server.scripts.append(Script(words=("Half", " done"), hang_after=1))
        await harness.send("who is right?")
        await eventually(lambda: any("Half" in text for _, text, _ in drafts.previewed))
        await harness.send("", **forward("me"))
        await harness.send("/stop")
        await harness.wait_for_runs(2)
        assert harness.prompts()[1] == "[Forwarded]\n> Ann: me"


async def test_a_card_without_words_yet_is_kept_for_the_whole_answer(tmp_path: Path) -> None:
    cards = CardPlatform("fake")
    async with running_bus(tmp_path, platform=cards) as harness:
        harness.hold_next_run("never")
        await harness.send("who is right?")
        await harness.wait_for_runs(1)  # Otherwise the second run would be held.
        await eventually(lambda: cards.texts == ["…"])
        await harness.send("", **forward("me"))
        await harness.expect_replies("Hello you")


# ---- messages in between ----------------------------------------------------------------------


async def test_two_texts_are_two_turns(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.hold_next_run("One").set()
        await harness.send("one")
        await harness.send("two")
        await harness.expect_replies("One", "Hello you")
        assert harness.prompts() == ["one", "two"]


async def test_another_persons_message_in_between_is_another_turn(tmp_path: Path) -> None:
    topic: dict[str, Any] = {"is_private": False, "chat": "g", "topic": "t"}
    async with running_bus(tmp_path, platform=platform(), policy=TEAM) as harness:
        await harness.send("", **{**photo(1), **topic})
        await harness.send("hello", user="other", **topic)
        await harness.send("", user="other", **{**photo(2), **topic})
        await harness.send("what is this?", **{**topic, "order": 2})
        await harness.wait_for_runs(2)
        # In the order of their first messages. The other person's picture belongs to their greeting.
        assert harness.prompts()[0] == "what is this?"
        await eventually(lambda: harness.prompts()[-1] == "hello")
        await harness.wait_until_finished()
        assert [name for _, name, _ in harness.gateway.uploads] == [uploaded(1), uploaded(2)]


async def test_a_command_in_between_does_not_wait_and_ends_the_gesture(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await harness.send("", **photo(1))
        await harness.send("/new")
        await eventually(lambda: ENGLISH.new_done in harness.platform.texts)
        await harness.send("what is this?")
        await harness.wait_for_runs(2)
        assert len(harness.server.threads) == 2


async def test_an_approval_is_no_part_of_a_gesture(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await asked(harness)
        harness.hold_next_run("Released")
        await harness.send("yes")
        await harness.wait_for_runs(2)
        await harness.send("", **forward("we can"))
        assert resumed(harness) == [{"decisions": [APPROVE]}]
        await harness.send("/stop")
        await harness.wait_for_runs(3)
        said = harness.server.runs[2].body["input"]["messages"][0]["content"]
        assert said == "[Forwarded]\n> Ann: we can"


async def test_a_picture_before_an_approval_is_not_part_of_it(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake")) as harness:
        await asked(harness)
        await harness.send("", **forward("what they said"))
        await harness.send("yes")
        await harness.wait_for_runs(3)
        assert harness.server.runs[2].body["input"]["messages"][0]["content"] == "yes"


async def test_another_topic_and_another_chat_are_other_places(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await harness.send("", **photo(1))
        await harness.send("elsewhere", chat="d")
        await harness.wait_for_runs(2)
        assert sorted(harness.prompts())[1] == "elsewhere"


# ---- groups -----------------------------------------------------------------------------------


async def test_forwards_behind_a_mention_are_for_the_bot(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=TEAM) as harness:
        harness.hold_next_run("never")
        await harness.send("who is right?", **in_group("e1", is_addressed=True))
        await harness.wait_for_runs(1)
        stranger = in_group("e2", user="other", **forward("spam"))
        assert await harness.send("", **stranger) is Disposition.NOT_ADDRESSED
        mine = in_group("e3", **forward("me"))
        assert await harness.send("", **mine) is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        assert harness.prompts()[-1] == "who is right?\n\n[Forwarded]\n> Ann: me"
        # A reply to the forward continues the conversation. Later messages to others are not for the bot.
        reply = in_group("e4", replies_to=("e3",))
        assert await harness.send("why?", **reply) is Disposition.ACCEPTED
        await harness.wait_for_runs(3)
        assert len(harness.server.threads) == 1
        await harness.wait_until_finished()
        other = in_group("e5", **forward("later"))
        assert await harness.send("", **other) is Disposition.NOT_ADDRESSED


async def test_parts_before_the_mention_belong_to_it(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform(), policy=TEAM) as harness:
        for number in (1, 2):
            early = in_group(f"e{number}", **photo(number))
            assert await harness.send("", **early) is Disposition.NOT_ADDRESSED
        harness.clock.ahead += 5.0
        await harness.send("compare", **in_group("e3", is_addressed=True, order=3))
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["compare"]
        assert [name for _, name, _ in harness.gateway.uploads] == [uploaded(1), uploaded(2)]
        reply = in_group("e4", replies_to=("e1",))
        assert await harness.send("and the first?", **reply) is Disposition.ACCEPTED
        await harness.wait_for_runs(2)
        assert len(harness.server.threads) == 1


async def test_a_mention_without_words_is_about_what_came_before_it(tmp_path: Path) -> None:
    bare = {"is_addressed": True, "is_bare_mention": True}
    async with running_bus(tmp_path, platform=platform(), policy=TEAM) as harness:
        for number, words in ((1, "one"), (2, "two")):
            early = in_group(f"e{number}", **forward(words, number))
            assert await harness.send("", **early) is Disposition.NOT_ADDRESSED
        await harness.send("/help", **in_group("e3", order=3, **bare))
        await harness.wait_for_runs(1)
        [prompt] = harness.prompts()
        assert prompt.index("one") < prompt.index("two")
        await harness.wait_until_finished()
        await harness.send("/help", **in_group("e4", order=4, **bare))
        await harness.wait_until_finished()
        assert (
            len(harness.prompts()) == 1
        )  # Nothing came before it, so the bot answers with the help.


async def test_words_to_others_end_what_was_kept_and_what_was_begun(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform(), policy=TEAM) as harness:
        await harness.send("", **in_group("e1", **photo(1)))
        await harness.send("lunch?", **in_group("e2"))
        harness.hold_next_run("One")
        await harness.send("hello", **in_group("e3", is_addressed=True))
        await harness.wait_for_runs(1)
        await harness.send("sorry, all", **in_group("e4"))
        late = in_group("e5", **photo(2))
        assert await harness.send("", **late) is Disposition.NOT_ADDRESSED
        assert harness.gateway.uploads == []


async def test_an_album_whose_last_caption_mentions_the_bot(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform(), policy=TEAM) as harness:
        last = in_group("e3", is_addressed=True, album="A", **photo(3))
        await harness.send("what are they?", **last)
        for number in (1, 2):
            early = in_group(f"e{number}", album="A", **photo(number))
            assert await harness.send("", **early) is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        assert harness.prompts() == [f"[{uploaded(3)}] what are they?"]
        files = [name for _, name, _ in harness.gateway.uploads]
        assert files == [uploaded(1), uploaded(2), uploaded(3)]


# ---- changes ----------------------------------------------------------------------------------


async def edit(harness: BusHarness, message: str, text: str, **changes: object) -> Disposition:
    edited = replace(inbound_message(text, f"edit of {message}", **changes), message_id=message)
    change = MessageEdit(
        event_id=edited.event_id, key=edited.key, message_id=message, edited=edited
    )
    return await harness.bus.intake.handle_edit(change)


async def delete(harness: BusHarness, message: str) -> Disposition:
    key = inbound_message("", "").key
    deletion = MessageDeletion(event_id=f"{message} gone", key=key, message_id=message)
    return await harness.bus.intake.handle_deletion(deletion)


async def test_the_second_half_of_a_paste_is_edited(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.hold_next_run("never")
        await harness.send("a" * LIMIT, is_cut=True, event="a")
        await harness.send("worng", event="b")
        await harness.wait_for_runs(1)
        assert await edit(harness, "b", "right") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        assert harness.prompts()[-1] == "a" * LIMIT + "right"


async def test_a_part_is_edited_or_deleted_while_the_rest_is_awaited(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        for number, words in ((1, "left"), (2, "rihgt"), (3, "gone")):
            await harness.send(words, event=f"m{number}", **photo(number))
        await eventually(harness.unfinished_events, lambda events: events == ["m1"])
        right = await edit(harness, "m2", "right", attachments=photo(2)["attachments"])
        assert right is Disposition.ACCEPTED
        assert await delete(harness, "m3") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        assert harness.prompts() == [f"[{uploaded(1)}] left\n[{uploaded(2)}] right"]
        assert await delete(harness, "m2") is Disposition.UNCHANGED


async def test_a_forward_is_deleted_from_a_turn_that_runs(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.hold_next_run("never")
        await harness.send("", event="f1", **forward("one"))
        await harness.send("", event="f2", **forward("two"))
        await harness.wait_for_runs(1)
        assert await delete(harness, "f1") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")
        assert harness.prompts()[-1] == "[Forwarded]\n> Ann: two"


async def test_a_part_of_an_answered_gesture_is_edited(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("a" * LIMIT, is_cut=True, event="a")
        await harness.send("worng", event="b")
        await harness.expect_replies("Hello you")
        await harness.wait_until_finished()
        assert await edit(harness, "b", "right") is Disposition.ACCEPTED
        await eventually(lambda: len(harness.platform.texts) == 2)
        await harness.send("/retry")
        await harness.wait_for_runs(2)
        assert harness.prompts()[-1] == "a" * LIMIT + "right"


# ---- limits, faults, restarts -----------------------------------------------------------------


async def test_a_gesture_is_never_refused_half_way(tmp_path: Path) -> None:
    limited = BusConfig(
        drain_s=0.2, max_queue=2, rate_limit=RateLimit(messages=2, per_seconds=60.0)
    )
    async with running_bus(tmp_path, config=limited) as harness:
        for number in range(MAX_PARTS + 1):
            sent = harness.send("", **forward(f"m{number}", number + 1))
            assert await sent is Disposition.ACCEPTED
        await harness.expect_replies("Hello you", "Hello you")
        assert harness.prompts()[0].count("[Forwarded]") == MAX_PARTS
        assert await harness.send("and?") is Disposition.RATE_LIMITED


async def test_a_part_that_comes_twice_counts_once(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("", event="f1", **forward("one"))
        await harness.send("", event="f2", **forward("two"))
        for event in ("f1", "f2", "again"):
            message = replace(
                inbound_message("", event, **forward("two")),
                message_id="f1" if event == "f1" else "f2",
            )
            assert await harness.bus.intake.receive(message) is Disposition.DUPLICATE
        await harness.expect_replies("Hello you")
        assert harness.prompts()[0].count("[Forwarded]") == 2


async def test_a_restart_between_the_parts_loses_nothing(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, platform=platform(), server=server) as harness:
            await harness.send("", event="a", sent_at=100.0, **photo(1))
        assert server.runs == []
        async with running_bus(tmp_path, platform=platform(), server=server) as harness:
            await harness.send("what is this?", event="b", sent_at=100.5, order=2)
            await harness.expect_replies("Hello you")
            assert harness.prompts() == ["what is this?"]
            assert len(harness.gateway.uploads) == 1


async def test_parts_that_were_not_joined_before_a_restart_are_joined_after_it(
    tmp_path: Path,
) -> None:
    async with FakeLangGraph() as server:
        server.scripts.append(Script(hang_after=0))
        async with running_bus(tmp_path, server=server) as harness:
            await harness.send("who is right?", event="a", sent_at=100.0)
            await harness.wait_for_runs(1)
        async with running_bus(tmp_path, server=server) as harness:
            await harness.send("", event="b", sent_at=100.4, **forward("me"))
            await harness.expect_replies("Hello you")
            assert harness.prompts()[-1] == "who is right?\n\n[Forwarded]\n> Ann: me"


async def test_messages_delivered_hours_late_are_not_a_gesture(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=platform()) as harness:
        await harness.send("", sent_at=1_000.0, **photo(1))
        await harness.send("good evening", sent_at=9_000.0)
        await harness.wait_for_runs(2)
        assert harness.prompts()[1] == "good evening"
