"""The prompt of the next message in a chat, and of the first message to an agent."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

from gateway.dependencies import ServicesDep
from gateway.openapi import error_responses
from gateway.prompt_report import (
    PromptPlace,
    PromptReport,
    report_agent_prompt,
    report_prompt,
)
from gateway.routes.masking import masking
from gateway.services import Services

router = APIRouter(responses=error_responses(404))

LEAD_AGENT_NAME = "lead-agent"
"""The lead agent's name in this route. No custom agent can have it."""

Id = Annotated[str, Query(max_length=256, pattern=r"^[^\x00]*$")]


@router.get("/channels/{name}/prompt", response_model=PromptReport)
async def get_prompt(
    name: str, services: ServicesDep, chat: Id = "", topic: Id = "", user: Id = ""
) -> dict[str, Any]:
    """Return the prompt that the next message would get, with the size of each part. No model is called."""
    place = PromptPlace(channel=name, chat=chat, topic=topic, user=user)
    report = await report_prompt(services.config, services.database, services.agents, place)
    return _masked(services, report)


@router.get("/agents/{name}/prompt", response_model=PromptReport)
async def get_agent_prompt(name: str, services: ServicesDep) -> dict[str, Any]:
    """Return the prompt of the first message to a custom agent, or to `lead-agent`. No model is called."""
    wanted = None if name == LEAD_AGENT_NAME else name
    return _masked(services, await report_agent_prompt(services.config, services.agents, wanted))


def _masked(services: Services, report: PromptReport) -> dict[str, Any]:
    masked: dict[str, Any] = masking(services.config)(asdict(report))
    return masked
