"""Recognize a report of an earlier command, which may be overwritten."""

import os
from pathlib import Path

from lightleak.report.pdf import MARK

BEGINNING = 256 * 1024
"""Bytes of a page that are looked at: the stylesheet, some 20 kB, stands before the line that names LightLeak."""

KICKER = b'<p class="kicker">LightLeak '
"""How the body of every page begins."""


def is_report(file: Path) -> bool:
    """Whether a file is an HTML report of ours."""
    with file.open("rb") as opened:
        begin = opened.read(BEGINNING)
    return begin.lstrip().lower().startswith(b"<!doctype html>") and KICKER in begin


def is_printed_report(file: Path) -> bool:
    """Whether a file is a report that `print_pdf` printed."""
    with file.open("rb") as opened:
        if not opened.read(len(b"%PDF-")).startswith(b"%PDF-"):
            return False
        opened.seek(0, os.SEEK_END)
        opened.seek(max(0, opened.tell() - len(MARK)))
        return opened.read() == MARK
