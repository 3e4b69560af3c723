"""OAuth installation: the interface between an adapter and the gateway, which mounts the adapter's endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bots.common.webhooks import WebhookHandler


class CredentialVault(Protocol):
    """Keeps an adapter's secrets, encrypted. Methods raise StoreError."""

    async def save(self, channel: str, name: str, secret: str) -> None:
        """Store a secret. Replaces an earlier one with this name."""
        ...

    async def load(self, channel: str) -> Mapping[str, str]:
        """Return a channel's secrets by name."""
        ...

    async def delete(self, channel: str, name: str) -> None:
        """Delete a secret if it exists."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationEndpoint:
    """The endpoint that the gateway mounts. `start` sends a browser to the platform, and `finish` handles its return.

    Neither raises.
    """

    start: WebhookHandler
    finish: WebhookHandler


@runtime_checkable
class SupportsInstallation(Protocol):
    """An adapter whose app can be installed in workspaces."""

    def enable_installation(self, vault: CredentialVault) -> InstallationEndpoint | None:
        """Return the endpoint; None if the configuration needs none. Called once, before `run`."""
        ...
