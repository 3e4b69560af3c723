"""GET /api/guardrails/decisions: tool calls that a guardrail or a person refused, or that a person approved."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from gateway.dependencies import ServicesDep
from gateway.openapi import error_responses
from gateway.routes.channels import Before, Limit
from gateway.routes.places import owner_names
from gateway.routes.views import iso_time
from store.guardrail_decisions import GuardrailOutcome
from store.outbox import NEWEST

router = APIRouter(prefix="/guardrails", responses=error_responses(422))


class GuardrailDecisionView(BaseModel):
    """A decision about a tool call.

    Attributes:
        outcome: `denied` by the provider, or `rejected` or `approved` by a person. `approved` with a code means that
            the provider failed and `fail_closed` is false.
        server: The MCP server of the tool; "" = none.
        person: The message's author, `{channel}:{workspace}:{user}`; "" = unknown.
        room: The message's chat, `{channel}:{workspace}:{chat}`; "" = a private chat, or unknown.
        person_name, room_name: Their names; null = unknown.
    """

    id: int
    outcome: GuardrailOutcome
    tool: str
    server: str
    code: str
    policy: str
    reason: str
    is_subagent: bool
    thread_id: str | None
    person: str
    room: str
    person_name: str | None
    room_name: str | None
    created_at: str


class GuardrailDecisionPage(BaseModel):
    """Decisions, newest first. `next` is the `before` of the next page; null = this is the last one."""

    rows: list[GuardrailDecisionView]
    next: str | None


@router.get("/decisions", response_model=GuardrailDecisionPage)
async def list_decisions(
    services: ServicesDep,
    outcome: Annotated[GuardrailOutcome | None, Query()] = None,
    limit: Limit = 50,
    before: Before = NEWEST,
) -> dict[str, Any]:
    """List the latest decisions, newest first."""
    decisions = services.agent_services.guardrail_decisions
    found = (
        []
        if decisions is None
        else await decisions.list_recent(limit=limit, before=before, outcome=outcome or "")
    )
    people, rooms = await owner_names(
        services.bus, (row.person for row in found), (row.room for row in found)
    )
    rows = [
        {
            **asdict(row),
            "person_name": people.get(row.person),
            "room_name": rooms.get(row.room),
            "created_at": iso_time(row.created_at),
        }
        for row in found
    ]
    return {"rows": rows, "next": str(found[-1].id) if len(found) == limit else None}
