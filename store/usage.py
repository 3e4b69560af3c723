"""Usage of model calls: rows, the counters of limits, and reservations of calls that have not ended."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import orjson

from store.database import Database, Params, Transaction
from store.errors import StoreError
from store.rows import to_params

UsageScope = Literal["person", "room", "agent", "service"]

WARNED_PERCENT = 80
"""The share of a limit at which its user is warned, percent."""

NO_LIMIT = -1

GROUPS = ("day", "kind", "model", "agent", "channel", "person", "room", "topic")
"""The columns by which totals can be filtered and grouped. `channel` is the beginning of the room or person."""

_PLACE = "coalesce(nullif(room, ''), person)"
_CHANNEL_SQLITE = f"substr({_PLACE}, 1, instr({_PLACE}, ':') - 1)"
_CHANNEL_POSTGRES = f"split_part({_PLACE}, ':', 1)"

_SUMS = (
    *("calls", "estimated_calls", "unpriced_calls"),
    *("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost_nano_usd"),
)
_KEY = ("day", "run_id", "kind", "model", "agent")
_COLUMNS = (*_KEY, "person", "room", "topic", *_SUMS, "started_at")
_ADD = f"""
INSERT INTO model_usage ({", ".join(_COLUMNS)}) VALUES ({", ".join(f":{one}" for one in _COLUMNS)})
ON CONFLICT (day, run_id, kind, model, agent) DO UPDATE SET
    {", ".join(f"{one} = model_usage.{one} + excluded.{one}" for one in _SUMS)}
"""  # noqa: S608 - literals only
_TOTALS = ", ".join(f"CAST(coalesce(sum({one}), 0) AS BIGINT) AS {one}" for one in _SUMS)

# A new counter starts with the usage in its period before the limit was configured.
_START = """
INSERT INTO usage_counter (scope, name, period, tokens, cost_nano_usd)
SELECT CAST(:scope AS TEXT), CAST(:name AS TEXT), CAST(:period AS TEXT),
    CAST(coalesce(sum(input_tokens + output_tokens), 0) AS BIGINT), CAST(coalesce(sum(cost_nano_usd), 0) AS BIGINT)
FROM model_usage WHERE day >= :period AND day <= CAST(:period AS TEXT) || '-99' AND CASE CAST(:scope AS TEXT)
    WHEN 'person' THEN person = :name WHEN 'room' THEN room = :name WHEN 'agent' THEN agent = :name
    ELSE :name = '' END
ON CONFLICT (scope, name, period) DO NOTHING
"""
_USED = """
SELECT tokens + reserved_tokens AS tokens, cost_nano_usd + reserved_nano_usd AS cost_nano_usd FROM usage_counter
WHERE scope = :scope AND name = :name AND period = :period
"""
_EXISTS = "SELECT 1 FROM usage_counter WHERE scope = :scope AND name = :name AND period = :period"
_RESERVE = """
UPDATE usage_counter SET reserved_tokens = reserved_tokens + :tokens, reserved_nano_usd = reserved_nano_usd + :nano_usd
WHERE scope = :scope AND name = :name AND period = :period
    AND (CAST(:max_tokens AS BIGINT) < 0 OR tokens + reserved_tokens + :tokens <= :max_tokens)
    AND (CAST(:max_nano_usd AS BIGINT) < 0 OR cost_nano_usd + reserved_nano_usd + :nano_usd <= :max_nano_usd)
RETURNING *
"""
_WARN = """
UPDATE usage_counter SET is_warned = 1 WHERE scope = :scope AND name = :name AND period = :period
"""
_INSERT_RESERVATION = "INSERT INTO usage_reservation (id, node, body) VALUES (:id, :node, :body)"
_TAKE = "DELETE FROM usage_reservation WHERE id = :id RETURNING body"
_SETTLE = """
UPDATE usage_counter SET reserved_tokens = reserved_tokens - :reserved_tokens,
    reserved_nano_usd = reserved_nano_usd - :reserved_nano_usd, tokens = tokens + :tokens,
    cost_nano_usd = cost_nano_usd + :nano_usd
