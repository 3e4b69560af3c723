"""/language: what the bot itself speaks, to a person in private or in a group."""

from bus.commands.call import Call
from bus.config import AUTO
from bus.locales import LANGUAGES, known, texts
from bus.settings.choices import Choices
from bus.settings.language import Languages, choice_key

SHOWN_CHARS = 64


class Speaking:
    """Shows and keeps the choice of a language."""

    def __init__(self, *, choices: Choices, languages: Languages) -> None:
        self._choices = choices
        self._languages = languages

    async def language(self, call: Call) -> str:
        """Show or choose the language."""
        wanted = call.argument.strip()
        options = " | ".join([*LANGUAGES, AUTO])
        if not wanted:
            return call.texts.language_now.format(name=self._name(call), options=options)
        code = AUTO if wanted.lower() == AUTO else known(wanted) or _named(wanted)
        if not code:
            shown = wanted[:SHOWN_CHARS]
            return call.texts.language_unknown.format(wanted=shown, options=options)
        await self._choices.set(choice_key(call.inbound), language=code)
        spoken = texts(self._languages.of(call.inbound), call.inbound.place.command_sign)
        return spoken.language_done_auto if code == AUTO else spoken.language_done

    def _name(self, call: Call) -> str:
        is_auto = self._languages.settled(call.inbound) == AUTO
        name = call.texts.language
        return call.texts.language_auto.format(name=name) if is_auto else name


def _named(wanted: str) -> str:
    """Return the language of which somebody wrote the name.

    >>> _named("english"), _named("中文"), _named("klingon")
    ('en', 'zh', '')
    """
    return next((c for c, t in LANGUAGES.items() if t.language.lower() == wanted.lower()), "")
