"""GET /api/models: what was configured, without keys and addresses."""

from typing import Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel

from agent.config import ModelConfig
from gateway.dependencies import AgentServicesDep
from gateway.openapi import error_responses

router = APIRouter(responses=error_responses(404))


class ModelView(BaseModel):
    """A configured model."""

    name: str
    model: str
    display_name: str | None
    description: str | None
    supports_thinking: bool
    supports_vision: bool
    supports_reasoning_effort: bool


class TokenUsage(BaseModel):
    """Whether used tokens are counted."""

    enabled: bool


class ModelList(BaseModel):
    """All models, the default first."""

    models: list[ModelView]
    token_usage: TokenUsage


def model_view(model: ModelConfig) -> dict[str, Any]:
    """Return what may be told of a model."""
    return {
        "name": model.name,
        "model": model.model,
        "display_name": model.display_name,
        "description": model.description,
        "supports_thinking": model.supports_thinking,
        "supports_vision": model.supports_vision,
        "supports_reasoning_effort": model.supports_reasoning_effort,
    }


@router.get("/models", response_model=ModelList)
async def list_models(agent_services: AgentServicesDep) -> dict[str, Any]:
    """List the models, the default first."""
    listed = [model_view(model) for model in agent_services.config.get().chat_models]
    return {"models": listed, "token_usage": {"enabled": False}}


@router.get("/models/{name}", response_model=ModelView)
async def get_model(name: str, agent_services: AgentServicesDep) -> dict[str, Any]:
    """Return one model."""
    found = agent_services.config.get().model_named(name)
    if found is None:
        raise HTTPException(404, "There is no model of this name.")
    return model_view(found)
