"""Times and sizes as a person reads an estimate."""

import math


def seconds_words(seconds: float) -> str:
    """Seconds as a person reads an estimate: two digits.

    >>> [seconds_words(s) for s in (0.0004, 0.043, 4.31, 62, 59.7, 720, 11100, 200_000)]
    ['<1 ms', '43 ms', '4.3 s', '1.0 min', '1.0 min', '12 min', '3.1 h', '2.3 days']
    """
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.0005 else "<1 ms"
    scales = ((1, "s", 59.5), (60, "min", 3570), (3600, "h", 84600), (86400, "days", math.inf))
    size, name = next((size, name) for size, name, below in scales if seconds < below)
    return _two_digits(seconds / size, name)


def bytes_words(size: int | None) -> str:
    """Memory as a person reads it; a dash where it is not known.

    >>> bytes_words(3_500_000), bytes_words(80 * 2**30), bytes_words(None)
    ('3.3 MiB', '80 GiB', '–')
    """
    if size is None:
        return "–"
    number, name = (size / 2**30, "GiB") if size >= 2**30 else (size / 2**20, "MiB")
    return _two_digits(number, name)


def _two_digits(number: float, name: str) -> str:
    return f"{number:.1f} {name}" if number < 9.95 else f"{number:.0f} {name}"
