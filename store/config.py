"""The `database` section of the configuration."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from store.errors import StoreUnavailable

CHECKPOINTS_FILE = "checkpoints.db"
"""The SQLite file of the checkpoints, in the data folder."""

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


class StoreConfig(BaseModel):
    """The `database` section.

    `url` is `sqlite:///FILE`, relative to the data folder, or absolute; or `postgresql://USER:PASSWORD@HOST/NAME`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    url: str = "sqlite:///parley.db"
    busy_timeout_ms: int = Field(default=5000, ge=0, description="SQLite's own wait for a lock, ms")
    readers: int = Field(default=2, ge=1, le=16, description="read connections")
    retention_days: int = Field(
        default=365, ge=0, description="days until old rows are deleted; 0 = never"
    )

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        urlsplit(url)
        return url

    @property
    def is_sqlite(self) -> bool:
        """Whether `url` names a SQLite file."""
        return self.url.startswith(_SQLITE)

    @property
    def is_postgres(self) -> bool:
        """Whether `url` names a PostgreSQL database."""
        return self.url.startswith(_POSTGRES)

    @property
    def password(self) -> str:
        """The password in `url`; "" = none.

        >>> StoreConfig(url="postgresql://parley:s%2Fcret@db/parley").password
        's/cret'
        """
        return unquote(urlsplit(self.url).password or "") if self.is_postgres else ""

    def file(self, home: Path) -> Path:
        """Return the SQLite file that `url` names. Raises StoreUnavailable if it names PostgreSQL.

        >>> StoreConfig().file(Path("/data")).as_posix()
        '/data/parley.db'
        """
        if not self.is_sqlite:
            raise StoreUnavailable(
                "database.url names PostgreSQL, and this works on SQLite files only: use pg_dump and pg_restore "
                "for the database, and copy the data folder."
            )
        return home / self.url.removeprefix(_SQLITE)
