"""How long commands that compute nothing take to start, next to ``import pandas``: ``python benchmarks/startup.py``.

Prints the median and the range of several runs of each, as a table in Markdown.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

REFERENCE = ("-c", "import pandas")
COMMANDS = ("--help", "list attacks", "list reproductions", "explain exact", "data list")
LIMIT = 2.0
"""A command should take at most this many times as long as the reference."""


def seconds(arguments: Sequence[str], runs: int) -> list[float]:
    """Wall-clock seconds of a Python process, for each of several runs, after one that fills the file cache."""
    found = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        found.append(time.perf_counter() - start)
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    reference = seconds(REFERENCE, runs)
    print("| command | seconds (median) | range | times `import pandas` |\n| --- | --- | --- | --- |")
    rows = {"python -c 'import pandas'": reference}
    rows |= {f"lightleak {words}": seconds(("-m", "lightleak", *words.split()), runs) for words in COMMANDS}
    for name, values in rows.items():
        middle = statistics.median(values)
        ratio = middle / statistics.median(reference)
        over = " (too slow)" if ratio > LIMIT else ""
        print(f"| {name} | {middle:.2f} | {min(values):.2f} to {max(values):.2f} | {ratio:.2f}{over} |")


if __name__ == "__main__":
    main()
