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
        """Return the skills: `{skills}`; switched-off and broken ones too, unless only enabled ones are wanted."""
        snapshot = await self._systems.skills.load()
        listed = snapshot.enabled if enabled_only else snapshot.skills
        return {"skills": [_to_json(skill) for skill in listed]}

    async def get_skill(self, name: str) -> JsonObject | None:
        """Return one skill; None when there is none of this name."""
        found = (await self._systems.skills.load()).find(name)
        return _to_json(found) if found is not None else None

    async def update_skill(self, name: str, *, enabled: bool) -> JsonObject:
        """Enable or disable a skill; the next turn sees it. Return it.

        Raises:
            ValueError: There is none of this name.
            ExtensionsError: It cannot be written down.
        """
        try:
            return _to_json(await self._systems.skills.set_enabled(name, on=enabled))
        except SkillNotFound:
            raise ValueError(f"There is no skill named {name!r}.") from None

    async def install_skill(self, path: Path | str) -> JsonObject:
        """Install a `.skill` file of this machine: `{success, skill_name, message}`.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It is not a file.
            SkillError: It is not a valid skill, is blocked by the scan, exists already, or cannot be written.
        """
        source = await anyio.to_thread.run_sync(existing_file, path)
        async with await anyio.open_file(source, "rb") as file:
            installed = await self._systems.skill_installer.install(file.wrapped, source.name)
        name = installed.skill.name
        message = ". ".join((f"The skill {name} is installed", *installed.notes))
        return {"success": True, "skill_name": name, "message": f"{message}."}

    async def list_custom_skills(self) -> JsonObject:
        """Return this installation's own skills: `{skills}`."""
        snapshot = await self._systems.skills.load()
        return {
            "skills": [_to_json(skill) for skill in snapshot.skills if skill.category == "custom"]
        }

    async def get_custom_skill(self, name: str) -> JsonObject:
        """Return one of these with the `content` of its SKILL.md. Raises SkillNotFound, SkillInvalid."""
        skill, content = await self._systems.skill_installer.content(name)
        return {**_to_json(skill), "content": content}

    async def update_custom_skill(self, name: str, content: str) -> JsonObject:
        """Replace the text of a SKILL.md. Raises SkillError: nothing was changed."""
        skill = await self._systems.skill_installer.edit(name, content)
        return {**_to_json(skill), "content": content}

    async def delete_custom_skill(self, name: str) -> JsonObject:
        """Remove a custom skill with its files; its history stays. Raises SkillError."""
        await self._systems.skill_installer.delete(name)
        return {"success": True}

    async def get_custom_skill_history(self, name: str) -> JsonObject:
        """Return what was done to a custom skill, oldest first: `{history}`. Raises SkillNotFound."""
        return {
            "history": [
                asdict(change) for change in await self._systems.skill_installer.history(name)
            ]
        }

    async def rollback_custom_skill(self, name: str, history_index: int) -> JsonObject:
        """Take a change back: its place in the history, -1 is the newest. Raises SkillError."""
        await self._systems.skill_installer.rollback(name, history_index)
        return await self.get_custom_skill(name)


def _to_json(skill: Skill) -> JsonObject:
    return {
        "name": skill.name,
        "description": skill.description,
        "license": skill.license,
        "category": skill.category,
        "enabled": skill.enabled,
        "error": skill.error,
    }