WHERE scope = :scope AND name = :name AND period = :period
"""
# A SQLite file has no node rows: the process that opens it has made no reservations yet.
_TAKE_ABANDONED = """
DELETE FROM usage_reservation WHERE node NOT IN (SELECT number FROM node WHERE ended_at IS NULL) RETURNING body
"""
_OF_RUNS = f"""
SELECT run_id, kind, model, agent, {_TOTALS} FROM model_usage
WHERE day >= :since AND day <= :until AND run_id IN (SELECT value FROM json_each(:run_ids))
GROUP BY run_id, kind, model, agent ORDER BY run_id, kind, model, agent
"""  # noqa: S608 - literals only
_FORGET_PERSON = "UPDATE model_usage SET person = '' WHERE person = :name"
_FORGET_ROOM = "UPDATE model_usage SET person = '', room = '', topic = '' WHERE room = :name"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """A row of model_usage; see the comments of the table. Costs are billionths of a US dollar."""

    day: str
    run_id: str
    kind: str
    model: str
    agent: str
    person: str = ""
    room: str = ""
    topic: str = ""
    calls: int = 0
    estimated_calls: int = 0
    unpriced_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_nano_usd: int = 0
    started_at: float = 0.0

    @property
    def tokens(self) -> int:
        """The tokens that count against limits."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class UsageCounter:
    """The key of a counter: whose usage it counts, in which UTC day or month."""

    scope: UsageScope
    name: str
    period: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLimit:
    """A limit of a counter; `NO_LIMIT` = none."""

    counter: UsageCounter
    max_tokens: int = NO_LIMIT
    max_nano_usd: int = NO_LIMIT


class UsageLimitReached(StoreError):
    """A call would exceed a limit.

    Attributes:
        limit: The limit.
    """

    def __init__(self, limit: UsageLimit) -> None:
        super().__init__("A usage limit is reached.")
        self.limit = limit


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedUsage:
    """The usage of a call that ended.

    Attributes:
        row: Its usage.
        reservation_id: Its reservation; "" = it had none.
    """

    row: UsageRow
    reservation_id: str = ""


class UsageStore:
    """The tables model_usage, usage_counter and usage_reservation."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(
        self, reservation_id: str, row: UsageRow, limits: Sequence[UsageLimit]
    ) -> Sequence[UsageLimit]:
        """Reserve the most that a call may use, in all of its counters or in none.

        Args:
            reservation_id: A new ID.
            row: The most that the call may use. It is written if the call never settles the reservation.
            limits: The limits that apply to the call.

        Returns:
            The limits whose usage has reached `WARNED_PERCENT` for the first time in their period.

        Raises:
            UsageLimitReached: A limit leaves no room for the call. Nothing is reserved.
            StoreUnavailable: The database cannot be used.
        """
        # All transactions use the same order, so they cannot deadlock.
        ordered = sorted(limits, key=lambda limit: limit.counter)
        body = orjson.dumps(
            {"row": asdict(row), "counters": [asdict(one.counter) for one in ordered]}
        )

        def work(tx: Transaction) -> list[UsageLimit]:
            warned = [limit for limit in ordered if _reserve(tx, limit, row)]
            params: Params = {
                "id": reservation_id,
                "node": self._database.nodes.number,
                "body": body.decode(),
            }
            tx.run(_INSERT_RESERVATION, params)
            return warned

        return await self._database.transaction(work)

    async def add(self, finished: Iterable[FinishedUsage]) -> None:
        """Write the usage of calls that ended, and settle their reservations, in one transaction.

        The usage of a reservation that was settled meanwhile is not counted again.

        Raises:
            StoreUnavailable: The database cannot be used.
        """
        ended = list(finished)

        def work(tx: Transaction) -> None:
            rows, settled = [], []
            for one in ended:
                if one.reservation_id:
                    taken = tx.run(_TAKE, {"id": one.reservation_id})
                    if not taken:
                        continue
                    settled.append((taken[0]["body"], one.row))
                rows.append(one.row)
            _write(tx, rows, settled)

        await self._database.transaction(work)

    async def settle_abandoned(self) -> int:
        """Settle the reservations of processes that ended: each call counts as having used all it reserved.

        Call it at the start, before the first reservation, and when another node has ended. Returns their number.

        Raises:
            StoreUnavailable: The database cannot be used.
        """

        def work(tx: Transaction) -> int:
            bodies = [row["body"] for row in tx.run(_TAKE_ABANDONED)]
            rows = [UsageRow(**orjson.loads(body)["row"]) for body in bodies]
            _write(tx, rows, list(zip(bodies, rows, strict=True)))
            return len(bodies)

        return await self._database.transaction(work)

    async def totals(
        self,
        *,
        since: str = "",
        until: str = "",
        filters: Mapping[str, str | Sequence[str]] | None = None,
        by: Sequence[str] = (),
    ) -> list[Mapping[str, Any]]:
        """Return sums of rows, one for each combination of the columns `by`, which are among `GROUPS`.

        Args:
            since: The first day, as 2026-11-28; "" = all.
            until: The last day; "" = all.
            filters: The values that columns of `GROUPS` may have.
            by: The columns to group by.

        Raises:
            ValueError: A column is not in `GROUPS`.
            StoreUnavailable: The database cannot be used.
        """
        filters = filters or {}
        if not {*filters, *by} <= set(GROUPS):
            raise ValueError(f"columns: {', '.join(GROUPS)}")
        is_postgres = self._database.engine.has_checkpoints
        columns = {name: name for name in GROUPS}
        columns["channel"] = _CHANNEL_POSTGRES if is_postgres else _CHANNEL_SQLITE
        wanted = [
            f"{columns[name]} = :{name}"
            if isinstance(value, str)
            else f"{columns[name]} IN (SELECT value FROM json_each(:{name}))"  # noqa: S608 - columns were checked
            for name, value in filters.items()
        ]
        wanted += ["day >= :since"] if since else []
        wanted += ["day <= :until"] if until else []
        where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
        shown = ", ".join([*(f"{columns[name]} AS {name}" for name in by), _TOTALS])
        numbers = ", ".join(str(at + 1) for at in range(len(by)))
        grouped = f"GROUP BY {numbers} ORDER BY {numbers}" if by else ""
        sql = f"SELECT {shown} FROM model_usage {where} {grouped}"  # noqa: S608 - columns were checked
        params: Params = {
            **{
                name: value if isinstance(value, str) else orjson.dumps(list(value)).decode()
                for name, value in filters.items()
            },
            "since": since,
            "until": until,
        }
        return list(await self._database.read(sql, params))

    async def list_of_runs(
        self, run_ids: Sequence[str], *, since: str, until: str
    ) -> list[Mapping[str, Any]]:
        """Return the sums of runs, one for each run, kind, model and agent. `since`, `until`: the days to search."""
        ids = orjson.dumps(list(run_ids)).decode()
        params: Params = {"run_ids": ids, "since": since, "until": until}
        return list(await self._database.read(_OF_RUNS, params))

    async def used(self, counter: UsageCounter) -> tuple[int, int]:
        """Return the tokens and the cost (billionths of a US dollar) that count against a limit, reserved or used.

        Raises StoreUnavailable.
        """
        if rows := await self._database.read(_USED, asdict(counter)):
            return rows[0]["tokens"], rows[0]["cost_nano_usd"]
        # The counter is created by the first call under its limit.
        (total,) = await self.totals(
            since=counter.period,
            until=f"{counter.period}-99",
            filters={counter.scope: counter.name} if counter.name else {},
        )
        return total["input_tokens"] + total["output_tokens"], total["cost_nano_usd"]

    async def forget_person(self, name: str) -> None:
        """Remove a person from their usage but keep the sums. Raises StoreUnavailable."""
        await self._database.execute(_FORGET_PERSON, {"name": name})

    async def forget_room(self, name: str) -> None:
        """Remove a room and its people from the room's usage but keep the sums. Raises StoreUnavailable."""
        await self._database.execute(_FORGET_ROOM, {"name": name})


