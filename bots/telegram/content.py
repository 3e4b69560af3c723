"""What a message shows that has neither text nor files: places, contacts, polls, stickers. Pure."""

from telegram import Contact, Dice, Location, Message, Poll, Sticker, Venue

from bots.text.characters import clean
from bots.text.quotations import clean_name

_UNREADABLE = {
    "story": "a story",
    "game": "a game",
    "paid_media": "paid media",
    "checklist": "a checklist",
    "invoice": "an invoice",
    "giveaway": "a giveaway",
}
"""What people can send or forward that has no words for us, by Telegram's name."""


def describe_content(message: Message) -> str:  # noqa: PLR0911 - one return per kind
    """Return what a message without text and files shows, in words for the agent; "" for service messages.

    A venue also has a location, and a die of Telegram's is no sticker.
    """
    match message:
        case Message(venue=Venue(title=title, address=address, location=location)):
            return f"[Place: {clean_name(title)}, {clean_name(address)} ({_coordinates(location)})]"
        case Message(location=Location() as location):
            return f"[Location: {_coordinates(location)}]"
        case Message(contact=Contact() as contact):
            name = clean_name(f"{contact.first_name} {contact.last_name or ''}")
            return f"[Contact: {name}, {clean_name(contact.phone_number)}]"
        case Message(poll=Poll(question=question, options=options)):
            lines = [f"- {clean_name(option.text)}" for option in options]
            return "\n".join([f"[Poll: {' '.join(clean(question).split())}]", *lines])
        case Message(dice=Dice(emoji=emoji, value=value)):
            return f"[{clean_name(emoji)} {value}]"
        case Message(sticker=Sticker(emoji=emoji)):
            return f"[Not readable here: a sticker {clean_name(emoji or '')}".rstrip() + "]"
        case _:
            names = [what for field, what in _UNREADABLE.items() if getattr(message, field)]
            return f"[Not readable here: {names[0]}]" if names else ""


def _coordinates(location: Location) -> str:
    return f"{location.latitude:.6f}, {location.longitude:.6f}"
