"""Numbers as a reader sees them: scores, shares, sizes, times, chances; and lists in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 3, signed: bool = False) -> str:
    """.512, and with a sign +.012 or −.012."""
    text = f"{abs(value):.{digits}f}"
    text = text[1:] if text.startswith("0.") else text
    zero = float(f"{value:.{digits}f}") == 0
    if value < 0 and not zero:
        return MINUS + text
    return f"+{text}" if signed and not zero else text


def share(value: float) -> str:
    """A change as a percentage: −66 %; where that would be thousands, how many times: × 2,443."""
    if value >= 9:
        return f"× {value + 1:,.0f}"
    return (
        f"{'+' if value > 0 else MINUS if round(value * 100) < 0 else ''}{abs(value) * 100:.0f} %"
    )


def less(change: float) -> str:
    """67 % less, or 5 % more."""
    return f"{abs(change) * 100:.0f} % {'less' if change < 0 else 'more'}"


def size(value: float) -> str:
    for unit, many in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= many:
            return (
                f"{value / many:.3g} {unit}"
                if value < 1000 * many
                else f"{value / many:,.0f} {unit}"
            )
    return f"{value:.0f} B"


def seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 90:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 5400 else f"{value / 3600:.3g} h"


def duration(value: float) -> str:
    """Seconds as people say them: 45 s, 12 min, 2 h 5 min."""
    if value < 90:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def chance(p: float | None, seeds: int) -> str:
    """A p-value for a table, from so many seeds on the side that has fewer.

    Two seeds come close to each other by luck: of like pairs up to one in 200 would show p < .001.
    """
    if p is None:
        return ""
    digits = 2 if seeds < 3 else 3
    if p < 10**-digits:
        return f"< {number(10**-digits, digits)}"
    return number(p) if p < 0.9995 else "1"


def and_then(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
