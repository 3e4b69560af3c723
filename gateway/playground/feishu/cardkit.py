"""The fake's CardKit: card entities, closing streams, rising sequence numbers, at most ten operations a second."""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from gateway.playground.feishu import cards
from gateway.playground.feishu.state import FeishuApiError, FeishuMessage, FeishuState

Body = dict[str, Any]
Handler = Callable[[web.Request, Body], Awaitable[dict[str, Any] | web.Response]]

OPERATIONS_PER_S = 10
STREAM_S = 600.0
MAX_SEQUENCE = 2**31 - 1
CARDKIT = "/open-apis/cardkit/v1/cards"
SCOPE = "cardkit:card:write"


@dataclass
class FakeCard:
    """A card entity. `message` shows it after it was sent."""

    id: str
    card: dict[str, Any]
    streams_since: float | None
    message: FeishuMessage | None = None
    sequence: int = 0
    operations: list[float] = field(default_factory=list)


class CardKitService:
    """Everything below `cardkit/v1`.

    Attributes:
        entities: The entities by ID.
        closes_streams: Whether the next write to a stream closes it.
        converts: Whether it returns the entity of a message.
    """

    def __init__(self, state: FeishuState) -> None:
        self._state = state
        self.entities: dict[str, FakeCard] = {}
        self.closes_streams = False
        self.reopens_streams = True
        self.converts = True

    def table(self) -> list[tuple[str, str, str, Handler]]:
        """Return verb, path, operation and handler of each call."""
        return [
            ("POST", CARDKIT, "card.create", self._create),
            ("POST", f"{CARDKIT}/id_convert", "card.convert", self._convert),
            ("PUT", f"{CARDKIT}/{{card}}", "card.update", self._update),
            ("PATCH", f"{CARDKIT}/{{card}}/settings", "card.settings", self._settings),
            (
                "PUT",
                f"{CARDKIT}/{{card}}/elements/{{element}}/content",
                "card.content",
                self._write,
            ),
        ]

    def close_streams(self) -> None:
        """Close every stream, as after ten minutes or a long silence."""
        for entity in self.entities.values():
            entity.streams_since = None

    def sent(self, card_id: str, message: FeishuMessage) -> dict[str, Any]:
        """Return the content of a message that shows an entity."""
        entity = self.entities.get(card_id)
        if entity is None or entity.message is not None:
            self._state.violation(f"message: card entity {card_id} is not there to be sent")
            raise FeishuApiError(
                230099, "Failed to create card content, ext=ErrCode: 11310; ErrMsg: card;"
            )
        entity.message, message.entity = message, card_id
        return entity.card

    async def _create(self, request: web.Request, body: Body) -> dict[str, Any]:
        if set(body) != {"type", "data"} or body["type"] != "card_json":
            self._bad(f"create {sorted(body)}")
        card = self._card(body["data"])
        entity = FakeCard(self._state.next_id("73"), card, None)
        self._follow(entity)
        self.entities[entity.id] = entity
        return {"data": {"card_id": entity.id}}

    async def _convert(self, request: web.Request, body: Body) -> dict[str, Any]:
        message = self._state.messages.get(body.get("message_id", ""))
        if set(body) != {"message_id"} or message is None:
            self._bad(f"id_convert {body}")
        if not self.converts or message is None or not message.entity:
            raise FeishuApiError(200400, "no card of this message")
        return {"data": {"card_id": message.entity}}

    async def _update(self, request: web.Request, body: Body) -> dict[str, Any]:
        entity = self._next(request, body, {"card", "sequence"})
        value = body["card"]
        if not isinstance(value, dict) or set(value) != {"type", "data"}:
            self._bad(f"card {value!r:.80}")
        entity.card = self._card(value["data"])
        self._follow(entity)
        self._show(entity)
        return {"data": {}}

    async def _settings(self, request: web.Request, body: Body) -> dict[str, Any]:
        entity = self._next(request, body, {"settings", "sequence"})
        config = json.loads(body["settings"]).get("config")
        if not isinstance(config, dict) or set(config) != {"streaming_mode"}:
            self._bad(f"settings {body['settings'][:80]}")
        if config["streaming_mode"] and not self.reopens_streams:
            raise FeishuApiError(300301, "streaming mode cannot be opened")
        entity.card = {**entity.card, "config": {**entity.card["config"], **config}}
        self._follow(entity, again=config["streaming_mode"])
        return {"data": {}}

    async def _write(self, request: web.Request, body: Body) -> dict[str, Any]:
        entity = self._next(request, body, {"content", "sequence"})
        if self.closes_streams:
            entity.streams_since, self.closes_streams = None, False
            raise FeishuApiError(200850, "card streaming timeout")
        if entity.streams_since is None or time.monotonic() - entity.streams_since > STREAM_S:
            raise FeishuApiError(300309, "streaming mode is closed")
        element = request.match_info["element"]
        if not isinstance(body["content"], str) or not body["content"]:
            self._bad("content without text")
        entity.card = cards.written(entity.card, element, body["content"])
        self._card(json.dumps(entity.card, ensure_ascii=False))
        self._show(entity)
        return {"data": {}}

    def _next(self, request: web.Request, body: Body, fields: set[str]) -> FakeCard:
        """Return the entity if an operation on it is permitted."""
        entity = self.entities.get(request.match_info["card"])
        if entity is None:
            raise FeishuApiError(200740, "cardid is invalid")
        if set(body) - {"uuid"} != fields:
            self._bad(f"arguments {sorted(body)}")
        now = time.monotonic()
        if len([at for at in entity.operations if at > now - 1]) >= OPERATIONS_PER_S:
            raise FeishuApiError(230020, "This operation triggers the frequency limit.")
        entity.operations.append(now)
        sequence = body["sequence"]
        if not isinstance(sequence, int) or not 1 <= sequence <= MAX_SEQUENCE:
            self._bad(f"sequence {sequence}")
        if sequence <= entity.sequence:
            raise FeishuApiError(300317, "sequence number compare failed")
        entity.sequence = sequence
        return entity

    def _card(self, data: object) -> dict[str, Any]:
        if not isinstance(data, str):
            self._bad("a card is a JSON string")
        if len(json.dumps({"data": data}, ensure_ascii=False).encode()) > 30 * 1024:
            raise FeishuApiError(200860, "card content exceeds the limit")
        try:
            return cards.check(json.loads(str(data)))
        except cards.InvalidCard as error:
            if error.sub != 11310:
                self._state.violation(f"card: {error}")
            said = f"Failed to create card content, ext=ErrCode: {error.sub}; ErrMsg: {error}; "
            raise FeishuApiError(230099, said) from error

    def _follow(self, entity: FakeCard, *, again: bool = False) -> None:
        """Open or close the stream according to the card's settings."""
        if not entity.card["config"].get("streaming_mode"):
            entity.streams_since = None
        elif entity.streams_since is None or again:
            entity.streams_since = time.monotonic()

    def _show(self, entity: FakeCard) -> None:
        if entity.message is not None:
            entity.message.content = entity.card
            entity.message.edits.append(entity.card)

    def _bad(self, text: str) -> None:
        self._state.violation(f"cardkit: {text}")
        raise FeishuApiError(300305, f"invalid parameter: {text}")
