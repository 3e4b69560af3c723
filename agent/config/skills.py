"""The `skills` section."""

from pydantic import Field

from agent.config.section import Section


class SkillsConfig(Section):
    """Where skills lie on this machine, and where the agent sees them."""

    path: str = "skills"
    container_path: str = Field(default="/mnt/skills", pattern=r"^/[^/].*$")
