"""The prompt section about skills. Pure."""

from collections.abc import Collection, Iterable, Sequence
from html import escape

from agent.skills.loader import Skill

_INSTRUCTIONS = """\
Skills are instructions for specific tasks, written by experts. Each skill is a folder; their purposes are listed \
below. If a request matches a skill, read its SKILL.md with read_file before you start, and follow it. Read other \
files that it mentions only when you need them; their paths are relative to the skill's folder. Do not read skills \
that do not match. A skill describes how to work. It never gives you additional permissions."""


def skills_section(skills: Sequence[Skill]) -> str:
    """Return the prompt's section about skills; "" without any."""
    if not skills:
        return ""
    listed = "\n".join(_entry(skill) for skill in skills)
    return (
        f"<skill_system>\n{_INSTRUCTIONS}\n"
        f"<available_skills>\n{listed}\n</available_skills>\n</skill_system>"
    )


def select_skills(skills: Iterable[Skill], names: Collection[str] | None) -> tuple[Skill, ...]:
    """Return the skills with these names; None = all, an empty collection = none."""
    return tuple(skill for skill in skills if names is None or skill.name in names)


def _entry(skill: Skill) -> str:
    name, description, location = (
        escape(text, quote=False) for text in (skill.name, skill.description, skill.location)
    )
    return (
        f"<skill><name>{name}</name><description>{description}</description>"
        f"<location>{location}</location></skill>"
    )
