"""An intake for tests of adapters. It records events, and rejects them or waits on demand."""

from dataclasses import dataclass, field

import anyio
from typing_extensions import override

from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    PressResponse,
    Sender,
)
from bus.platform import Disposition, Intake


@dataclass
class RecordingIntake(Intake):
    """Accepts everything.

    Attributes:
        received: Accepted messages.
        offered: Messages as they were delivered, accepted or not.
        pressed: Accepted button presses.
        offered_presses: Button presses as they were delivered, accepted or not.
        changed: Edits and deletions.
        added: (chat, user, kind of user) of each group that the bot was added to.
        migrated: (workspace, old chat, new chat) of each migrated group.
        ignored: (reason, detail) of each event that the adapter ignored.
        errors: Raised by the next calls instead of accepting, the first one first.
        gate: Messages are accepted when it is set; None = at once.
        gates: Like `gate`, for single messages by their text and presses by their token.
        response: The answer to a button press.
    """

    received: list[InboundMessage] = field(default_factory=list)
    offered: list[InboundMessage] = field(default_factory=list)
    pressed: list[ButtonPress] = field(default_factory=list)
    offered_presses: list[ButtonPress] = field(default_factory=list)
    changed: list[MessageEdit | MessageDeletion] = field(default_factory=list)
    added: list[tuple[str, str, str]] = field(default_factory=list)
    migrated: list[tuple[str, str, str]] = field(default_factory=list)
    ignored: list[tuple[Disposition, str]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    gate: anyio.Event | None = None
    gates: dict[str, anyio.Event] = field(default_factory=dict)
    response: PressResponse = field(default_factory=lambda: PressResponse(text="pressed"))

    @property
    def texts(self) -> list[str]:
        """The texts of the accepted messages."""
        return [inbound.text for inbound in self.received]

    @property
    def offered_ids(self) -> list[str]:
        """The event ids of the messages that were delivered."""
        return [inbound.event_id for inbound in self.offered]

    @override
    async def has_conversation(self, key: ConversationKey) -> bool:
        return False

    @override
    async def receive(self, inbound: InboundMessage) -> Disposition:
        self.offered.append(inbound)
        if self.gate is not None:
            await self.gate.wait()
        if inbound.text in self.gates:
            await self.gates[inbound.text].wait()
        self._raise_next()
        self.received.append(inbound)
        return Disposition.ACCEPTED

    @override
    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        self.offered_presses.append(press)
        if press.token in self.gates:
            await self.gates[press.token].wait()
        self._raise_next()
        self.pressed.append(press)
        return self.response

    @override
    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        self.changed.append(edit)
        return Disposition.ACCEPTED

    @override
    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        self.changed.append(deletion)
        return Disposition.ACCEPTED

    @override
    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        self._raise_next()
        self.added.append((key.chat, added_by.user_id, added_by.kind))

    @override
    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        self._raise_next()
        self.migrated.append((workspace, old_chat, new_chat))

    @override
    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        assert channel
        assert len(detail) < 1000
        self.ignored.append((reason, detail))

    def _raise_next(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
