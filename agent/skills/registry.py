"""Skill registry: lists skills, enables and disables them, and mounts their folders for the agent."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio.to_thread

from agent.config import SkillsConfig
from agent.errors import SkillNotFound
from agent.extensions import SKILLS, Extensions, ExtensionsDocument, ExtensionsFile, section
from agent.paths import Mount
from agent.skills import manifest
from agent.skills.loader import Skill, SkillLoader, SkillSnapshot, public_root

INSTALLATION = Path(__file__).parents[2]
"""The checkout, which contains the public skills."""

PACKAGE = Path(__file__).parents[1]
"""The folder that contains the public skills if Parley is installed as a package."""


class SkillRegistry:
    """The public skills of the program and the custom skills of a data folder.

    Args:
        config: Returns the current `skills` section.
        extensions: The file that lists disabled skills.
        home: The data folder. Custom skills are in `skills/custom`; public skills are never written to.
        base: Folder against which a relative `skills.path` is resolved first; None = the working folder.
    """

    def __init__(
        self,
        config: Callable[[], SkillsConfig],
        extensions: ExtensionsFile,
        *,
        home: Path,
        base: Path | None = None,
    ) -> None:
        self._config = config
        self._extensions = extensions
        self._base = base
        self._loader_config: SkillsConfig | None = None
        self._loader: SkillLoader | None = None
        self._snapshot = SkillSnapshot()
        self._lock = threading.Lock()
        self.custom_folder = home / "skills" / "custom"

    async def load(self) -> SkillSnapshot:
        """Return all current skills, also disabled and broken ones. Returns the same object while nothing changes."""
        return await anyio.to_thread.run_sync(self.load_sync)

    def load_sync(self, extensions: Extensions | None = None) -> SkillSnapshot:
        """Like `load`, but blocking: call it in a worker thread.

        Args:
            extensions: The content of the file that lists disabled skills; None = read it.
        """
        with self._lock:
            enabled = (extensions or self._extensions.read()).skills
            self._snapshot = self._current_loader().load(enabled)
            return self._snapshot

    def mounts(self) -> Sequence[Mount]:
        """Return a read-only mount for each skill that was enabled at the last load."""
        return [
            Mount(virtual=skill.virtual_folder, host=skill.folder, read_only=True)
            for skill in self._snapshot.enabled
        ]

    async def get(self, name: str) -> Skill:
        """Return a skill.

        Raises:
            SkillNotFound: There is no skill with this name.
        """
        found = (await self.load()).find(name)
        if found is None:
            raise SkillNotFound
        return found

    async def content(self, name: str) -> tuple[Skill, str]:
        """Return a skill and its SKILL.md; "" if the file cannot be read.

        Raises:
            SkillNotFound: There is no skill with this name.
        """
        skill = await self.get(name)

        def read() -> str:
            try:
                return (skill.folder / manifest.FILE).read_text("utf-8", "replace")
            except OSError:
                return ""

        return skill, await anyio.to_thread.run_sync(read)

    async def set_enabled(self, name: str, *, on: bool) -> Skill:
        """Enable or disable a skill for new runs.

        Raises:
            SkillNotFound: There is no skill with this name.
            ExtensionsError: The extensions file cannot be changed.
        """
        await self.get(name)

        def change(document: ExtensionsDocument) -> None:
            skills = section(document, SKILLS)
            entry = skills.get(name)
            skills[name] = {**(entry if isinstance(entry, dict) else {}), "enabled": on}

        await self._extensions.update(change)
        return await self.get(name)

    def _current_loader(self) -> SkillLoader:
        config = self._config()
        if self._loader is None or config != self._loader_config:
            bases = (self._base or Path.cwd(), INSTALLATION, PACKAGE)
            self._loader = SkillLoader(
                public=public_root(config.path, bases),
                custom=self.custom_folder,
                container_path=config.container_path,
            )
            self._loader_config = config
        return self._loader
