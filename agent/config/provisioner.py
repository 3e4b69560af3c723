"""The `sandbox.provisioner` section."""

from pydantic import Field

from agent.config.section import Section


class ProvisionerConfig(Section):
    """A service that starts a sandbox for each thread, such as DeerFlow's provisioner for Kubernetes.

    Attributes:
        url: Its address; "" = none.
        api_key: Sent as `X-API-Key`; "" = not sent.
        idle_timeout_seconds: Idle time after which a sandbox is deleted, seconds; 0 = never.
        start_timeout_seconds: Time limit until a sandbox is ready, seconds.
    """

    url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    api_key: str = ""
    idle_timeout_seconds: float = Field(default=600.0, ge=0, allow_inf_nan=False)
    start_timeout_seconds: float = Field(default=60.0, gt=0, le=3600, allow_inf_nan=False)
