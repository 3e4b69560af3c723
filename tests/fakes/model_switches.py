"""The switches of `FakeModelServer`: what it refuses, how long it waits, and its prompt cache."""

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from agent.token_estimate import IMAGE_TOKENS, estimate_tokens
from tests.fakes.anthropic import MarkedPromptCache, request_problem
from tests.fakes.chat_template import template_problem

MIN_CACHED_TOKENS = 1_024
"""Shorter prompts are not cached: platform.openai.com/docs/guides/prompt-caching. Most Anthropic models do the same."""

_BLOCK_CHARS = 512
"""Prefixes are cached in steps of 128 tokens (same page). An English token has 4 characters."""

_PROMPT_KEYS = ("tools", "system", "instructions", "input", "messages")
"""Parts of a request's body that form the prompt, in the order in which providers cache them."""

_FILE = re.compile(r'(data:[\w.+-]+/[\w.+-]+;base64,|"data": ")[A-Za-z0-9+/=]+')


@dataclass(frozen=True)
class Refusal:
    """An error of the provider.

    Attributes:
        text: The message.
        code: OpenAI's code; the status is 400.
    """

    text: str
    code: str


@dataclass(kw_only=True)
class ModelSwitches:
    """How a model server treats requests. A switch may be changed while the server runs.

    Attributes:
        strict: Refuse requests that strict chat templates refuse: a system message that is not the first, two user
        messages in a row, results that do not follow their calls (tests/fakes/chat_template.py). Anthropic's route
        refuses what its API refuses (tests/fakes/anthropic.py).
        max_tokens: Refuse longer prompts (`prompt_tokens`) with OpenAI's error; None = accept all.
        max_tools: Refuse requests with more tools; 128 at OpenAI; None = accept all.
        caches_prefixes: Remember prompts, and report in `usage` how many tokens of a prompt were cached.
        first_token_delay_s: Pause before the first chunk of an answer.
        token_delay_s: Pause before each further chunk.
    """

    strict: bool = False
    max_tokens: int | None = None
    max_tools: int | None = None
    caches_prefixes: bool = False
    first_token_delay_s: float = 0.0
    token_delay_s: float = 0.0

    def refusal(self, body: dict[str, Any], *, is_anthropic: bool = False) -> Refusal | None:
        """Return why the server refuses a request with this body; None = accepted."""
        find = request_problem if is_anthropic else _template_problem
        if self.strict and (problem := find(body)):
            return Refusal(problem, "BadRequestError")
        count = len(body.get("tools", ()))
        if self.max_tools is not None and count > self.max_tools:
            text = (
                f"Invalid 'tools': array too long. Expected an array with maximum length {self.max_tools}, "
                f"but got an array with length {count} instead."
            )
            return Refusal(text, "array_above_max_length")
        if self.max_tokens is not None and (tokens := prompt_tokens(body)) > self.max_tokens:
            text = (
                f"This model's maximum context length is {self.max_tokens} tokens. However, your messages "
                f"resulted in {tokens} tokens. Please reduce the length of the messages."
            )
            return Refusal(text, "context_length_exceeded")
        return None


def prompt_tokens(body: dict[str, Any]) -> int:
    """Estimate the tokens of a request's prompt: messages, instructions and tools."""
    return _tokens(_prompt_text(body))


class PrefixCache:
    """The prompts that a server has received, as hashes of their prefixes."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._marked = MarkedPromptCache()

    def cached_tokens(self, body: dict[str, Any], *, is_anthropic: bool = False) -> int:
        """Return how many tokens of the prompt are cached, and cache the prompt. Anthropic caches only up to marks."""
        if is_anthropic:
            tokens = int(self._marked.cached_share(body) * prompt_tokens(body))
        else:
            tokens = _tokens(self._cached_text(body))
        return tokens if tokens >= MIN_CACHED_TOKENS else 0

    def _cached_text(self, body: dict[str, Any]) -> str:
        text = _prompt_text(body)
        digest = blake2b(str(body.get("model")).encode(), digest_size=16)
        known = 0
        for end in range(_BLOCK_CHARS, len(text) + 1, _BLOCK_CHARS):
            digest.update(text[end - _BLOCK_CHARS : end].encode("utf-8", "surrogatepass"))
            if digest.digest() in self._known:
                known = end
            else:
                self._known.add(digest.digest())
        return text[:known]


def _template_problem(body: dict[str, Any]) -> str:
    return template_problem(body.get("messages", ()))


def _prompt_text(body: dict[str, Any]) -> str:
    return "".join(json.dumps(body[key], ensure_ascii=False) for key in _PROMPT_KEYS if key in body)


def _tokens(text: str) -> int:
    """Count a file as one image, whatever its size, because its base64 is not text for the model."""
    words, files = _FILE.subn(r"\1", text)
    return estimate_tokens(words) + files * IMAGE_TOKENS
