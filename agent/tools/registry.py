"""Builds an agent's tools: built-in ones and tools from the `tools` section."""

import logging
from collections.abc import Collection, Iterable
from inspect import signature

from langchain_core.tools import BaseTool

from agent.config import ToolConfig
from agent.errors import ObjectNotImportable
from agent.importer import import_object
from agent.sandbox.background_commands import BackgroundCommands
from agent.sandbox.protocol import SandboxProvider
from agent.thread_storage import ThreadStorage
from agent.tool_names import is_built_in
from agent.tools.ask_clarification import ask_clarification_tool
from agent.tools.bash import bash_tools
from agent.tools.files import file_tools
from agent.tools.present_files import present_files_tool
from agent.tools.results import ToolLimits
from agent.tools.services import ToolServices
from agent.uploads.converter import DocumentConverter

log = logging.getLogger(__name__)


def built_in_tools(
    sandboxes: SandboxProvider,
    limits: ToolLimits,
    *,
    background: BackgroundCommands | None = None,
    converter: DocumentConverter | None = None,
    images: ThreadStorage | None = None,
) -> tuple[BaseTool, ...]:
    """Build the tools that every agent has. Includes the bash tools only if the sandboxes run commands.

    Args:
        sandboxes: Provides the files and the shell.
        limits: Limits of the tools.
        background: Runs commands in the background; None = they run in the foreground only.
        converter: Reads documents; None = create one.
        images: Threads' folders, for a model that supports images; None = it does not.
    """
    return (
        *file_tools(sandboxes, limits, converter or DocumentConverter(), images),
        *(
            bash_tools(sandboxes, limits.command_timeout_s, background)
            if sandboxes.can_execute
            else ()
        ),
        present_files_tool(sandboxes),
        ask_clarification_tool(),
    )


def configured_tools(
    entries: Iterable[ToolConfig],
    services: ToolServices | None = None,
    *,
    groups: Collection[str] | None = None,
) -> list[BaseTool]:
    """Resolve the `tools` section. Blocking: it imports modules.

    `use` names a tool, or a callable that receives the entry's other keys and returns a tool. If the callable has a
    parameter `services`, it also receives the services.

    Args:
        entries: The section.
        services: The services that tools can use; None = the tools are only built to be checked.
        groups: Only tools of these groups; None = all.

    Raises:
        ObjectNotImportable: An entry is not a tool.
    """
    return [
        _tool_of(entry, services) for entry in entries if groups is None or entry.group in groups
    ]


def deduplicate_tools(tools: Iterable[BaseTool]) -> list[BaseTool]:
    """Keep the first tool of each name, because providers reject duplicate names."""
    kept: dict[str, BaseTool] = {}
    for tool in tools:
        if tool.name in kept:
            log.warning("duplicate tool name %s: ignoring the second one", tool.name)
            continue
        kept[tool.name] = tool
    return list(kept.values())


def _tool_of(entry: ToolConfig, services: ToolServices | None) -> BaseTool:
    found = import_object(entry.use)
    if not isinstance(found, BaseTool) and callable(found):
        try:
            keys = entry.extra_keys()
            if "services" in signature(found).parameters:
                keys["services"] = services
            found = found(**keys)
        except ObjectNotImportable as error:
            raise ObjectNotImportable(f"tools: {entry.name}: {error}") from error
        except Exception as error:
            # Do not show the error's text: it may quote the keys, which may be secret.
            raise ObjectNotImportable(
                f"tools: {entry.name}: {entry.use} cannot be built with these keys "
                f"({type(error).__name__})"
            ) from error
    if not isinstance(found, BaseTool):
        raise ObjectNotImportable(f"tools: {entry.name}: {entry.use} is not a LangChain tool")
    if is_built_in(found.name):
        raise ObjectNotImportable(
            f"tools: {entry.name}: {entry.use} has the name of Parley's own tool {found.name!r}: rename it"
        )
    if found.name != entry.name:
        log.warning("tools: %s: the tool is called %s in its code", entry.name, found.name)
    return found
