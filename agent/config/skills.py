"""The `skills` section."""

from typing import Literal

from pydantic import Field

from agent.config.section import Section


class SkillsConfig(Section):
    """Where skills lie, where the agent sees them, and who looks at new ones.

    Attributes:
        path: The folder that holds `public`; relative to the configuration, else to the program's installation.
        container_path: Where the agent sees the skills.
        scan: Who judges a skill before it is installed or changed: `model`, or `none`.
        scan_model_name: An entry of `models` that does; None = the first.
    """

    path: str = "skills"
    container_path: str = Field(default="/mnt/skills", pattern=r"^(/[\w-][\w.-]*)+/?$")
    scan: Literal["model", "none"] = "model"
    scan_model_name: str | None = None
