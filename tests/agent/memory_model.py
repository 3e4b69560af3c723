"""A model that reads conversations as memory asks it to: each word that begins with `mark` becomes a fact."""

import json
import re
from typing import Any

import anyio
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr
from typing_extensions import override

CONVERSATION = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)


class MemoryModel(BaseChatModel):
    """Answers with the changes to a memory document.

    Attributes:
        hang: Never answer.
    """

    hang: bool = False
    _questions: list[str] = PrivateAttr(default_factory=list)
    _asked: anyio.Event = PrivateAttr(default_factory=anyio.Event)
    _may_answer: anyio.Event | None = PrivateAttr(default=None)

    @property
    def questions(self) -> list[str]:
        """What it was asked."""
        return self._questions

    @property
    def asked(self) -> anyio.Event:
        """Is set with the first question."""
        return self._asked

    def hold(self) -> anyio.Event:
        """Let it answer only once the event that is returned is set."""
        self._may_answer = anyio.Event()
        return self._may_answer

    async def given(self, name: str | None) -> BaseChatModel:
        """Return itself, whatever model is asked for: a `ModelSource`."""
        return self

    @property
    @override
    def _llm_type(self) -> str:
        return "noting"

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise AssertionError("memory asks models without blocking")

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        question = messages[-1].text
        self._questions.append(question)
        self._asked.set()
        if self.hang:
            await anyio.sleep_forever()
        if self._may_answer is not None:
            await self._may_answer.wait()
        message = AIMessage(noted(question))
        return ChatResult(generations=[ChatGeneration(message=message)])


def noted(question: str) -> str:
    """Return the changes that a question leads to."""
    found = CONVERSATION.search(question)
    marks = re.findall(r"mark\w+", found.group(1) if found else "")
    facts = [{"content": mark, "category": "context", "confidence": 0.9} for mark in marks]
    return json.dumps({"user": {}, "history": {}, "newFacts": facts, "factsToRemove": []})
