"""The models and agents that people may choose on a channel."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bus.config import ChannelPolicy
from store.conversation_settings import ConversationSettings


class AllowedChoices:
    """The channels' `models` and `agents`. Without such a list, everything may be chosen.

    Args:
        policies: The channels' policies.
    """

    def __init__(self, policies: Mapping[str, ChannelPolicy]) -> None:
        self._policies = policies

    def models(self, channel: str, known: Sequence[str]) -> list[str]:
        """Return the known models that people may choose.

        >>> policies = {"slack": ChannelPolicy(models=["small", "gone"])}
        >>> AllowedChoices(policies).models("slack", ["large", "small"])
        ['small']
        """
        return _allowed(self._policy(channel).models, known)

    def agents(self, channel: str, known: Sequence[str]) -> list[str]:
        """Return the known agents and graphs that people may choose."""
        return _allowed(self._policy(channel).agents, known)

    def keep_allowed(self, channel: str, chosen: ConversationSettings) -> ConversationSettings:
        """Return the settings without choices that are no longer allowed."""
        if chosen.model is None and chosen.agent is None:
            return chosen
        model = chosen.model and next(iter(self.models(channel, [chosen.model])), None)
        agent = chosen.agent and next(iter(self.agents(channel, [chosen.agent])), None)
        return replace(chosen, model=model, agent=agent)

    def _policy(self, channel: str) -> ChannelPolicy:
        return self._policies.get(channel, _OPEN)


_OPEN = ChannelPolicy()


def _allowed(listed: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    return [name for name in known if listed is None or name in listed]
