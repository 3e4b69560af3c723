"""Names of forum topics, collected from messages, because no method of the Bot API returns them."""

from bots.telegram.payload import Json, as_line, as_object

_MAX_NAMES = 1_000
"""Maximum number of topics to remember, the most recently named ones."""


class TopicNames:
    """Remembers the names of topics, by chat and topic, while the process runs."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}

    def learn(self, message: object) -> None:
        """Remember the name of a topic in a service message."""
        said = as_object(message)
        named = as_object(said.get("forum_topic_created")) or as_object(
            said.get("forum_topic_edited")
        )
        if name := as_line(named.get("name")):
            self._keep(_place(said), name)

    def name_of(self, chat: str, thread: str, told: str) -> str:
        """Return a topic's name.

        Args:
            chat: The chat.
            thread: The topic; "" = outside of topics.
            told: The name in the message itself: the topic's first name, or "".
        """
        if not thread:
            return told
        if told and (chat, thread) not in self._names:
            self._keep((chat, thread), told)
        return self._names.get((chat, thread), "")

    def _keep(self, place: tuple[str, str], name: str) -> None:
        self._names.pop(place, None)
        self._names[place] = name
        if len(self._names) > _MAX_NAMES:
            del self._names[next(iter(self._names))]


def _place(message: Json) -> tuple[str, str]:
    chat = as_object(message.get("chat")).get("id")
    # A topic has the ID of the message that opened it.
    return str(chat), str(message.get("message_thread_id") or message.get("message_id"))
