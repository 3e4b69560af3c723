"""The `tool_groups` and `tools` sections."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from typing_extensions import override

from agent.config.section import Section


class ToolGroupConfig(Section):
    """One entry of `tool_groups`: a group of tools that custom agents can be limited to."""

    name: str = Field(min_length=1)


class ToolConfig(Section):
    """One entry of `tools`. `use` names a LangChain tool as `module:attribute`, which gets the unknown keys."""

    name: str = Field(min_length=1)
    group: str = Field(min_length=1)
    use: str = Field(min_length=1)

    @classmethod
    @override
    def passes_extra_keys(cls, _data: Mapping[str, Any], /) -> bool:
        return True
