"""Limits of the runtime."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Limits of the runtime.

    Attributes:
        keep_s: How long a finished run can be replayed, seconds. The contract requires at least 60.
        keep_bytes: Size limit of all finished runs' events. Beyond it, the oldest are dropped.
        active_bytes: Size limit of all active runs' events. Each run has an equal share.
        drain_s: Time limit for shutdown, seconds.
        write_s: Time limit for a write to disk, seconds.
        sweep_s: Interval at which finished runs are evicted, seconds.
    """

    keep_s: float = 60.0
    keep_bytes: int = 128 * 1024 * 1024
    active_bytes: int = 128 * 1024 * 1024
    drain_s: float = 5.0
    write_s: float = 30.0
    sweep_s: float = 30.0
