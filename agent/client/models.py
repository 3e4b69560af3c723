"""Client methods for the configured models."""

from collections.abc import Mapping, Sequence

from agent.client.api import ClientApi, JsonObject
from agent.config import ModelConfig
from agent.suggestions import ConversationMessage, suggest_follow_ups


class ModelsApi(ClientApi):
    """The configured models."""

    async def list_models(self) -> JsonObject:
        """Return the models without keys and URLs, the default first: `{models, token_usage}`."""
        listed = [_to_json(model) for model in self._services.config.get().chat_models]
        return {"models": listed, "token_usage": {"enabled": False}}

    async def get_model(self, name: str) -> JsonObject | None:
        """Return one model; None if it does not exist."""
        found = self._services.config.get().model_named(name)
        return _to_json(found) if found is not None else None

    async def suggest(
        self, messages: Sequence[Mapping[str, str]], n: int = 3, model_name: str | None = None
    ) -> JsonObject:
        """Return follow-up messages that a user might send: `{suggestions}`. Empty if the model fails.

        Args:
            messages: A conversation, oldest first: `{role, content}`.
            n: The number of messages, at most 5.
            model_name: The model to use; None = the default.
        """
        conversation = [
            ConversationMessage(role=one["role"], text=one["content"]) for one in messages
        ]
        models = self._services.auxiliary_models.get
        found = await suggest_follow_ups(models, conversation, count=n, model_name=model_name)
        return {"suggestions": found}


def _to_json(model: ModelConfig) -> JsonObject:
    """Return the public part of a model's entry."""
    return {
        "name": model.name,
        "model": model.model,
        "display_name": model.display_name,
        "description": model.description,
        "supports_thinking": model.supports_thinking,
        "supports_vision": model.supports_vision,
        "supports_reasoning_effort": model.supports_reasoning_effort,
    }
