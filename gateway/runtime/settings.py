"""Limits of the runtime."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Bounds of the runtime.

    Attributes:
        keep_s: How long an ended run can be replayed, seconds; at least 60 by contract.
        keep_bytes: Bound of all ended runs' events together; beyond it the oldest go first.
        drain_s: Bound of stopping, seconds.
        write_s: Bound of a write to disk, seconds.
        sweep_s: Pace at which expired threads and items are looked for, seconds.
    """

    keep_s: float = 90.0
    keep_bytes: int = 256 * 1024 * 1024
    drain_s: float = 5.0
    write_s: float = 30.0
    sweep_s: float = 30.0
