"""The contract between the bus and every platform's adapter: one suite that runs for each adapter."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
import pytest
from typing_extensions import override

from bus.errors import DeliveryError, IntakeClosed, IntakeFull
from bus.messages import InboundMessage
from bus.platform import Adapter, ConnectionState, SupportsMessageLookup, SupportsStreaming
from store.errors import StoreUnavailable
from tests.contracts.adapter_rig import (
    RETRY_AFTER_S,
    RemoteRig,
    Rig,
    linked,
    running,
    serving,
)
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake
from tests.people.chat_user import CallFailure

NUMBERED = re.compile(r"w\d+")

HOSTILE = {
    "calls to everybody": "<!channel> <!here> @everyone @here @all <at id=all></at> <@U1ANN>",
    "links": "[a](javascript:alert(1)) [b](tg://user?id=1) <https://a.b|c> [](x)",
    "unclosed": "```py\nx = 1\n**bold _and ~~more `than [that](",
    "surrogates": "a\ud800b\udfffc",
    "controls": "a\x00b\x1b[31mc\x7fd\u202ee\u2066f",
    "card tags": "<font color=red>r</font> {{x}} ${y} &lt;b&gt; </text_tag>",
    "one word": "x" * 9_000,
    "stars": "*a " * 3_000,
    "emoji": "👩\u200d🚀" * 2_000,
}
"""Text that a model can be made to produce and a person can write."""


def _received(rig: Rig, recorder: RecordingIntake, text: str) -> bool:
    return text in recorder.texts and rig.acknowledged()


class AdapterContract:
    """The suite. Each subclass sets its rig."""

    def make_rig(self) -> Rig:
        raise AssertionError("a subclass must set its rig")

    @pytest.fixture
    def rig(self) -> Rig:
        return self.make_rig()

    async def test_a_message_is_received_once_and_acknowledged(self, rig: Rig) -> None:
        recorder = RecordingIntake()
        async with serving(rig), running(rig.adapter(), recorder):
            await rig.say("hello there")
            await rig.say("and again")
            await eventually(lambda: len(recorder.received) >= 2 and rig.acknowledged())
        first, second = recorder.received
        assert sorted(recorder.texts) == ["and again", "hello there"]
        assert first.event_id != second.event_id
        assert first.message_id != second.message_id
        assert first.key == second.key
        assert first.key.channel == rig.name
        assert (first.is_private, first.is_addressed) == (True, True)
        assert first.sender.user_id
        assert not first.sender.is_bot

    @pytest.mark.parametrize("error", [IntakeFull(), IntakeClosed(), StoreUnavailable("the disk")])
    async def test_an_event_that_is_not_stored_is_not_acknowledged_and_is_delivered_again(
        self, rig: Rig, error: Exception
    ) -> None:
        recorder = RecordingIntake(errors=[error])
        async with serving(rig), running(rig.adapter(), recorder):
            await rig.say("hello")
            await eventually(lambda: recorder.offered)
            await eventually(lambda: recorder.received and rig.acknowledged())
        refused, *_, taken = recorder.offered
        assert recorder.received == [taken]
        assert replace(refused, sent_at=None) == replace(taken, sent_at=None)

    async def test_nothing_is_acknowledged_before_it_is_stored(self, rig: Rig) -> None:
        kept = anyio.Event()
        recorder = RecordingIntake(gates={"hello": kept})
        async with (
            serving(rig),
            running(rig.adapter(), recorder),
            anyio.create_task_group() as people,
        ):
            people.start_soon(rig.say, "hello")
            await eventually(lambda: recorder.offered)
            await rig.overtake(recorder)
            assert "hello" not in recorder.texts
            assert not rig.acknowledged()
            kept.set()
            await eventually(rig.acknowledged)
        ids = {inbound.event_id for inbound in recorder.received if inbound.text == "hello"}
        assert len(ids) == 1

    async def test_groups_are_distinguished_from_private_chats(self, rig: Rig) -> None:
        recorder = RecordingIntake()
        async with serving(rig), running(rig.adapter(), recorder):
            await rig.say("in private")
            if rig.rooms:
                await rig.chat_in_room("among ourselves")
                await rig.say_in_room("to the bot")
            expected = {"in private", "to the bot"} if rig.rooms else {"in private"}
            await eventually(lambda: expected <= set(recorder.texts) and rig.acknowledged())
        private = [inbound for inbound in recorder.received if inbound.text == "in private"]
        public = [inbound for inbound in recorder.received if inbound.text != "in private"]
        assert all(inbound.is_private and inbound.is_addressed for inbound in private)
        assert not any(inbound.is_private for inbound in public)
        assert {i.text for i in public if i.is_addressed} == expected - {"in private"}
        assert {inbound.key for inbound in private}.isdisjoint(inbound.key for inbound in public)

    async def test_a_sent_text_is_shown_once_and_unchanged(self, rig: Rig) -> None:
        async with self._talking(rig) as (adapter, inbound):
            text = "Hello from here: 100 %, 1 + 1 = 2. 你好 😀"
            assert await adapter.send(inbound.reply_target, text, key="k1")
            await eventually(lambda: rig.seen() == [text])
            if adapter.capabilities.idempotent_send_s > 0:
                await adapter.send(inbound.reply_target, text, key="k1")
                assert rig.seen() == [text]
            await adapter.send(inbound.reply_target, text, key="k2")
            await eventually(lambda: rig.seen().count(text) >= 2)

    async def test_answers_to_a_room_reach_it(self, rig: Rig) -> None:
        recorder = RecordingIntake()
        say = rig.say_in_room if rig.rooms else rig.say
        async with serving(rig), self._connected(rig, recorder) as adapter:
            await say("hello")
            await eventually(lambda: recorder.received)
            await adapter.send(recorder.received[0].reply_target, "for all of you", key="k1")
            await eventually(lambda: rig.seen() == ["for all of you"])

    async def test_a_long_reply_is_cut_into_pieces_that_lose_nothing(self, rig: Rig) -> None:
        prose = " ".join(f"w{number}" for number in range(3_000))
        code = "\n".join(f"w{number}" for number in range(3_000, 3_800))
        rows = "\n".join(f"| w{number} | b |" for number in range(3_800, 3_900))
        items = "\n".join(f"- **w{number}**" for number in range(3_900, 4_000))
        whole = (
            f"# Title\n\n{prose}\n\n```py\n{code}\n```\n\n| a | b |\n|---|---|\n{rows}\n\n{items}"
        )
        async with self._talking(rig) as (adapter, inbound):
            for number, piece in enumerate(adapter.split(whole)):
                await adapter.send(inbound.reply_target, piece, key=f"k{number}")
            await eventually(lambda: "w3999" in "".join(rig.seen()))
            shown = NUMBERED.findall("\n".join(rig.seen()))
        assert shown == [f"w{number}" for number in range(4_000)]

    async def test_splitting_gives_at_least_one_piece(self, rig: Rig) -> None:
        async with self._talking(rig) as (adapter, inbound):
            assert [len(adapter.split(text)) for text in ("", " ", "\n\n", "a")] == [1, 1, 1, 1]
            await adapter.send(inbound.reply_target, adapter.split("")[0], key="k1")
            await eventually(lambda: len(rig.seen()) == 1)

    @pytest.mark.parametrize("name", HOSTILE)
    async def test_a_hostile_reply_is_shown_and_does_nothing(self, rig: Rig, name: str) -> None:
        """The platform's server counts a live mention or a malformed request as a violation."""
        async with self._talking(rig) as (adapter, inbound):
            pieces = adapter.split(HOSTILE[name])
            for number, piece in enumerate(pieces):
                await adapter.send(inbound.reply_target, piece, key=f"k{number}")
            await eventually(lambda: len(rig.seen()) == len(pieces))
            assert all(rig.seen())

    @pytest.mark.parametrize("name", HOSTILE)
    async def test_a_hostile_message_is_received_and_harms_no_other(
        self, rig: Rig, name: str
    ) -> None:
        recorder = RecordingIntake()
        async with serving(rig), running(rig.adapter(), recorder):
            await rig.say(HOSTILE[name])
            await rig.say("still there?")
            await eventually(lambda: len(recorder.received) >= 2 and rig.acknowledged())
        assert "still there?" in recorder.texts
        assert all(inbound.is_private for inbound in recorder.received)

    async def test_a_card_grows_in_place(self, rig: Rig) -> None:
        async with self._talking(rig) as (adapter, inbound):
            if not adapter.capabilities.streaming:
                return  # The adapter is not asked to, either.
            assert isinstance(adapter, SupportsStreaming)
            card = await adapter.start_streaming(inbound.reply_target, "…", key="k1")
            await adapter.update_streaming(inbound.reply_target, card, "half an ans", final=False)
            await adapter.update_streaming(
                inbound.reply_target, card, "the whole answer", final=True
            )
            await eventually(lambda: rig.seen() and rig.seen()[-1] == "the whole answer")

    async def test_the_state_before_and_after_is_not_connected(self, rig: Rig) -> None:
        async with serving(rig):
            adapter = rig.adapter()
            assert adapter.health().state is not ConnectionState.CONNECTED
            async with running(adapter, RecordingIntake()):
                health = adapter.health()
                assert (health.state, health.detail) == (ConnectionState.CONNECTED, "")
                assert health.since > 0
            assert adapter.health().state is ConnectionState.STOPPED

    async def test_an_adapter_can_run_again(self, rig: Rig) -> None:
        recorder = RecordingIntake()
        async with serving(rig):
            adapter = rig.adapter()
            for text in ("first", "second"):
                async with running(adapter, recorder):
                    await rig.say(text)
                    await eventually(partial(_received, rig, recorder, text))
        assert set(recorder.texts) == {"first", "second"}

    @asynccontextmanager
    async def _talking(self, rig: Rig) -> AsyncIterator[tuple[Adapter, InboundMessage]]:
        """Run an adapter, and yield it with a private message that can be answered."""
        recorder = RecordingIntake()
        async with serving(rig), self._connected(rig, recorder) as adapter:
            await rig.say("hello")
            await eventually(lambda: recorder.received)
            yield adapter, recorder.received[0]

    @asynccontextmanager
    async def _connected(self, rig: Rig, recorder: RecordingIntake) -> AsyncIterator[Adapter]:
        adapter = rig.adapter()
        async with running(adapter, recorder):
            yield adapter


