"""Chat model that sends back the thinking of all answers, which vLLM and some chat templates need."""

from typing import ClassVar

from langchain_openai import ChatOpenAI
from typing_extensions import override

from agent.models.openai_chat import CompatibleServer


class VllmChatModel(CompatibleServer, ChatOpenAI):
    """ChatOpenAI that sends back the thinking of all answers, under the field name that it came with.

    It is never part of the text.
    """

    returns_all_reasoning: ClassVar[bool] = True

    @property
    @override
    def _llm_type(self) -> str:
        return "parley-vllm"
