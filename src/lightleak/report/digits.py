"""Few digits for the numbers of a table: they pass through an encoder and back, which leaves 22.9999999 for 23."""

import math
import re
from collections.abc import Iterable

import pandas as pd

SHOWN_DIGITS = 4
_NUMBER = re.compile(r"[+-]?\d+(?:\.(?P<decimals>\d+))?(?P<power>e[+-]\d+)?")


def column_decimals(cells: pd.DataFrame) -> dict[str, int]:
    """Decimals to show by column of ``column, true, reconstructed`` cells in long form.

    The true numbers decide, since an attack without bounds may reconstruct any magnitude; without truth the
    reconstructed ones do.
    """
    found = {}
    for name, of_column in cells.groupby("column"):
        sides = [shown_decimals(of_column[side]) for side in ("true", "reconstructed")]
        found[str(name)] = next((decimals for decimals in sides if decimals is not None), 0)
    return found


def shown_decimals(texts: Iterable[str]) -> int | None:
    """Decimals that show about four digits of the largest number among the cells of a column; None without numbers.

    >>> shown_decimals(["22.999999878", "9.5", "high"]), shown_decimals(["1484705"]), shown_decimals(["high"])
    (2, 0, None)
    """
    numbers = [abs(float(text)) for text in texts if _NUMBER.fullmatch(text)]
    largest = max((number for number in numbers if math.isfinite(number)), default=0.0)
    return max(0, SHOWN_DIGITS - 1 - math.floor(math.log10(largest))) if largest > 0 else None


def shorten(text: str, decimals: int) -> str:
    """A number with more decimals than shown, rounded; any other text as it is.

    Numbers pass through an encoder and back, which leaves 22.9999999 for 23.

    >>> shorten("22.999999878", 2), shorten("2.3e-08", 2), shorten("9.5", 2), shorten("high", 2), shorten("007", 2)
    ('23', '0', '9.5', 'high', '007')
    """
    found = _NUMBER.fullmatch(text)
    if not found or not math.isfinite(float(text)) or (len(found["decimals"] or "") <= decimals and not found["power"]):
        return text
    short = f"{float(text):.{decimals}f}"
    short = short.rstrip("0").rstrip(".") if decimals else short
    return "0" if float(short) == 0 else short
