"""Forwards events to the node that owns their chat if they depend on that node's memory.

Presses, edits and deletions act on turns. A group message without a mention may be part of a gesture that contains a
mention. An answer that is not a reply may depend on an earlier question.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any, TypeVar

import anyio
from pydantic import TypeAdapter
from typing_extensions import override

from bus.access.expected_replies import may_answer_plainly
from bus.errors import IntakeClosed, IntakeFull
from bus.inbound.gestures import is_incomplete
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    PressResponse,
    Sender,
    decode_inbound,
    encode_inbound,
)
from bus.platform import Disposition, Intake
from store.chat_owners import ChatOwners
from store.errors import StoreUnavailable
from store.node_calls import NodeCalls

T = TypeVar("T")

FORWARD_S = 12.0
"""How long to offer an event to the owner of its chat, seconds. In this time, another node replaces a frozen owner."""

MESSAGE_S = 2.0
"""How long to offer a message to the owner, seconds. Then this node accepts it, and the owner finds its row."""

PAUSE_S = 0.2
"""Pause between two attempts, seconds."""

PRESS, EDIT, DELETION, MESSAGE = "press", "edit", "deletion", "message"

log = logging.getLogger(__name__)


class ForwardingIntake(Intake):
    """Forwards events that depend on the memory of their chat's owner to that node, and handles all others here.

    If an answer is lost, an event may be forwarded twice. As with events that platforms repeat, the record of the first
    one makes the second one harmless.

    Args:
        intake: Handles events on this node, including those from other nodes.
        owners: Knows which node owns a chat.
        calls: Calls to the other nodes.
    """

    def __init__(self, intake: Intake, *, owners: ChatOwners, calls: NodeCalls) -> None:
        self._intake = intake
        self._owners = owners
        self._calls = calls
        self._serve(MESSAGE, self._receive_encoded)
        self._serve(PRESS, self._press_encoded)
        self._serve(EDIT, self._edit_encoded)
        self._serve(DELETION, self._delete_encoded)

    @override
    def divide_limit(self, limit: int) -> int:
        return self._intake.divide_limit(limit)

    @override
    def exclusive(
        self, name: str, on_wait: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[None]:
        return self._intake.exclusive(name, on_wait)

    @override
    async def has_conversation(self, key: ConversationKey) -> bool:
        return await self._intake.has_conversation(key)

    @override
    async def receive(self, inbound: InboundMessage) -> Disposition:
        if not _needs_owner(inbound):
            return await self._intake.receive(inbound)
        owner = await self._owners.claim(inbound.key)
        if owner != self._owners.number:
            try:
                body = encode_inbound(inbound)
                return Disposition(await self._call(owner, MESSAGE, body, within_s=MESSAGE_S))
            except (StoreUnavailable, IntakeClosed) as error:
                log.warning(
                    "node %s did not take a message (%s), so this node accepts it", owner, error
                )
        return await self._intake.receive(inbound)

    @override
    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        def decode(response: str) -> PressResponse:
            text, urgent = json.loads(response)
            return PressResponse(text=text, urgent=urgent)

        return await self._forward(PRESS, press, self._intake.handle_button_press, decode)

    @override
    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        return await self._forward(EDIT, edit, self._intake.handle_edit, Disposition)

    @override
    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        return await self._forward(DELETION, deletion, self._intake.handle_deletion, Disposition)

    @override
    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        await self._intake.handle_bot_added(key, added_by)

    @override
    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        await self._intake.migrate_chat(channel, workspace, old_chat, new_chat)

    @override
    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        self._intake.report_ignored(channel, reason, detail)

    async def _receive_encoded(self, body: str) -> str:
        return await self._intake.receive(decode_inbound(body))

    async def _press_encoded(self, body: str) -> str:
        press = _adapters()[PRESS].validate_json(body)
        response = await self._intake.handle_button_press(press)
        return json.dumps([response.text, response.urgent])

    async def _edit_encoded(self, body: str) -> str:
        return await self._intake.handle_edit(_adapters()[EDIT].validate_json(body))

    async def _delete_encoded(self, body: str) -> str:
        return await self._intake.handle_deletion(_adapters()[DELETION].validate_json(body))

    async def _forward(
        self,
        method: str,
        event: Any,  # noqa: ANN401 - one of the events above
        handle: Callable[[Any], Awaitable[T]],
        decode: Callable[[str], T],
    ) -> T:
        """Return the owner's result.

        `handle` is called if this node is the owner. Raises like `handle`, and StoreUnavailable.
        """
        give_up_at = anyio.current_time() + FORWARD_S
        while True:
            key: ConversationKey = event.key
            owner = await self._owners.claim(key)
            if owner == self._owners.number:
                return await handle(event)
            try:
                body = _adapters()[method].dump_json(event).decode()
                return decode(await self._call(owner, method, body))
            except (StoreUnavailable, IntakeClosed) as error:
                if anyio.current_time() > give_up_at:
                    raise
                log.info("node %s did not take an event (%s); trying again", owner, error)
                await anyio.sleep(PAUSE_S)

    async def _call(self, owner: int, method: str, body: str, *, within_s: float = 5.0) -> str:
        """Return the result of a call. Raises StoreUnavailable, IntakeFull, IntakeClosed."""
        answer = await self._calls.call(owner, f"bus.{method}", body, within_s=within_s)
        error, result = json.loads(answer)
        if error == "full":
            raise IntakeFull
        if error == "closed":
            raise IntakeClosed
        return str(result)

    def _serve(self, method: str, handle: Callable[[str], Awaitable[str]]) -> None:
        async def served(body: str) -> str:
            try:
                return json.dumps(["", await handle(body)])
            except IntakeFull:
                return json.dumps(["full", ""])
            except IntakeClosed:
                return json.dumps(["closed", ""])

        self._calls.serve(f"bus.{method}", served)


def _needs_owner(message: InboundMessage) -> bool:
    """Return whether a message may depend on a gesture or a question in the owner's memory.

    A part that addresses the bot is accepted here. The owner then joins its row to the gesture.
    """
    is_loose_part = is_incomplete(message) and not message.is_addressed
    return is_loose_part or may_answer_plainly(message)


@cache
def _adapters() -> Mapping[str, TypeAdapter[Any]]:
    """Return the encoder of each kind of event. They are created on first use, because a single node needs none."""
    return {
        PRESS: TypeAdapter(ButtonPress),
        EDIT: TypeAdapter(MessageEdit),
        DELETION: TypeAdapter(MessageDeletion),
    }
