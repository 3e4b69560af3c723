"""Names of people and groups for reading a message. Pure."""

from collections.abc import Mapping

from bots.feishu.json_node import JsonNode
from bus.characters import clean_name

YOU = "You"
"""The author's name that the model sees on the bot's own messages."""

SOMEONE = "someone"
"""Stands for an unknown name in a mention."""


class People:
    """Finds names by ID, and records IDs without a name.

    Args:
        names: Names of people (`ou_...`) and groups (`oc_...`) by ID.

    Attributes:
        unnamed: IDs without a name, in the order in which they were looked up.

    >>> people = People({"ou_1": "Ann"})
    >>> people.mention("ou_1"), people.mention("ou_2"), people.label("ou_3"), list(people.unnamed)
    ('@Ann', '@someone', 'ou_3', ['ou_2', 'ou_3'])
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.unnamed: dict[str, None] = {}

    def find(self, user: str, name: str = "") -> str:
        """Return the known name, or the name in the message; "" if both are missing."""
        found = self._names.get(user, "") or name
        if user and not found:
            self.unnamed[user] = None
        return found

    def label(self, user: str, name: str = "") -> str:
        """Return a name, or the ID if it is unknown."""
        return self.find(user, name) or user

    def mention(self, user: str, name: str = "") -> str:
        """Return a mention as text. The ID `all` means everyone."""
        return "@all" if user == "all" else f"@{self.find(user, name) or SOMEONE}"

    def author(self, sender: JsonNode) -> str:
        """Return the name of a message's author; "" = unknown. A person's name cannot look like the bot's.

        Args:
            sender: `sender` of an item of the API.
        """
        user = sender.text("id")
        if sender.text("sender_type") == "app" and self._names.get(user) == YOU:
            return YOU
        name = clean_name(self.find(user, sender.text("sender_name")))
        return f"{name} (not you)" if name.casefold() == YOU.casefold() else name
