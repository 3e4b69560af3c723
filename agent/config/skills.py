"""The `skills` section."""

from typing import Literal

from pydantic import Field

from agent.config.section import Section


class SkillsConfig(Section):
    """Where skills are stored, and how new ones are scanned.

    Attributes:
        path: The folder that contains `public`, relative to the configuration or else to the installation.
        container_path: The virtual path of the skills.
        scan: The scanner that checks a skill before it is installed or changed: `model` or `none`.
        scan_model_name: The entry of `models` for scans; None = the first.
    """

    path: str = "skills"
    container_path: str = Field(default="/mnt/skills", pattern=r"^(/[\w-][\w.-]*)+/?$")
    scan: Literal["model", "none"] = "model"
    scan_model_name: str | None = None
