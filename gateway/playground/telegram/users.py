"""People's actions on a `TelegramServer` besides writing: press buttons, send albums, stop drafts, block the bot."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.playground.telegram.chats import (
    Json,
    TelegramApiError,
    TelegramMessage,
    TelegramUpload,
)
from gateway.playground.telegram.state import TelegramState

QUERY_S = 15.0
"""How long a pressed button waits for its answer, seconds."""


@dataclass(slots=True, kw_only=True)
class CallbackQuery:
    """A pressed button. `answer` is None until it is answered. `alert`: whether the presser must confirm the answer."""

    answer: str | None = None
    alert: bool = False
    asked_at: float = field(default_factory=time.monotonic)


@dataclass(slots=True, kw_only=True)
class MessageDraft:
    """A draft that a person sees."""

    chat: int
    number: int
    text: str
    thread: int | None = None
    can_stop: bool = False


class TelegramUsers(TelegramState):
    """More actions of people.

    Attributes:
        queries: The pressed buttons by ID.
        drafts: The texts of all drafts, oldest first.
        withholding: Whether getUpdates returns nothing although updates wait.
    """

    def __init__(self, *, bot: Json, privacy: bool) -> None:
        super().__init__(bot=bot, privacy=privacy)
        self.queries: dict[str, CallbackQuery] = {}
        self.drafts: list[MessageDraft] = []

    def labels(self, chat: int) -> list[str]:
        """Return the labels of all buttons in a chat, oldest first."""
        shown = [m for m in self.messages(chat) if m.by_bot]
        return [str(button["text"]) for m in shown for row in m.markup for button in row]

    def press(
        self,
        chat: int,
        label: str,
        *,
        user: int = 1001,
        inaccessible: bool = False,
        language: str = "",
    ) -> str:
        """Press the newest button with a label. Return the query's ID.

        Args:
            chat: The chat's ID.
            label: The text on the button.
            user: The ID of the person who presses it.
            inaccessible: Whether the message is too old for Telegram to include its content.
            language: Language of the person's app.
        """
        shown = [m for m in reversed(self.messages(chat)) if m.by_bot]
        for message in shown:
            for row in message.markup:
                for button in row:
                    if button["text"] == label:
                        return self.press_token(
                            message,
                            str(button["callback_data"]),
                            user=user,
                            inaccessible=inaccessible,
                            language=language,
                        )
        raise AssertionError(f"no button {label!r} among {self.labels(chat)}")

    def press_token(
        self,
        message: TelegramMessage,
        token: str,
        *,
        user: int = 1001,
        inaccessible: bool = False,
        language: str = "",
    ) -> str:
        """Press a button that may be gone. Return the query's ID."""
        query_id = f"q{len(self.queries) + 1}"
        self.queries[query_id] = CallbackQuery()
        seen = self.json_of(message)
        if inaccessible:
            seen = {"chat": seen["chat"], "message_id": message.message_id, "date": 0}
        self.push(
            {
                "callback_query": {
                    "id": query_id,
                    "from": self.person(user, language),
                    "message": seen,
                    "chat_instance": "1",
                    "data": token,
                }
            }
        )
        return query_id

    def answer_query(self, query_id: str, text: str, *, alert: bool) -> None:
        """Answer a pressed button, as answerCallbackQuery does. Raises TelegramApiError."""
        query = self.queries.get(query_id)
        if query is None or time.monotonic() - query.asked_at > QUERY_S:
            raise TelegramApiError(
                400,
                "Bad Request: query is too old and response timeout expired or query ID is invalid",
            )
        if len(text) > 200:
            raise TelegramApiError(400, "Bad Request: MESSAGE_TOO_LONG")
        query.answer, query.alert = text, alert
        self.changed()

    def send_album(
        self,
        chat: int,
        uploads: Sequence[TelegramUpload],
        *,
        caption: str = "",
        user: int = 1001,
        kind: str = "photo",
    ) -> list[int]:
        """Send several files at once, as one message each, the first one with the caption. Return their IDs."""
        album = f"album{self._update_id}"
        return [
            self.say(
                chat,
                caption if index == 0 else "",
                user=user,
                file=self.keep(kind, upload),
                extra={"media_group_id": album},
            )
            for index, upload in enumerate(uploads)
        ]

    def stop_draft(self) -> None:
        """Press the stop button of the newest draft."""
        draft = self.drafts[-1]
        if not draft.can_stop:
            raise AssertionError("the draft has no stop button")
        told: Json = {"chat": self.chat(draft.chat).json(), "draft_id": draft.number}
        if draft.thread is not None:
            told["message_thread_id"] = draft.thread
        self.push({"stopped_message_generation": told})

    def set_membership(
        self, chat: int, status: str, *, before: str = "member", language: str = ""
    ) -> None:
        """Notify the bot of its new and old status in a chat: member, administrator, left, kicked."""
        member: Json = {"user": self.bot, "status": status}
        former: Json = {"user": self.bot, "status": before}
        for status_of in (member, former):
            if status_of["status"] == "kicked":
                status_of["until_date"] = 0
        self.push(
            {
                "my_chat_member": {
                    "chat": self.chat(chat).json(),
                    "from": self.person(1001, language),
                    "date": int(time.time()),
                    "old_chat_member": former,
                    "new_chat_member": member,
                }
            }
        )
