"""Client methods for skills."""

from dataclasses import asdict
from pathlib import Path

import anyio
import anyio.to_thread

from agent.client.api import ClientApi, JsonObject
from agent.client.files import existing_file
from agent.errors import SkillNotFound
from agent.skills.loader import Skill


class SkillsApi(ClientApi):
    """The skills of this installation."""

    async def list_skills(self, *, enabled_only: bool = False) -> JsonObject:
        """Return the skills, including disabled and invalid ones unless `enabled_only`: `{skills}`."""
        snapshot = await self._services.skills.load()
        listed = snapshot.enabled if enabled_only else snapshot.skills
        return {"skills": [_to_json(skill) for skill in listed]}

    async def get_skill(self, name: str) -> JsonObject | None:
        """Return one skill with its text, `content`; None if it does not exist."""
        try:
            skill, content = await self._services.skills.content(name)
        except SkillNotFound:
            return None
        return {**_to_json(skill), "content": content}

    async def update_skill(self, name: str, *, enabled: bool) -> JsonObject:
        """Enable or disable a skill for the next turns, and return it.

        Raises:
            ValueError: There is no skill with this name.
            ExtensionsError: The extensions file cannot be written.
        """
        try:
            return _to_json(await self._services.skills.set_enabled(name, on=enabled))
        except SkillNotFound:
            raise ValueError(f"There is no skill named {name!r}.") from None

    async def install_skill(self, path: Path | str) -> JsonObject:
        """Install a local `.skill` file: `{success, skill_name, message}`.

        Raises:
            FileNotFoundError: The file does not exist.
            ValueError: It is not a file.
            SkillError: The skill is invalid, rejected by the scan, already installed, or cannot be written.
        """
        source = await anyio.to_thread.run_sync(existing_file, path)
        # Close it without awaiting: a canceled task cannot await, and would leave the file open.
        with await anyio.to_thread.run_sync(source.open, "rb") as file:
            installed = await self._services.skill_installer.install(file, source.name)
        name = installed.skill.name
        message = ". ".join((f"The skill {name} is installed", *installed.notes))
        return {"success": True, "skill_name": name, "message": f"{message}."}

    async def list_custom_skills(self) -> JsonObject:
        """Return the custom skills: `{skills}`."""
        snapshot = await self._services.skills.load()
        return {
            "skills": [_to_json(skill) for skill in snapshot.skills if skill.category == "custom"]
        }

    async def get_custom_skill(self, name: str) -> JsonObject:
        """Return a custom skill with the `content` of its SKILL.md. Raises SkillNotFound, SkillInvalid."""
        skill, content = await self._services.skill_installer.content(name)
        return {**_to_json(skill), "content": content}

    async def update_custom_skill(self, name: str, content: str) -> JsonObject:
        """Replace the content of a SKILL.md. Raises SkillError if nothing was changed."""
        skill = await self._services.skill_installer.edit(name, content)
        return {**_to_json(skill), "content": content}

    async def delete_custom_skill(self, name: str) -> JsonObject:
        """Delete a custom skill with its files. Its history is kept. Raises SkillError."""
        await self._services.skill_installer.delete(name)
        return {"success": True}

    async def get_custom_skill_history(self, name: str) -> JsonObject:
        """Return the history of a custom skill, oldest first: `{history}`. Raises SkillNotFound."""
        return {
            "history": [
                asdict(change) for change in await self._services.skill_installer.history(name)
            ]
        }

    async def rollback_custom_skill(self, name: str, history_index: int) -> JsonObject:
        """Undo a change by its index in the history; -1 = the latest. Raises SkillError."""
        await self._services.skill_installer.rollback(name, history_index)
        return await self.get_custom_skill(name)


def _to_json(skill: Skill) -> JsonObject:
    return {
        "name": skill.name,
        "description": skill.description,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": dict(skill.metadata),
        "category": skill.category,
        "enabled": skill.enabled,
        "error": skill.error,
    }
