"""Names of people and groups while a message is read. Pure."""

from collections.abc import Mapping

from bots.feishu.json_node import JsonNode
from bus.characters import clean_name

YOU = "You"
"""The author of the bot's own words, for the model."""

SOMEONE = "someone"
"""Replaces the unknown name of a person in a mention."""


class People:
    """Knows names by id, and notes the ids whose names are missing.

    Args:
        names: Names of people (`ou_...`) and groups (`oc_...`) by id.

    Attributes:
        unnamed: Ids without a name, in the order in which they were asked for.

    >>> people = People({"ou_1": "Ann"})
    >>> people.mention("ou_1"), people.mention("ou_2"), people.label("ou_3"), list(people.unnamed)
    ('@Ann', '@someone', 'ou_3', ['ou_2', 'ou_3'])
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.unnamed: dict[str, None] = {}

    def find(self, user: str, name: str = "") -> str:
        """Return the known name, or else the one in the message; "" if both are missing."""
        found = self._names.get(user, "") or name
        if user and not found:
            self.unnamed[user] = None
        return found

    def label(self, user: str, name: str = "") -> str:
        """Return a name, or else the id."""
        return self.find(user, name) or user

    def mention(self, user: str, name: str = "") -> str:
        """Return a mention as text; one of everybody has the id `all`."""
        return "@all" if user == "all" else f"@{self.find(user, name) or SOMEONE}"

    def author(self, sender: JsonNode) -> str:
        """Return the name of who wrote a message; "" if it is unknown. A person cannot be taken for the bot.

        Args:
            sender: `sender` of an item of the API.
        """
        user = sender.text("id")
        if sender.text("sender_type") == "app" and self._names.get(user) == YOU:
            return YOU
        name = clean_name(self.find(user, sender.text("sender_name")))
        return f"{name} (not you)" if name.casefold() == YOU.casefold() else name
