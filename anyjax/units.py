"""Sizes, counts and times in words, for reports and the command line."""

from __future__ import annotations

UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def size(n: float) -> str:
    """Returns bytes in words; the units are decimal.

    Example:
      >>> size(13_476_831_232), size(512)
      ('13.48 GB', '512 B')
    """
    return f"{count(n) if n >= 1e3 else f'{n:.0f} '}B"


def count(n: float) -> str:
    """Returns a number in words.

    Example:
      >>> count(1.5e12), count(12)
      ('1.50 T', '12')
    """
    unit, name = next(((u, k) for u, k in UNITS if n >= u), (1, ""))
    return f"{n / unit:.2f} {name}" if name else f"{n:.0f}"


def duration(seconds: float) -> str:
    """Returns seconds in a suitable unit.

    Example:
      >>> duration(2.5), duration(0.5), duration(0.00234), duration(0.00001)
      ('2.50 s', '500 ms', '2.34 ms', '10.0 us')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{1e3 * seconds:.2f} ms" if seconds < 0.1 else f"{1e3 * seconds:.0f} ms"
    return f"{1e6 * seconds:.1f} us"
