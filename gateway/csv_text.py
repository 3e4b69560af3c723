"""CSV text that people open in spreadsheets. Pure."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""https://owasp.org/www-community/attacks/CSV_Injection"""


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    r"""Return rows as CSV with a header. Other keys of a row are left out; None is an empty cell.

    Names and addresses come from strangers. Texts that a spreadsheet would run as a formula get an apostrophe in front.

    >>> csv_text(["name", "cost"], [{"name": "=1+1", "cost": -2.5, "other": 1}])
    "name,cost\r\n'=1+1,-2.5\r\n"
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    is_formula = isinstance(value, str) and value.startswith(_FORMULA_STARTS)
    return f"'{value}" if is_formula else value
