"""/models, /memory and /forget, and requests of other commands to the gateway's REST API."""

import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import anyio
import httpx

from bus.commands.context import CommandContext
from bus.context import BusContext
from bus.locales import Messages
from bus.settings.memory_scope import memory_scope
from bus.settings.sessions import InvalidSession, SessionResolver

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""Timeout of a request to the gateway, seconds."""

FORGET_WORD = "yes"
"""The argument that confirms /forget."""

FACTS_PER_PAGE = 20
"""Number of facts in one answer to /memory."""

MAX_FACT_CHARS = 300
"""Longer facts are shortened."""

_NUMBER = re.compile(r"#?(\d{1,9})\.?")


class GatewayCommands:
    """Commands that call the gateway."""

    def __init__(self, bus: BusContext) -> None:
        self._gateway = bus.gateway
        self._allowed = bus.settings.allowed
        self._sessions = SessionResolver(bus.config, bus.policies, bus.settings, bus.graphs)

    async def models(self, context: CommandContext) -> str:
        """List the models that people may choose."""
        found = await self.model_names(context.row.key.channel)
        if found is None:
            return context.texts.models_failed
        if not found:
            return context.texts.models_none
        return "\n".join([context.texts.models_head, *(f"• {name}" for name in found)])

    async def memory(self, context: CommandContext) -> str:
        """List the facts in the memory of the person or group; a number in the argument is the page."""
        texts, whose = context.texts, _whose(context)
        if context.argument.strip() and not _number(context.argument):
            return texts.memory_usage
        facts = await self._facts(context)
        if facts is None:
            return texts.memory_failed
        if not facts:
            return texts.memory_none.format(whose=whose)
        pages = -(-len(facts) // FACTS_PER_PAGE)
        page = min(max(1, _number(context.argument) or 1), pages)
        shown = facts[(page - 1) * FACTS_PER_PAGE : page * FACTS_PER_PAGE]
        is_group = not context.inbound.is_private
        lines = [_fact_line(fact, texts, names_speaker=is_group) for fact in shown]
        left = len(facts) - page * FACTS_PER_PAGE
        more = [texts.memory_more.format(count=left, page=page + 1)] if left > 0 else []
        head = texts.memory_head.format(count=len(facts), whose=whose)
        return "\n".join([head, *lines, *more, texts.memory_hint])

    async def forget(self, context: CommandContext) -> str:
        """Delete one fact by its number, or, if the command confirms it, the memory of the person or group.

        In a group, people can delete their own facts. Only an administrator can delete the whole memory.
        """
        texts, whose = context.texts, _whose(context)
        number = _number(context.argument)
        if number:
            return await self._forget_fact(context, number)
        if not context.inbound.is_private and not self._sessions.is_admin(context.inbound):
            return texts.forget_not_admin
        if context.argument.strip().lower() == FORGET_WORD:
            query = {"scope": memory_scope(context.inbound)}
            done = await self._request("DELETE", "memory", query)
            return texts.forget_failed if done is None else texts.forget_done.format(whose=whose)
        facts = await self._facts(context)
        if not facts:
            return texts.memory_failed if facts is None else texts.memory_none.format(whose=whose)
        return texts.forget_ask.format(count=len(facts), whose=whose, word=FORGET_WORD)

    async def _forget_fact(self, context: CommandContext, number: int) -> str:
        """Delete the fact with a number. Numbers are never reused, so an old list cannot delete the wrong fact."""
        texts, inbound = context.texts, context.inbound
        facts = await self._facts(context)
        if facts is None:
            return texts.memory_failed
        fact = next((one for one in facts if one.get("number") == number), None)
        if fact is None:
            return texts.forget_unknown.format(number=number)
        speaker_id = str(fact.get("speakerId") or "")
        is_own = inbound.is_private or speaker_id in ("", inbound.sender.user_id)
        if not is_own and not self._sessions.is_admin(inbound):
            name = str(fact.get("speaker") or speaker_id)
            return texts.forget_not_yours.format(number=number, name=name)
        path = f"memory/facts/{quote(str(fact.get('id')), safe='')}"
        if await self._request("DELETE", path, self._document_query(context)) is None:
            return texts.forget_failed
        return texts.forget_fact_done.format(number=number, content=_content(fact))

    async def model_names(self, channel: str) -> list[str] | None:
        """Return the models that people may choose in a channel; None if the request failed."""
        found = await self.names("models", "models")
        return None if found is None else self._allowed.models(channel, found)

    async def names(self, path: str, key: str) -> list[str] | None:
        """Return the names of the objects under `key` of a document; None if the request failed."""
        found = await self.entries(path, key)
        if found is None:
            return None
        return [str(entry["name"]) for entry in found if entry.get("name")]

    async def entries(self, path: str, key: str) -> list[dict[str, Any]] | None:
        """Return the objects under `key` of a document; None if the request failed."""
        document = await self._request("GET", path)
        listed = document.get(key) if isinstance(document, dict) else None
        if not isinstance(listed, list):
            return None
        return [entry for entry in listed if isinstance(entry, dict)]

    async def usage(
        self, *, since: str, person: str = "", room: str = ""
    ) -> list[dict[str, Any]] | None:
        """Return the usage of a person or room, one entry per day and kind of call; None if the request failed."""
        whose = {"person": person} if person else {"room": room}
        document = await self._request(
            "GET", "usage", {"by": ["day", "kind"], "since": since, **whose}
        )
        totals = document.get("totals") if isinstance(document, dict) else None
        return totals if isinstance(totals, list) else None

    async def _facts(self, context: CommandContext) -> list[dict[str, Any]] | None:
        """Return the facts that apply in a chat, by number; None if the request failed."""
        document = await self._request("GET", "memory", self._document_query(context))
        facts = document.get("facts") if isinstance(document, dict) else None
        if not isinstance(facts, list):
            return None
        found = [fact for fact in facts if isinstance(fact, dict)]
        return sorted(found, key=lambda fact: int(fact.get("number") or 0))

    def _document_query(self, context: CommandContext) -> dict[str, str]:
        """Return the scope and agent of the memory that applies in a chat."""
        scope = {"scope": memory_scope(context.inbound)}
        try:
            agent = self._sessions.resolve(context.inbound).context.get("agent_name")
        except InvalidSession:
            agent = None
        return {**scope, "agent": str(agent)} if agent else scope

    async def _request(
        self, method: str, path: str, query: Mapping[str, str | list[str]] | None = None
    ) -> Any:  # noqa: ANN401 - this is the wire
        """Return the JSON of a response; None if the request failed."""
        try:
            with anyio.fail_after(TIMEOUT_S):
                answer = await self._gateway.request(method, path, params=query, timeout=TIMEOUT_S)
                answer.raise_for_status()
                return answer.json()
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            log.warning("request to the gateway for %s failed: %s", path, type(error).__name__)
            return None


def _whose(context: CommandContext) -> str:
    texts = context.texts
    return texts.word_you if context.inbound.is_private else texts.word_this_chat


def _number(argument: str) -> int:
    """Return an argument as a number; 0 = it is not a number.

    >>> [_number(text) for text in ("3", " #12. ", "yes", "3 apples", "")]
    [3, 12, 0, 0, 0]
    """
    match = _NUMBER.fullmatch(argument.strip())
    return int(match[1]) if match else 0


def _fact_line(fact: Mapping[str, Any], texts: Messages, *, names_speaker: bool) -> str:
    # Do not use a numbered Markdown list: platforms would renumber it.
    date = str(fact.get("createdAt") or "")[:10]
    who = str(fact.get("speaker") or fact.get("speakerId") or "") if names_speaker else ""
    if fact.get("source") == "manual":
        who = texts.memory_by_operator
    origin = ", ".join(filter(None, (who, date)))
    line = f"• **{fact.get('number')}** – {_content(fact)}"
    return f"{line} ({origin})" if origin else line


def _content(fact: Mapping[str, Any]) -> str:
    text = " ".join(str(fact.get("content") or "").split())
    return text if len(text) <= MAX_FACT_CHARS else f"{text[: MAX_FACT_CHARS - 1]}…"
