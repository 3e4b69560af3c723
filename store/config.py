"""The `database` section of the configuration."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class StoreConfig(BaseModel):
    """The `database` section. `url` is `sqlite:///FILE`, relative to the data folder, or absolute."""

    model_config = ConfigDict(extra="allow", frozen=True)

    url: str = "sqlite:///parley.db"
    busy_timeout_ms: int = Field(default=5000, ge=0, description="SQLite's own wait for a lock, ms")
    readers: int = Field(default=2, ge=1, le=16, description="read connections")
    retention_days: int = Field(
        default=365, ge=0, description="days until old rows are deleted; 0 = never"
    )

    def file(self, home: Path) -> Path:
        """Return the SQLite file that `url` names.

        >>> StoreConfig().file(Path("/data")).as_posix()
        '/data/parley.db'
        """
        return home / self.url.removeprefix("sqlite:///")
