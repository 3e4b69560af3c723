"""Maps the finish reasons of all providers to a few kinds. Pure."""

from typing import Literal

from langchain_core.messages import AIMessage

FinishKind = Literal["whole", "length", "filtered", "stopped", "unknown"]
"""`length`: the model's limit. `filtered`: a content filter or a refusal. `stopped`: a server problem."""

_REASONS: dict[FinishKind, frozenset[str]] = {
    "whole": frozenset(
        {
            *(
                "stop",
                "tool_calls",
                "function_call",
                "end_turn",
                "tool_use",
                "stop_sequence",
                "pause_turn",
            ),
            *("eos", "eos_token", "end", "complete", "completed", "finished", "normal"),
        }
    ),
    "length": frozenset(
        {
            *("length", "max_tokens", "max_output_tokens", "max_completion_tokens", "max_length"),
            *("model_length", "context_length", "model_context_window_exceeded", "token_limit"),
        }
    ),
    "filtered": frozenset(
        {
            *(
                "content_filter",
                "refusal",
                "safety",
                "prohibited_content",
                "blocklist",
                "spii",
                "recitation",
            ),
            *("content_filtered", "sensitive", "guardrail_intervened", "image_safety"),
        }
    ),
    "stopped": frozenset(
        {
            *(
                "insufficient_system_resource",
                "abort",
                "aborted",
                "cancelled",
                "error",
                "network_error",
            ),
            *("timeout", "time_limit", "malformed_function_call", "repetition_truncation"),
        }
    ),
}
_KIND_OF = {reason: kind for kind, reasons in _REASONS.items() for reason in reasons}


def finish_reason(message: AIMessage) -> str:
    """Return the provider's finish reason; "" = none."""
    metadata = message.response_metadata
    details = metadata.get("incomplete_details")  # the Responses API
    reason = metadata.get("finish_reason") or metadata.get("stop_reason")
    reason = reason or (details.get("reason") if isinstance(details, dict) else None)
    return reason if isinstance(reason, str) else ""


def finish_kind(message: AIMessage) -> FinishKind:
    """Return the kind of an answer's finish reason.

    >>> finish_kind(AIMessage("Ha", response_metadata={"finish_reason": "MAX_TOKENS"}))
    'length'
    """
    reason = finish_reason(message).lower()
    return _KIND_OF.get(reason, "unknown") if reason else "whole"
