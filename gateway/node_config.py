"""The `node` section of the configuration: describes this process among those that share a PostgreSQL database."""

from pydantic import BaseModel, ConfigDict, Field


class NodeConfig(BaseModel):
    """The `node` section.

    Attributes:
        name: The name of this process in logs, in metrics and for other nodes; None = host name and port.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str | None = Field(default=None, min_length=1, max_length=100)
