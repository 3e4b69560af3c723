"""What the agent itself says to people, where no model speaks: every text a field."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessages:
    """The texts in one language, as Markdown. `model_REASON` belongs to a reason of `agent.models.failures`."""

    model_auth: str
    model_quota: str
    model_rate_limit: str
    model_server: str
    model_timeout: str
    model_connection: str
    model_context: str
    model_request: str
    model_circuit_open: str
    filtered: str
    """Instead of an answer that a provider's safety filter left empty."""
    steps_used_up: str
    """Instead of an answer: the turn had as many model calls as it may have."""
    went_in_circles: str
    """Instead of an answer: the turn repeated itself."""
    bare_question: str
    """A question that the model left empty."""

    def model(self, reason: str) -> str:
        """Return what people are told when no model could be reached, and what they can do."""
        return str(getattr(self, f"model_{reason}"))
