"""An in-memory chat platform with an adapter. It records visible messages, and fails on demand."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
from anyio.abc import TaskStatus
from typing_extensions import override

from bus.errors import DeliveryError
from bus.messages import Button, MessageId, ReplyTarget
from bus.platform import (
    Capabilities,
    ChannelHealth,
    ConnectionState,
    Intake,
    OutgoingFile,
    WorkShown,
)
from tests.eventually import WITHIN_S

PART_CHARS = 800


@dataclass
class ShownMessage:
    """A message with its current content."""

    id: str
    chat: str
    text: str
    key: str
    final: bool = True
    edits: int = 0
    buttons: tuple[Button, ...] = ()


@dataclass(frozen=True)
class PlannedFailure:
    """A scripted failure of a method's next call, before or after it takes effect."""

    error: Exception
    after_effect: bool = False


class FakePlatform:
    """The minimal platform: final replies only, without idempotency and lookup."""

    def __init__(self, name: str = "fake", capabilities: Capabilities | None = None) -> None:
        self._name = name
        self._capabilities = capabilities or Capabilities(streaming=False, send_interval_s=0.0)
        self.shown: list[ShownMessage] = []
        self.files: list[tuple[str, bytes]] = []
        self.calls: list[str] = []
        self.changed = anyio.Event()
        self.intake: Intake | None = None
        self.when_sent: Callable[[], object] | None = None
        self._failures: dict[str, deque[PlannedFailure]] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def fail(
        self, method: str, error: Exception, *, times: int = 1, after_effect: bool = False
    ) -> None:
        """Make the next `times` calls of `method` raise."""
        queue = self._failures.setdefault(method, deque())
        queue.extend([PlannedFailure(error, after_effect)] * times)

    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        self.intake = intake
        task_status.started()
        await anyio.sleep_forever()

    def health(self) -> ChannelHealth:
        return ChannelHealth(state=ConnectionState.CONNECTED)

    def split(self, markdown: str) -> Sequence[str]:
        if failures := self._failures.get("split"):
            raise failures.popleft().error
        pieces = [markdown[i : i + PART_CHARS] for i in range(0, len(markdown), PART_CHARS)]
        return pieces or [""]

    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        failure = self._called("send")
        message = self._show(place, markdown, key)
        self._raise(failure)
        return message

    async def send_file(self, place: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        failure = self._called("send_file")
        data = await anyio.Path(file.path).read_bytes()
        self.files.append((file.name, data))
        self._tell()
        self._raise(failure)
        return MessageId(f"f{len(self.files)}")

    @property
    def texts(self) -> list[str]:
        """The visible texts, in order."""
        return [message.text for message in self.shown]

    async def until(self, count: int, *, within_s: float = WITHIN_S) -> None:
        """Wait until `count` messages are shown."""
        with anyio.fail_after(within_s):
            while len(self.shown) < count:
                await self.changed.wait()

    def _show(self, place: ReplyTarget, text: str, key: str) -> MessageId:
        message = ShownMessage(id=f"m{len(self.shown) + 1}", chat=place.chat, text=text, key=key)
        self.shown.append(message)
        if self.when_sent is not None:
            self.when_sent()
        self._tell()
        return MessageId(message.id)

    def _edit(self, message: MessageId, markdown: str, buttons: Sequence[Button]) -> None:
        failure = self._called("edit")
        shown = next((m for m in self.shown if m.id == message), None)
        if shown is None:
            raise DeliveryError("the message is gone", target_gone=True)
        shown.text, shown.buttons = markdown, tuple(buttons)
        self._tell()
        self._raise(failure)

    def _called(self, method: str) -> PlannedFailure | None:
        self.calls.append(method)
        queue = self._failures.get(method)
        failure = queue.popleft() if queue else None
        if failure is not None and not failure.after_effect:
            raise failure.error
        return failure

    def _raise(self, failure: PlannedFailure | None) -> None:
        if failure is not None:
            raise failure.error

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class FindingPlatform(FakePlatform):
    """A platform on which sent messages can be looked up by their key, as on Slack."""

    async def find_message(self, place: ReplyTarget, *, key: str, since: float) -> MessageId | None:
        self._raise(self._called("find"))
        return next((MessageId(m.id) for m in self.shown if m.key == key), None)


class CardPlatform(FakePlatform):
    """A platform on which messages grow in place and repeated keys are dropped for an hour, as on Feishu."""

    def __init__(self, name: str = "cards", patch_interval_s: float = 0.01) -> None:
        super().__init__(
            name,
            Capabilities(
                streaming=True,
                stream_interval_s=patch_interval_s,
                send_interval_s=0.0,
                idempotent_send_s=3600.0,
                edits_can_overtake=True,
            ),
        )
        self.frames: list[tuple[str, str, bool]] = []
        self.indicators: list[str] = []
        self.marks: dict[str, str] = {}

    async def start_streaming(
        self, place: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        failure = self._called("open_card")
        message = self._once(place, markdown, key)
        shown = self.shown[int(message[1:]) - 1]
        shown.final, shown.buttons = False, tuple(buttons)
        self._raise(failure)
        return message

    async def send_with_buttons(
        self, place: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        failure = self._called("send")
        message = self._once(place, markdown, key)
        self.shown[int(message[1:]) - 1].buttons = tuple(buttons)
        self._raise(failure)
        return message

    async def edit_message(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        self._edit(message, markdown, buttons)
        next(m for m in self.shown if m.id == message).final = True

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        failure = self._called("send")
        message = self._once(place, markdown, key)
        self._raise(failure)
        return message

    async def update_streaming(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        failure = self._called("patch")
        card = next((m for m in self.shown if m.id == message), None)
        if card is None:
            raise DeliveryError("the card is gone", target_gone=True)
        card.text, card.final, card.edits = markdown, final, card.edits + 1
        card.buttons = tuple(buttons)
        self.frames.append((message, markdown, final))
        self._tell()
        self._raise(failure)

    def carry_out_again(self, frame: int) -> None:
        """Show a frame again, as if the platform had carried it out only now."""
        message, markdown, final = self.frames[frame]
        card = next(m for m in self.shown if m.id == message)
        card.text, card.final = markdown, final
        self._tell()

    async def show_working(self, place: ReplyTarget) -> None:
        self._raise(self._called("working"))
        self.indicators.append("working")
        self.marks[place.reply_to] = "working"

    async def show_finished(
        self, place: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
    ) -> None:
        self._raise(self._called("finished"))
        self.indicators.append("done" if ok else "failed")
        self.marks[place.reply_to] = self.indicators[-1]

    async def show_refused(self, place: ReplyTarget) -> None:
        self._raise(self._called("refused"))
        self.indicators.append("refused")
        self.marks[place.reply_to] = "refused"

    def _once(self, place: ReplyTarget, markdown: str, key: str) -> MessageId:
        known = next((m for m in self.shown if m.key == key), None)
        return MessageId(known.id) if known else self._show(place, markdown, key)


class ButtonPlatform(FakePlatform):
    """A platform with final answers and buttons. Messages can be edited and deleted, as on Telegram."""

    def __init__(self, name: str = "buttons", notice_after_s: float = 0.0) -> None:
        super().__init__(
            name,
            Capabilities(
                streaming=False, send_interval_s=0.0, progress_notice_after_s=notice_after_s
            ),
        )
        self.removed: list[str] = []

    async def send_with_buttons(
        self, place: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        failure = self._called("send")
        message = self._show(place, markdown, key)
        self.shown[-1].buttons = tuple(buttons)
        self._raise(failure)
        return message

    async def edit_message(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        self._edit(message, markdown, buttons)

    async def delete_message(self, place: ReplyTarget, message: MessageId) -> None:
        failure = self._called("remove")
        self.removed.append(message)
        self._tell()
        self._raise(failure)


class PreviewPlatform(ButtonPlatform):
    """A platform with drafts in private chats, as on Telegram."""

    def __init__(self, name: str = "previews") -> None:
        super().__init__(name)
        self.previewed: list[tuple[str, str, Button]] = []
        self._capabilities = Capabilities(
            streaming=False, send_interval_s=0.0, draft_interval_s=0.01
        )

    def uses_drafts(self, place: ReplyTarget) -> bool:
        return not place.thread

    async def send_draft(
        self, place: ReplyTarget, markdown: str, *, key: str, stop: Button
    ) -> None:
        failure = self._called("preview")
        self.previewed.append((key, markdown, stop))
        self._tell()
        self._raise(failure)
