"""Translates the store's statements to PostgreSQL.

The statements are written for SQLite, in the subset that both speak. The rest is little:

- `:name` parameters are `%(name)s` for psycopg.
- `INDEXED BY name` is left out: PostgreSQL's planner knows how many rows there are.
- The comment `/* FOR UPDATE */` locks rows: SQLite has one writer and needs no locks.
- SQLite's JSON functions get a prefix: migrations/postgres/0013_schema.sql has them, for text.
"""

import re
from functools import lru_cache

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_INDEXED_BY = re.compile(r"\s+INDEXED BY \w+")
_JSON = re.compile(r"\b(json(?:_\w+)?\()")
_FOR_UPDATE = re.compile(r"/\* FOR UPDATE((?: OF \w+)?(?: SKIP LOCKED)?) \*/")


@lru_cache(maxsize=1024)
def translate(sql: str) -> str:
    """Return a statement as psycopg takes it.

    >>> translate("SELECT * FROM a INDEXED BY i WHERE b = :b AND c LIKE 'x%' /* FOR UPDATE */")
    "SELECT * FROM a WHERE b = %(b)s AND c LIKE 'x%%' FOR NO KEY UPDATE"
    """
    sql = _INDEXED_BY.sub("", sql).replace("%", "%%")
    sql = _JSON.sub(r"parley_\1", _FOR_UPDATE.sub(r"FOR NO KEY UPDATE\1", sql))
    return _PARAMETER.sub(r"%(\1)s", sql)
