"""A model for memory extraction: each word that starts with `mark` becomes a fact."""

import json
import re

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from typing_extensions import override

from tests.fakes.model import ModelReply
from tests.fakes.scripted import ScriptedChatModel

CONVERSATION = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)


class MemoryModel(ScriptedChatModel):
    """Replies with changes to a memory document."""

    @property
    def questions(self) -> list[str]:
        """The prompts it received."""
        return [prompt[-1].text for prompt in self.prompts]

    async def given(self, name: str | None) -> BaseChatModel:
        """Return this model for any name. It is a `ModelSource`."""
        return self

    @override
    def _next(self, messages: list[BaseMessage]) -> ModelReply:
        super()._next(messages)
        return ModelReply(text=noted(messages[-1].text))


def noted(question: str) -> str:
    """Return the changes that the model proposes for a prompt."""
    found = CONVERSATION.search(question)
    marks = re.findall(r"mark\w+", found.group(1) if found else "")
    facts = [{"content": mark, "category": "context", "confidence": 0.9} for mark in marks]
    return json.dumps({"user": {}, "history": {}, "newFacts": facts, "factsToRemove": []})
