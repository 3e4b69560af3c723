"""People in Slack: private chats, and channels with a thread."""

from collections.abc import Sequence

from typing_extensions import override

from gateway.playground.slack.server import FakeSlack
from gateway.playground.slack.sockets import SlackEnvelope
from gateway.playground.slack.state import SlackMessage
from tests.people.chat_user import WORKING, Arrival, CallFailure, ChatUser, SentEvent, ShownMessage

_WORKING_REACTION = "eyes"
_OUTCOMES = frozenset({"white_check_mark", "x"})


def fail_slack_calls(
    slack: FakeSlack, method: str, how: CallFailure, *, times: int = 1, seconds: float = 1.0
) -> None:
    """Make the next calls of a method fail. `seconds` is the wait that a refusal names, or a call's duration."""
    match how:
        case CallFailure.REFUSED:
            headers = {"Retry-After": str(max(1, round(seconds)))}
            slack.fail(method, times=times, status=429, error="ratelimited", headers=headers)
        case CallFailure.FAILS:
            slack.fail(method, times=times, status=503)
        case CallFailure.CUT_BEFORE:
            slack.fail(method, times=times, drop="before")
        case CallFailure.CUT_AFTER:
            slack.fail(method, times=times, drop="after")
        case CallFailure.SLOW:
            slack.fail(method, times=times, delay_s=seconds)


class _SlackUser(ChatUser):
    channel = "slack"

    def __init__(self, slack: FakeSlack, chat: str, user: str) -> None:
        self._slack = slack
        self._user = user
        self.chat = chat
        self._written: dict[str, SlackMessage] = {}

    @override
    async def send_file(self, name: str, content: bytes) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        file = self._slack.file(name, content, "text/plain")
        said = self._slack.dm("", user=self._user, files=[file], subtype="file_share")
        return self._sent(said, before)

    @override
    async def edit(self, message_id: str, text: str) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        message = self._message(message_id)
        self._slack.edit(message, text)
        return self._sent(message, before)

    @override
    async def delete(self, message_id: str) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        message = self._message(message_id)
        self._slack.delete(message)
        sent = self._sent(message, before)
        del self._written[message_id]
        return sent

    @override
    async def press(self, message: ShownMessage, label: str) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        found = self._slack.workspace.find(self.chat, message.id) or SlackMessage(
            channel=self.chat, ts=message.id, user=self._slack.workspace.bot_user, text=message.text
        )
        number = [*message.buttons].index(label)
        self._slack.act(found, f"parley.{number}", message.buttons[label], user=self._user)
        return self._sent(found, before)

    @override
    def shown(self) -> list[ShownMessage]:
        bot = self._slack.workspace.bot_id
        found = self._slack.messages(self.chat, viewer=self._user)
        return [
            _shown(one, misplaced=self._is_misplaced(one)) for one in found if one.bot_id == bot
        ]

    @override
    def working_signs(self, message_id: str) -> list[str]:
        message = self._written.get(message_id)
        reactions = self._slack.reactions(message) if message else set()
        is_over = not _OUTCOMES.isdisjoint(reactions)
        return [] if is_over else [name for name in reactions if name == _WORKING_REACTION]

    @override
    def has_failed_sign(self, message_id: str) -> bool:
        message = self._written.get(message_id)
        return message is not None and "x" in self._slack.reactions(message)

    @override
    def lose_next_response(self) -> None:
        fail_slack_calls(self._slack, "chat.postMessage", CallFailure.CUT_AFTER)

    def _is_misplaced(self, message: SlackMessage) -> bool:
        del message
        return False

    def _message(self, ts: str) -> SlackMessage:
        found = self._slack.workspace.find(self.chat, ts)
        assert found is not None, f"no message {ts} in {self.chat}"
        return found

    def _sent(self, message: SlackMessage, before: int) -> SentEvent:
        envelopes = self._slack.sockets.envelopes[before:]
        if message.user == self._user:
            self._written[message.ts] = message
        return SentEvent(message.ts, lambda: _arrival(envelopes))


class SlackDirectUser(_SlackUser):
    """A private chat."""

    name = "slack dm"

    def __init__(self, slack: FakeSlack, *, user: str = "U1ANN") -> None:
        super().__init__(slack, f"D{user}", user)

    @override
    async def send(self, text: str, *, aside: bool = False) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        return self._sent(self._slack.dm(text, user=self._user), before)

    @override
    async def enter(self, text: str) -> SentEvent:
        if not text.startswith("/"):
            return await self.send(text)
        # Slack interprets it as a slash command, and shows an error if no app has one with this name.
        envelope = self._slack.slash(text.removeprefix("/"), channel=self.chat, user=self._user)
        name = str(envelope.payload["response_url"]).rpartition("/")[2]
        callback = self._slack.workspace.callbacks[name]
        return SentEvent(
            f"slash:{envelope.payload['trigger_id']}",
            lambda: _arrival([envelope]),
            lambda: [_shown(one) for one in callback.answers],
        )


class SlackThreadUser(_SlackUser):
    """A channel: a mention, then the thread under it."""

    name = "slack channel"

    def __init__(self, slack: FakeSlack, *, room: str = "C1", user: str = "U1ANN") -> None:
        super().__init__(slack, room, user)
        self._root = ""

    @override
    async def send(self, text: str, *, aside: bool = False) -> SentEvent:
        before = len(self._slack.sockets.envelopes)
        write = self._slack.say if aside else self._slack.mention
        # A message in the bot's own thread would be for the bot.
        root = "" if aside else self._root
        said = write(text, channel=self.chat, user=self._user, thread_ts=root)
        self._root = self._root or ("" if aside else said.ts)
        return self._sent(said, before)

    @override
    def _is_misplaced(self, message: SlackMessage) -> bool:
        return not self._root or message.thread_ts != self._root


def _arrival(envelopes: Sequence[SlackEnvelope]) -> Arrival:
    """Return whether the bot acknowledged an action that Slack reports in one or two events."""
    if any(one.acked for one in envelopes):
        return Arrival.CONFIRMED
    return Arrival.GIVEN_UP if all(one.dropped for one in envelopes) else Arrival.WAITING


def _shown(message: SlackMessage, *, misplaced: bool = False) -> ShownMessage:
    return ShownMessage(
        id=message.ts,
        text=message.words,
        buttons=dict(message.buttons),
        file=str(message.files[0]["name"]) if message.files else "",
        unfinished=message.words in WORKING or message.streams,
        misplaced=misplaced,
    )
