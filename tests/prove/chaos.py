"""Breaks the service, its disk, its database, the platforms and the model, according to the plan."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import anyio

from tests.prove.clock import MovableClock
from tests.prove.databases import DatabaseNotBroken, ProvenDatabase
from tests.prove.plan import ONE_PLATFORM, Fault, FaultKind
from tests.prove.platforms import SimulatedPlatform
from tests.prove.service import ProvenService, SmallDisk, Timeline

CLOCK_SHIFTS_S = (-3600, -60, -5, -2, 2, 5, 60, 3600)


class OfflineSwitch(Protocol):
    """A model that breaks every connection while it is offline."""

    is_offline: bool


class Chaos:
    """Carries out faults.

    Args:
        nodes: The processes of the service. A process fault hits one of them.
        clock: The first node's clock.

    Attributes:
        counts: How often each kind was carried out.
        left_out: Kinds that are impossible on this machine, with the reason.
    """

    def __init__(
        self,
        nodes: Sequence[ProvenService],
        timeline: Timeline,
        database: ProvenDatabase,
        platforms: Mapping[str, SimulatedPlatform],
        model: OfflineSwitch,
        disk: SmallDisk | None,
        clock: MovableClock,
    ) -> None:
        self._nodes = nodes
        self._timeline = timeline
        self._database = database
        self._platforms = platforms
        self._model = model
        self._disk = disk
        self._clock = clock
        self._outages = 0
        self._away: Counter[str] = Counter()
        self.counts: dict[str, int] = {}
        self.left_out: dict[str, str] = {}
        if not clock.is_movable:
            self.left_out[FaultKind.CLOCK_MOVED] = "no C compiler"
        if disk is None:
            self.left_out[FaultKind.DISK_FULL] = "several nodes do not share a disk"
        elif not disk.is_mounted:
            self.left_out[FaultKind.DISK_FULL] = "no right to mount a small disk (tmpfs)"

    async def carry_out(self, fault: Fault) -> None:
        """Carry out a fault, then end it."""
        if fault.kind in self.left_out:
            return
        self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
        if fault.kind in ONE_PLATFORM:
            await self._break_platform(fault)
        else:
            await self._break_service(fault)

    async def _break_service(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.DISK_FULL:
                await self._fill_disk(fault)
            case FaultKind.DATABASE_LOCKED:
                await self._break_database(fault)
            case FaultKind.CLOCK_MOVED:
                await self._move_clock(fault)
            case FaultKind.MODEL_OFFLINE:
                await self._stop_model(fault)
            case _:
                await self._break_process(fault)

    async def _break_process(self, fault: Fault) -> None:
        node = self._nodes[int(fault.at_s * 1000) % len(self._nodes)]
        match fault.kind:
            case FaultKind.KILL_TWICE:
                await node.kill_twice(fault.pick * 2.5)
            case FaultKind.KILL_WHILE_STOPPING:
                await node.kill_while_stopping(fault.pick)
            case FaultKind.RESTART:
                await node.restart()
            case FaultKind.FREEZE:
                await node.freeze(fault.seconds)
            case _:
                await node.kill()

    async def _break_platform(self, fault: Fault) -> None:
        platform, timeline = self._platforms[fault.channel], self._timeline
        match fault.kind:
            case FaultKind.CONNECTIONS_CUT:
                timeline.add(fault.kind, fault.channel)
                await platform.cut_connections()
            case FaultKind.PLATFORM_OFFLINE:
                timeline.add(fault.kind, f"{fault.channel} for {fault.seconds:.1f} s")
                self._away[fault.channel] += 1
                if self._away[fault.channel] == 1:
                    await platform.go_offline()
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(fault.seconds)
                    self._away[fault.channel] -= 1
                    if not self._away[
                        fault.channel
                    ]:  # Otherwise another fault of this kind has not ended.
                        await platform.come_back()
                        timeline.add("platform back", fault.channel)
            case _:
                method = platform.fail_calls(fault)
                timeline.add(fault.kind, f"{fault.channel}: {method}, {fault.times} times")

    @contextmanager
    def _outage(self) -> Iterator[None]:
        """Allow the service to exit at startup while its disk is full or its database is locked."""
        self._outages += 1
        self._let_end()
        try:
            yield
        finally:
            self._outages -= 1
            self._let_end()

    def _let_end(self) -> None:
        for node in self._nodes:
            node.may_end = self._outages > 0

    async def _fill_disk(self, fault: Fault) -> None:
        assert self._disk is not None
        with self._outage():
            self._timeline.add(fault.kind, f"for {fault.seconds:.1f} s")
            self._disk.fill()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(fault.seconds)
            self._disk.make_room()
            self._timeline.add("room on the disk again")
            await anyio.sleep(2.0)  # the supervisor notices a failed start a moment later

    async def _break_database(self, fault: Fault) -> None:
        with self._outage():
            try:
                async with self._database.broken():
                    self._timeline.add(self._database.fault, f"for {fault.seconds:.1f} s")
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(fault.seconds)
            except DatabaseNotBroken as reason:
                self._timeline.add(f"not: {self._database.fault}", str(reason))
                return
            self._timeline.add("database usable again")
            await anyio.sleep(2.0)  # the supervisor notices a failed start a moment later

    async def _move_clock(self, fault: Fault) -> None:
        shift_s = CLOCK_SHIFTS_S[int(fault.pick * len(CLOCK_SHIFTS_S))]
        self._timeline.add(fault.kind, f"by {shift_s} s, for {fault.seconds:.1f} s")
        self._clock.shift(shift_s)
        with anyio.CancelScope(shield=True):
            await anyio.sleep(fault.seconds)
        self._clock.shift(0)
        self._timeline.add("clock right again")

    async def _stop_model(self, fault: Fault) -> None:
        self._timeline.add(fault.kind, f"for {fault.seconds:.1f} s")
        self._model.is_offline = True
        await anyio.sleep(fault.seconds)
        self._model.is_offline = False
        self._timeline.add("model back")
