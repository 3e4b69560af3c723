"""GET /api/channels/{name}/prompt: the prompt of the next message in a chat."""

from typing import Annotated

from fastapi import APIRouter, Query

from gateway.dependencies import ServicesDep
from gateway.openapi import error_responses
from gateway.prompt_report import PromptPlace, PromptReport, report_prompt

router = APIRouter(prefix="/channels", responses=error_responses(404))

Id = Annotated[str, Query(max_length=256, pattern=r"^[^\x00]*$")]


@router.get("/{name}/prompt", response_model=PromptReport)
async def get_prompt(
    name: str, services: ServicesDep, chat: Id = "", topic: Id = "", user: Id = ""
) -> PromptReport:
    """Return the prompt that the next message would get, with the size of each part. No model is called."""
    place = PromptPlace(channel=name, chat=chat, topic=topic, user=user)
    return await report_prompt(services.config, services.database, services.agents, place)
