"""GET /api/usage: the usage of model calls, by channel, person, room, agent, model, kind and day."""

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from agent.usage.limits import NANO
from bus.service import Bus
from gateway.csv_text import csv_text
from gateway.dependencies import ServicesDep
from gateway.routes.places import owner_names

router = APIRouter()

Column = Literal["day", "kind", "model", "agent", "channel", "person", "room", "topic"]


class UsageQuery(BaseModel):
    """Which calls to count, and how to group and return them. Days are UTC."""

    since: str = Field(default="", pattern=r"^(?:\d{4}-\d{2}-\d{2})?$")
    until: str = Field(default="", pattern=r"^(?:\d{4}-\d{2}-\d{2})?$")
    kind: str | None = None
    model: str | None = None
    agent: str | None = None
    channel: str | None = None
    person: str | None = None
    room: str | None = None
    topic: str | None = None
    by: list[Column] = Field(default_factory=list, max_length=20)
    format: Literal["json", "csv"] = "json"


class UsageTotal(BaseModel):
    """The usage of some calls. The fields before `calls` are set only if `by` names them.

    `person_name` and `room_name` are set if `by` names the person or room and the name is known.
    """

    day: str | None = None
    kind: str | None = None
    model: str | None = None
    agent: str | None = None
    channel: str | None = None
    person: str | None = None
    room: str | None = None
    topic: str | None = None
    calls: int
    estimated_calls: int
    unpriced_calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_usd: float
    person_name: str | None = None
    room_name: str | None = None


class UsageTotals(BaseModel):
    """Totals, one for each combination of the columns in `by`."""

    totals: list[UsageTotal]


@router.get(
    "/usage",
    response_model=UsageTotals,
    response_model_exclude_none=True,
    responses={200: {"content": {"text/csv": {}}}},
)
async def get_usage(services: ServicesDep, query: Annotated[UsageQuery, Query()]) -> Any:  # noqa: ANN401 - or CSV
    """Return the usage of model calls, as JSON or CSV."""
    usage = services.agent_services.usage
    await usage.flush()
    columns = list(dict.fromkeys(query.by))
    asked = query.model_dump(exclude={"since", "until", "by", "format"}, exclude_none=True)
    store = usage.store
    rows = (
        []
        if store is None
        else await store.totals(since=query.since, until=query.until, filters=asked, by=columns)
    )
    totals = [
        UsageTotal.model_validate({**row, "cost_usd": row["cost_nano_usd"] / NANO}) for row in rows
    ]
    await _add_names(services.bus, totals)
    return _csv(totals, columns) if query.format == "csv" else UsageTotals(totals=totals)


async def _add_names(bus: Bus | None, totals: list[UsageTotal]) -> None:
    people, rooms = await owner_names(
        bus, (one.person for one in totals), (one.room for one in totals)
    )
    for one in totals:
        one.person_name = people.get(one.person or "")
        one.room_name = rooms.get(one.room or "")


def _csv(totals: list[UsageTotal], columns: list[Column]) -> Response:
    names = [f"{name}_name" for name in ("person", "room")]
    sums = [name for name in UsageTotal.model_fields if name not in (*get_args(Column), *names)]
    sums += [name for name in names if name.removesuffix("_name") in columns]
    text = csv_text([*columns, *sums], [total.model_dump() for total in totals])
    return Response(text, media_type="text/csv")
