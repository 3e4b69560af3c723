"""The `node` section of the configuration: this process, among those that share a PostgreSQL database."""

from pydantic import BaseModel, ConfigDict, Field


class NodeConfig(BaseModel):
    """The `node` section.

    Attributes:
        name: What logs, metrics and other nodes call this process; None = host name and port.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str | None = Field(default=None, min_length=1, max_length=100)
