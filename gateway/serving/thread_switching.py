"""How soon another thread gets its turn while the event loop is busy."""

import sys

SWITCH_INTERVAL_S = 0.0005
"""The longest that a thread keeps Python's interpreter lock while others wait for it. Python's default is 5 ms."""


def shorten_switch_interval() -> None:
    """Let the database's thread work while the event loop is busy. Call once, at the start.

    SQLite gives the lock up at each of the ten or so calls of a transaction, and has to get it back each time. With
    the default, the slowest of 60 transactions took 115 to 205 ms while the loop was busy; now it takes 25 to 50 ms.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
