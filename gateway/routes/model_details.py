"""/api/model-details: the configured models and their users, and a test call that finds problems before people do."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request
from pydantic import BaseModel

from agent.config.usage import ModelPriceConfig
from agent.errors import AgentError
from bots.common.diagnosis import CheckResult
from bus.config import SessionConfig
from bus.settings.sessions import SessionLayer, merge_layers, session_layers
from gateway.checks.models import call_model
from gateway.dependencies import AgentServicesDep, ServicesDep
from gateway.middleware import AUDIT_DETAIL
from gateway.openapi import error_responses
from gateway.routes.models import ModelView
from gateway.services import Services

router = APIRouter(responses=error_responses(404))

MAX_ANSWER_CHARS = 2000


class ModelDetails(ModelView):
    """A configured model, and who uses it.

    Attributes:
        use: The class of the chat model.
        price: US dollars for a million tokens; null = unknown.
        context_tokens: The size of its context; null = unknown.
        problem: Why the entry cannot be used; "" = it can.
        agents: The custom agents that use it.
        channels: The channels where it answers all messages, or the messages of certain chats or people.
    """

    use: str
    is_default: bool
    price: ModelPriceConfig | None
    context_tokens: int | None
    problem: str
    agents: list[str]
    channels: list[str]


class ModelDetailsList(BaseModel):
    """All models, the default first."""

    models: list[ModelDetails]


class ModelTestView(BaseModel):
    """The result of a test call.

    Attributes:
        answer: The model's answer; null = it gave none.
        error: The error, in the provider's own words; "" = no error.
        fix: How to correct the error.
        seconds: How long the answer took.
        input_tokens, output_tokens: As the server reported them; 0 = not reported.
    """

    answer: str | None = None
    error: str = ""
    fix: str = ""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


@router.get("/model-details")
async def list_model_details(services: ServicesDep) -> ModelDetailsList:
    """List the models with their price, context, and the agents and channels that use them. Calls none of them."""
    agent_services = services.agent_services
    config = agent_services.config.get()
    default = config.chat_models[0].name
    agents = await agent_services.custom_agents.list_agents()
    of_agents = {agent.name: agent.model or default for agent in agents}
    channels = {
        name: set(_models_of(services, section.session, of_agents))
        for name, section in services.config.bots.sections.items()
        if section.enabled
    }
    found: list[ModelDetails] = []
    for entry in config.chat_models:
        context, problem = config.summarization.max_input_tokens, ""
        try:
            model = await agent_services.auxiliary_models.get(entry.name)
            context = context or (model.profile or {}).get("max_input_tokens")
        except AgentError as error:
            problem = error.user_message
        found.append(
            ModelDetails(
                **ModelView.model_validate(entry).model_dump(),
                use=entry.use,
                is_default=entry.name == default,
                price=entry.price,
                context_tokens=context,
                problem=problem,
                agents=[name for name, model_name in of_agents.items() if model_name == entry.name],
                channels=[name for name, used in channels.items() if entry.name in used],
            )
        )
    return ModelDetailsList(models=found)


@router.post("/models/{name}/test")
async def test_model(
    name: Annotated[str, Path()], request: Request, agent_services: AgentServicesDep
) -> ModelTestView:
    """Send one short request to a model. Its tokens count as usage."""
    config = agent_services.config.get()
    entry = config.model_named(name)
    if entry is None:
        raise HTTPException(404, "There is no model with this name.")
    answer = await call_model(config, entry, agent_services.usage)
    if isinstance(answer, CheckResult):
        request.scope[AUDIT_DETAIL] = f"no answer: {answer.text}"[:200]
        return ModelTestView(error=answer.text, fix=answer.fix)
    request.scope[AUDIT_DETAIL] = f"answered in {answer.seconds:.1f} s"
    return ModelTestView(
        answer=answer.text[:MAX_ANSWER_CHARS],
        seconds=round(answer.seconds, 3),
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
    )


def _models_of(
    services: Services, section: SessionConfig, of_agents: dict[str, str]
) -> Iterator[str]:
    """Yield the models that a channel's sessions name: of the channel, and of its chats and people."""
    default = services.agent_services.config.get().chat_models[0].name
    base = session_layers(services.config.bus.session, section, channel="", user_id="", chat="")
    for own in (SessionConfig(), *section.chats.values(), *section.users.values()):
        session = merge_layers([*base, SessionLayer("channel", "", own)]).session
        agent = str(session.context.get("agent_name") or session.assistant_id or "").lower()
        yield str(session.context.get("model_name") or of_agents.get(agent, default))