def add_rows(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Return one row for each key, the sum of the rows with that key."""
    added: dict[tuple[str, ...], UsageRow] = {}
    for row in rows:
        key = (row.day, row.run_id, row.kind, row.model, row.agent)
        known = added.get(key)
        if known is None:
            added[key] = row
        else:
            sums = {name: getattr(known, name) + getattr(row, name) for name in _SUMS}
            added[key] = replace(known, **sums)
    return [added[key] for key in sorted(added)]


def _reserve(tx: Transaction, limit: UsageLimit, row: UsageRow) -> bool:
    """Reserve in one counter. Return whether to warn its user."""
    params: Params = {
        **to_params(limit.counter),
        "max_tokens": limit.max_tokens,
        "max_nano_usd": limit.max_nano_usd,
        "tokens": row.tokens,
        "nano_usd": row.cost_nano_usd,
    }
    if not tx.run(_EXISTS, params):
        tx.run(_START, params)
    reserved = tx.run(_RESERVE, params)
    if not reserved:
        raise UsageLimitReached(limit)
    counter = reserved[0]
    used = (
        (counter["tokens"] + counter["reserved_tokens"], limit.max_tokens),
        (counter["cost_nano_usd"] + counter["reserved_nano_usd"], limit.max_nano_usd),
    )
    if counter["is_warned"] or not any(
        most >= 0 and 100 * count >= WARNED_PERCENT * most for count, most in used
    ):
        return False
    tx.run(_WARN, params)
    return True


def _write(
    tx: Transaction, rows: Iterable[UsageRow], settled: Sequence[tuple[str, UsageRow]]
) -> None:
    """Write rows, and replace what was reserved in the counters with what was used."""
    changes: dict[UsageCounter, dict[str, int]] = {}
    for body, used in settled:
        held = orjson.loads(body)
        reserved = UsageRow(**held["row"])
        for name in held["counters"]:
            change = changes.setdefault(
                UsageCounter(**name),
                dict.fromkeys(("reserved_tokens", "reserved_nano_usd", "tokens", "nano_usd"), 0),
            )
            change["reserved_tokens"] += reserved.tokens
            change["reserved_nano_usd"] += reserved.cost_nano_usd
            change["tokens"] += used.tokens
            change["nano_usd"] += used.cost_nano_usd
    tx.run_all([(_SETTLE, {**to_params(one), **changes[one]}) for one in sorted(changes)])
    tx.run_all([(_ADD, to_params(row)) for row in add_rows(rows)])
