"""Settings of the garbage collector for a long-running process."""

import gc

GEN0_THRESHOLD = 2_500
"""New objects between two collections; an active run holds some thousands. Python's default is 700."""

START_THRESHOLD = 20_000
"""The same while the service starts: twelve collections. With 5,000, the start takes a quarter more CPU."""

GEN1_THRESHOLD = 1
"""Collections less one between two of the next generation, which looks at 7,500 objects then: 5 to 10 ms in a burst.

With 5,000 and 4 it was 30,000, which took 13 to 28 ms of CPU, and no other thread works meanwhile. Altogether, the
collections beside 10,000 messages took no longer (4 instead of 6 % of the CPU): each object that lives is looked at
once in each generation.
"""

GEN2_THRESHOLD = 400
"""The same of the oldest generation, which holds all that lives long: one takes 100 ms and more in a burst."""


def limit_gc() -> None:
    """Until `freeze_objects`, look for garbage only among new objects, and rarely.

    Imports create almost no garbage (about 2,800 objects), and collections as Python makes them take a fifth of the
    start's CPU. But pydantic makes a copy of the table of modules, 70 kB, each time that a field's default is `list`:
    2 MB less are used if these go early.
    """
    gc.set_threshold(START_THRESHOLD, 1_000, 1_000)


def freeze_objects() -> None:
    """Exclude all current objects from garbage collection. Call after the start.

    Modules, classes and schemas (130,000 objects) live as long as the process. Together with the higher
    threshold, this halves the CPU of a message up to its run's start (2.0 to 1.0 ms in the `bus` benchmark)
    and avoids pauses of 50 ms and more.
    """
    gc.freeze()
    gc.set_threshold(GEN0_THRESHOLD, GEN1_THRESHOLD, GEN2_THRESHOLD)
