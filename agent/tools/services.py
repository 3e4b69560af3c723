"""ToolServices: the agent's services that the builder of a configured tool may use."""

from dataclasses import dataclass

from agent.models.auxiliary import ModelSource
from agent.thread_storage import ThreadStorage
from agent.uploads.converter import DocumentConverter


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServices:
    """Services for tools. A builder with a parameter `services` receives them.

    Attributes:
        folders: The threads' folders.
        models: Models for work outside the conversation.
        converter: Converts documents to text.
    """

    folders: ThreadStorage
    models: ModelSource
    converter: DocumentConverter