class RemoteContract(AdapterContract):
    """Further tests for platforms behind a network and a token."""

    @override
    def make_rig(self) -> RemoteRig:
        raise AssertionError("a subclass must set its rig")

    @override
    @pytest.fixture
    def rig(self) -> RemoteRig:
        return self.make_rig()

    async def test_a_server_error_means_not_sent(self, rig: RemoteRig) -> None:
        async with self._talking(rig) as (adapter, inbound):
            error = await self._refused(rig, CallFailure.FAILS, adapter, inbound)
            assert (error.retryable, error.ambiguous) == (True, False)
            await adapter.send(inbound.reply_target, "an answer", key="k1")
            assert rig.seen() == ["an answer"]

    async def test_a_rate_limit_names_the_wait(self, rig: RemoteRig) -> None:
        async with self._talking(rig) as (adapter, inbound):
            error = await self._refused(rig, CallFailure.REFUSED, adapter, inbound)
            assert (error.retryable, error.ambiguous) == (True, False)
            assert error.retry_after_s == RETRY_AFTER_S
            assert rig.seen() == []

    @pytest.mark.parametrize("how", [CallFailure.CUT_BEFORE, CallFailure.CUT_AFTER])
    async def test_a_lost_connection_is_ambiguous_unless_a_repeat_is_harmless(
        self, rig: RemoteRig, how: CallFailure
    ) -> None:
        async with self._talking(rig) as (adapter, inbound):
            error = await self._refused(rig, how, adapter, inbound)
            assert (error.retryable, error.ambiguous) == (True, True)
            found = None
            if isinstance(adapter, SupportsMessageLookup):
                found = await adapter.find_message(inbound.reply_target, key="k1", since=0.0)
                assert (found is not None) == (how is CallFailure.CUT_AFTER)
            if found is None:
                await adapter.send(inbound.reply_target, "an answer", key="k1")
            once = (
                isinstance(adapter, SupportsMessageLookup)
                or adapter.capabilities.idempotent_send_s > 0
            )
            expected = 1 if once or how is CallFailure.CUT_BEFORE else 2
            assert rig.seen() == ["an answer"] * expected

    async def test_no_error_contains_a_secret(self, rig: RemoteRig) -> None:
        async with self._talking(rig) as (_, inbound):
            adapter, secret = rig.intruder()
            with pytest.raises(DeliveryError) as caught:
                await adapter.send(inbound.reply_target, "an answer", key="k1")
        assert secret not in f"{caught.value} {caught.value.user_message}"

    async def test_a_wrong_secret_fails_with_what_to_do(self, rig: RemoteRig) -> None:
        async with serving(rig):
            adapter, secret = rig.intruder()
            async with running(adapter, RecordingIntake(), link=ConnectionState.FAILED):
                health = adapter.health()
        assert f"channels.{rig.name}." in health.detail
        assert secret not in health.detail

    async def test_a_lost_connection_is_reported_and_reopened_and_nothing_is_missed(
        self, rig: RemoteRig
    ) -> None:
        recorder = RecordingIntake()
        async with serving(rig), self._connected(rig, recorder) as adapter:
            await rig.go_away()
            health = await linked(adapter, ConnectionState.RECONNECTING, ConnectionState.CONNECTING)
            assert health.detail
            await rig.come_back()
            assert (await linked(adapter, ConnectionState.CONNECTED)).detail == ""
            await rig.say("are you back?")
            await eventually(lambda: recorder.received and rig.acknowledged())
        assert recorder.texts == ["are you back?"]

    async def test_a_run_that_is_canceled_while_it_keeps_a_message_loses_nothing(
        self, rig: RemoteRig
    ) -> None:
        hanging, recorder = RecordingIntake(gate=anyio.Event()), RecordingIntake()
        async with serving(rig), anyio.create_task_group() as people:
            async with running(rig.adapter(), hanging):
                people.start_soon(rig.say, "hello")
                await eventually(lambda: hanging.offered)
            assert not rig.acknowledged()
            adapter = rig.adapter()
            async with running(adapter, recorder):
                await eventually(lambda: recorder.received and rig.acknowledged())
        assert set(recorder.texts) == {"hello"}
        assert recorder.received[0].event_id == hanging.offered[0].event_id

    async def test_a_run_that_cannot_connect_ends_when_it_is_canceled(self, rig: RemoteRig) -> None:
        async with serving(rig):
            adapter = rig.adapter()
            await rig.go_away()
            async with running(adapter, RecordingIntake(), link=None):
                await eventually(lambda: adapter.health().detail)
        assert adapter.health().state in {ConnectionState.STOPPED, ConnectionState.FAILED}

    async def _refused(
        self, rig: RemoteRig, how: CallFailure, adapter: Adapter, inbound: InboundMessage
    ) -> DeliveryError:
        rig.fail_next_send(how)
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(inbound.reply_target, "an answer", key="k1")
        assert caught.value.user_message
        return caught.value
