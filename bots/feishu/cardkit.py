"""CardKit API client: card entities and streaming updates of their text."""

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import quote

from bots.feishu.api import call_limiter, dump_json, rate_limited
from bots.feishu.cards import TEXT_ELEMENT_ID, Card
from bots.feishu.errors import FeishuError, FeishuResponse
from bots.feishu.rest import FeishuRequest, FeishuRestClient, json_body

_CARDS = "/open-apis/cardkit/v1/cards"
_CREATE_S = 5.0
"""Time limit for creating a card, seconds. Nothing is visible until then, and an answer needs no entity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardEntity:
    """A card entity, and its creation time by the platform's clock (whole Unix seconds; 0 = unknown)."""

    id: str
    created_at: float


class CardKitApi:
    """Card entities. Every method raises `FeishuError`.

    `sequence` (1 to 2**31 - 1) must rise with every operation on a card, even after a failed one.
    """

    def __init__(self, rest: FeishuRestClient) -> None:
        self._rest = rest
        self._limiter = call_limiter(rest)

    async def create(self, card: Card) -> CardEntity:
        """Create a card, which is invisible until it is sent. It can be sent once, within 14 days."""
        body = json_body({"type": "card_json", "data": dump_json(card)})
        async with rate_limited(self._limiter):
            answer = await self._rest.request(
                FeishuRequest("POST", _CARDS, body=body, limit_s=_CREATE_S)
            )
        card_id = answer.data.get("card_id")
        if not isinstance(card_id, str) or not card_id:
            raise FeishuError("Feishu's answer has no card_id")
        return CardEntity(id=card_id, created_at=_date(answer))

    async def update_text(self, card_id: str, text: str, *, sequence: int) -> None:
        """Set the card's text. Clients animate appended text, and show any other change at once."""
        path = f"{_path(card_id)}/elements/{TEXT_ELEMENT_ID}/content"
        await self._put(path, {"content": text, "sequence": sequence}, is_frame=True)

    async def set_streaming(self, card_id: str, *, on: bool, sequence: int) -> None:
        """Start or stop streaming the card's text. Streaming ends by itself after ten minutes."""
        settings = dump_json({"config": {"streaming_mode": on}})
        body = json_body({"settings": settings, "sequence": sequence})
        async with rate_limited(self._limiter):
            await self._rest.call("PATCH", f"{_path(card_id)}/settings", body=body)

    async def replace(
        self, card_id: str, card: Card, *, sequence: int, is_frame: bool = False
    ) -> None:
        """Replace the card, whether it is streaming or not."""
        data = {"type": "card_json", "data": dump_json(card)}
        await self._put(_path(card_id), {"card": data, "sequence": sequence}, is_frame=is_frame)

    async def get_card_id(self, message: str) -> str:
        """Return the ID of the card in a message."""
        body = json_body({"message_id": message})
        async with rate_limited(self._limiter):
            data = await self._rest.call("POST", f"{_CARDS}/id_convert", body=body)
        card_id = data.get("card_id")
        if not isinstance(card_id, str) or not card_id:
            raise FeishuError("Feishu's answer has no card_id")
        return card_id

    async def _put(self, path: str, value: Mapping[str, object], *, is_frame: bool) -> None:
        async with rate_limited(self._limiter, is_frame=is_frame):
            await self._rest.call("PUT", path, body=json_body(value))


def _path(card_id: str) -> str:
    return f"{_CARDS}/{quote(card_id, safe='')}"


def _date(answer: FeishuResponse) -> float:
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        return 0.0
