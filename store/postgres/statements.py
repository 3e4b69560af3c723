"""Translates the store's statements to PostgreSQL.

The statements are written for SQLite, in the subset that both speak. The rest is little:

- `:name` parameters are numbered: `$1`.
- `INDEXED BY name` is left out: PostgreSQL's planner knows how many rows there are.
- The comment `/* FOR UPDATE */` locks rows: SQLite has one writer and needs no locks.
- SQLite's JSON functions get a prefix: migrations/0001_postgres.sql has them, for text.
"""

import re
from functools import lru_cache

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_INDEXED_BY = re.compile(r"\s+INDEXED BY \w+")
_JSON = re.compile(r"\b(json(?:_\w+)?\()")
_FOR_UPDATE = re.compile(r"/\* FOR UPDATE((?: OF \w+)?(?: SKIP LOCKED)?) \*/")


@lru_cache(maxsize=1024)
def translate(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement for PostgreSQL, and the names of its parameters in their order.

    >>> translate("SELECT * FROM a INDEXED BY i WHERE b = :b AND c > :c AND d > :b /* FOR UPDATE */")
    ('SELECT * FROM a WHERE b = $1 AND c > $2 AND d > $1 FOR NO KEY UPDATE', ('b', 'c'))
    """
    sql = _JSON.sub(r"parley_\1", _INDEXED_BY.sub("", sql))
    sql = _FOR_UPDATE.sub(r"FOR NO KEY UPDATE\1", sql)
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    numbers = {name: f"${number}" for number, name in enumerate(names, start=1)}
    return _PARAMETER.sub(lambda match: numbers[match[1]], sql), names
