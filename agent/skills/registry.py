"""The skills of this installation: which there are, which are enabled, and what the agent sees of them."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from agent.config import SkillsConfig
from agent.errors import SkillNotFound
from agent.extensions import SKILLS, ExtensionsDocument, ExtensionsFile, section
from agent.paths import Mount
from agent.skills.loader import Skill, SkillLoader, SkillSnapshot, public_root

INSTALLATION: Final = Path(__file__).parents[2]
"""The folder that holds this program: its own skills lie there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillPaths:
    """Where skills lie.

    Attributes:
        home: The data folder; `skills/custom` in it is written to, the program's own skills never are.
        base: From where a relative `skills.path` is meant first; None = the working folder.
    """

    home: Path
    base: Path | None = None

    @property
    def custom(self) -> Path:
        """Return the folder of this installation's own skills."""
        return self.home / "skills" / "custom"


class SkillRegistry:
    """The skills.

    Args:
        config: Gives the `skills` section that holds now.
        grounds: Where they lie.
        extensions: The file that says which are switched off.
    """

    def __init__(
        self, config: Callable[[], SkillsConfig], grounds: SkillPaths, extensions: ExtensionsFile
    ) -> None:
        self._config = config
        self._grounds = grounds
        self._extensions = extensions
        self._made_for: SkillsConfig | None = None
        self._catalog: SkillLoader | None = None
        self._shelf = SkillSnapshot()
        self._looking = threading.Lock()

    @property
    def custom_folder(self) -> Path:
        """Where this installation's own skills lie."""
        return self._grounds.custom

    async def load(self) -> SkillSnapshot:
        """Return the skills that are there now, switched-off and broken ones among them.

        While nothing changes the same object is returned.
        """
        return await anyio.to_thread.run_sync(self.load_sync)

    def load_sync(self) -> SkillSnapshot:
        """Do the same. Blocking: call it in a worker thread."""
        with self._looking:
            self._shelf = self._catalog_now().load(self._extensions.read().skills)
            return self._shelf

    def mounts(self) -> Sequence[Mount]:
        """Return one read-only folder for each enabled skill, as of the last look. Nothing else can be seen."""
        return [
            Mount(virtual=skill.virtual_folder, host=skill.folder, read_only=True)
            for skill in self._shelf.enabled
        ]

    async def get(self, name: str) -> Skill:
        """Return one skill.

        Raises:
            SkillNotFound: There is none of this name.
        """
        found = (await self.load()).find(name)
        if found is None:
            raise SkillNotFound
        return found

    async def set_enabled(self, name: str, *, on: bool) -> Skill:
        """Enable or disable a skill; runs that start from now on see it.

        Raises:
            SkillNotFound: There is none of this name.
            ExtensionsError: It cannot be written down.
        """
        await self.get(name)

        def change(document: ExtensionsDocument) -> None:
            skills = section(document, SKILLS)
            entry = skills.get(name)
            skills[name] = {**(entry if isinstance(entry, dict) else {}), "enabled": on}

        await self._extensions.update(change)
        return await self.get(name)

    def _catalog_now(self) -> SkillLoader:
        config = self._config()
        if self._catalog is None or config != self._made_for:
            bases = (self._grounds.base or Path.cwd(), INSTALLATION)
            self._catalog = SkillLoader(
                public=public_root(config.path, bases),
                custom=self._grounds.custom,
                container_path=config.container_path,
            )
            self._made_for = config
        return self._catalog
