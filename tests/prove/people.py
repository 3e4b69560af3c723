"""The people of a proof, who write, edit, delete and press buttons, and remember their actions."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bus.locales import LANGUAGES
from tests.people.chat_user import Arrival, SentEvent, ShownMessage
from tests.prove.plan import Action, ActionKind, MessageKind, Plan, PlannedMessage
from tests.prove.platforms import Place, pick
from tests.prove.verdict import SentEdit, SentMessage

_STOP = frozenset(words.button_stop for words in LANGUAGES.values())


@dataclass(slots=True, kw_only=True)
class _SentMessage:
    planned: PlannedMessage
    place: Place
    event: SentEvent
    at: float
    edits: list[tuple[int, float, SentEvent]] = field(default_factory=list)
    deletion: SentEvent | None = None


class People:
    """Carries out people's actions according to the plan.

    Attributes:
        stops: When people pressed a stop button, by place, Unix seconds.
        presses: Number of button presses.
    """

    def __init__(self, plan: Plan, places: Mapping[str, Place]) -> None:
        self._plan = plan
        self._places = places
        self._sent: dict[str, _SentMessage] = {}
        self._waiting: list[SentEvent] = []
        self._seen: dict[str, list[ShownMessage]] = defaultdict(list)
        self.stops: dict[str, list[float]] = defaultdict(list)
        self.presses = 0

    async def carry_out(self, action: Action) -> None:
        """Carry out one action. Skips it if it is no longer possible."""
        place = self._places[action.place]
        match action.kind:
            case ActionKind.SEND:
                await self._send(place, self._plan.messages[action.message])
            case ActionKind.PRESS:
                await self._press(place, place.user.shown(), action.pick)
            case ActionKind.PRESS_OLD:
                await self._press(place, self._seen[place.name], action.pick)
            case ActionKind.EDIT:
                sent = self._sent[action.message]
                text = sent.planned.versions[action.version - 1]
                event = await place.user.edit(sent.event.message_id, text)
                sent.edits.append((action.version, time.time(), event))
                self._waiting.append(event)
            case ActionKind.DELETE:
                sent = self._sent[action.message]
                sent.deletion = await place.user.delete(sent.event.message_id)
                self._waiting.append(sent.deletion)

    def count_waiting(self) -> int:
        """Return the number of messages, edits and deletions that the bot has not acknowledged."""
        self._waiting = [one for one in self._waiting if one.arrival() is Arrival.WAITING]
        return len(self._waiting)

    def is_heard(self, place: str) -> bool:
        """Return whether the bot has acknowledged a person's message in a place ("" = in any)."""
        return any(
            one.event.arrival() is Arrival.CONFIRMED
            for one in self._sent.values()
            if one.planned.kind is MessageKind.CHAT and place in ("", one.planned.place)
        )

    def have_working_signs(self) -> bool:
        """Return whether any message has a working reaction."""
        return any(
            sent.place.user.working_signs(sent.event.message_id) for sent in self._sent.values()
        )

    def sent_messages(self) -> list[SentMessage]:
        """Return the sent messages with their current state on the platforms."""
        return [
            SentMessage(
                id=sent.planned.id,
                place=sent.place.name,
                channel=sent.place.traits.channel,
                chat=sent.place.user.chat,
                kind=sent.planned.kind,
                behavior=sent.planned.behavior,
                versions=sent.planned.versions,
                message_id=sent.event.message_id,
                answers=tuple(sent.event.answers()),
                sent_at=sent.at,
                arrival=sent.event.arrival(),
                edits=tuple(
                    SentEdit(version, at, event.arrival()) for version, at, event in sent.edits
                ),
                deletion=sent.deletion.arrival() if sent.deletion else None,
                working_signs=tuple(sent.place.user.working_signs(sent.event.message_id)),
                has_failed_sign=sent.place.user.has_failed_sign(sent.event.message_id),
            )
            for sent in self._sent.values()
        ]

    async def _send(self, place: Place, message: PlannedMessage) -> None:
        at, text = time.time(), message.versions[0]
        match message.kind:
            case MessageKind.FILE:
                event = await place.user.send_file(f"{message.id}v1.txt", text.encode())
            case MessageKind.ASIDE:
                event = await place.user.send(text, aside=True)
            case _:
                event = await place.user.enter(text)
        self._waiting.append(event)
        self._sent[message.id] = _SentMessage(planned=message, place=place, event=event, at=at)

    async def _press(self, place: Place, shown: Sequence[ShownMessage], share: float) -> None:
        buttons = [(message, label) for message in shown for label in message.buttons]
        if not buttons:
            return
        self._seen[place.name] = [message for message in shown if message.buttons]
        number = int(pick([str(index) for index in range(len(buttons))], share))
        message, label = buttons[number]
        if label in _STOP:
            self.stops[place.name].append(time.time())
        self.presses += 1
        await place.user.press(message, label)
