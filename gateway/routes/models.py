"""GET /api/models: the configured models, without keys and URLs."""

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict

from gateway.dependencies import AgentServicesDep
from gateway.openapi import error_responses

router = APIRouter(responses=error_responses(404))


class ModelView(BaseModel):
    """A configured model, without keys and URLs."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    model: str
    display_name: str | None
    description: str | None
    supports_thinking: bool
    supports_vision: bool
    supports_reasoning_effort: bool


class TokenUsage(BaseModel):
    """Whether token usage is counted."""

    enabled: bool


class ModelList(BaseModel):
    """All models, the default first."""

    models: list[ModelView]
    token_usage: TokenUsage


@router.get("/models")
async def list_models(agent_services: AgentServicesDep) -> ModelList:
    """List the models, the default first."""
    models = map(ModelView.model_validate, agent_services.config.get().chat_models)
    return ModelList(models=list(models), token_usage=TokenUsage(enabled=False))


@router.get("/models/{name}")
async def get_model(name: str, agent_services: AgentServicesDep) -> ModelView:
    """Return a model."""
    found = agent_services.config.get().model_named(name)
    if found is None:
        raise HTTPException(404, "There is no model with this name.")
    return ModelView.model_validate(found)
