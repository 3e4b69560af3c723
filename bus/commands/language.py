"""/language: the language of the bot's own messages, for a person or a group."""

from bus.commands.context import CommandContext
from bus.config import AUTO
from bus.context import BusContext
from bus.locales import LANGUAGES, messages_for, supported_language
from bus.settings.language import language_key

MAX_CHARS_QUOTED = 64


class LanguageCommand:
    """Shows and sets the language."""

    def __init__(self, bus: BusContext) -> None:
        self._settings = bus.settings
        self._languages = bus.languages

    async def language(self, context: CommandContext) -> str:
        """Show or choose the language."""
        wanted = context.argument.strip()
        options = " | ".join([*LANGUAGES, AUTO])
        if not wanted:
            return context.texts.language_now.format(name=self._name(context), options=options)
        code = AUTO if wanted.lower() == AUTO else supported_language(wanted) or _named(wanted)
        if not code:
            shown = wanted[:MAX_CHARS_QUOTED]
            return context.texts.language_unknown.format(wanted=shown, options=options)
        await self._settings.update(language_key(context.inbound), language=code)
        messages = messages_for(
            self._languages.resolve(context.inbound), context.inbound.reply_target.command_prefix
        )
        return messages.language_done_auto if code == AUTO else messages.language_done

    def _name(self, context: CommandContext) -> str:
        is_auto = self._languages.preference(context.inbound).value == AUTO
        name = context.texts.language
        return context.texts.language_auto.format(name=name) if is_auto else name


def _named(wanted: str) -> str:
    """Return the language with this name.

    >>> _named("english"), _named("中文"), _named("klingon")
    ('en', 'zh', '')
    """
    return next((c for c, t in LANGUAGES.items() if t.language.lower() == wanted.lower()), "")
