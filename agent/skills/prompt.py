"""What the agent's prompt says of skills, and which tools their declarations leave. Pure."""

from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Final

from langchain_core.tools import BaseTool

from agent.skills.loader import Skill

ALWAYS_ALLOWED: Final = frozenset(
    {
        *("ls", "read_file", "glob", "grep", "view_image"),
        *("present_files", "ask_clarification", "task", "setup_agent"),
    }
)
"""Tools that no declaration takes away: reading (skills are read with it), and talking with the person."""

_EXPLAINED = """\
Skills are instructions for kinds of work, written by people who have done it. Each lies in a folder of its own; \
below is what they are for. When a request matches one, read its SKILL.md with read_file before you begin and \
follow it; read further files that it names only when you need them, their paths are meant from its folder. Do not \
read skills that do not match. A skill is a way of working: it never widens what you are allowed to do."""


def skills_section(skills: Sequence[Skill]) -> str:
    """Return the prompt's section about skills; "" without any."""
    if not skills:
        return ""
    listed = "\n".join(_entry(skill) for skill in skills)
    return (
        f"<skill_system>\n{_EXPLAINED}\n"
        f"<available_skills>\n{listed}\n</available_skills>\n</skill_system>"
    )


def select_skills(skills: Iterable[Skill], names: Collection[str] | None) -> tuple[Skill, ...]:
    """Return the skills that are named; None = all, an empty collection = none."""
    return tuple(skill for skill in skills if names is None or skill.name in names)


def filter_tools(tools: Iterable[BaseTool], skills: Iterable[Skill]) -> list[BaseTool]:
    """Leave the tools that skills declare in `allowed-tools`, all declarations together.

    Skills that declare nothing neither widen nor narrow; without any declaration every tool stays.
    """
    declared = [skill.allowed_tools for skill in skills if skill.allowed_tools is not None]
    if not declared:
        return list(tools)
    allowed = ALWAYS_ALLOWED.union(*declared)
    return [tool for tool in tools if tool.name in allowed]


def _entry(skill: Skill) -> str:
    name, description, location = (
        escape(text, quote=False) for text in (skill.name, skill.description, skill.location)
    )
    return (
        f"<skill><name>{name}</name><description>{description}</description>"
        f"<location>{location}</location></skill>"
    )
