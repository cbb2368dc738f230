"""Print a report as PDF with an installed browser."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from lightleak.core.errors import UsageError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
"""Commands of browsers that print without a window, in the order in which they are tried."""

INSTALLED = (
    Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
    Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
    Path("/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge"),
    Path("C:/Program Files/Google/Chrome/Application/chrome.exe"),
    Path("C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe"),
)
"""Where macOS and Windows keep them, which are on no search path there."""

LONGEST_SECONDS = 180
"""A browser that has not printed by then hangs; a report takes it a second or two."""

FLAGS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--no-pdf-header-footer",
)
"""Print and nothing else: no profile, no network, no address of the file in the margin."""

OWNER_ONLY = 0o600

MARK = b"\n%LightLeak report\n"
"""A comment behind the end of a PDF: it marks files that a later command may overwrite."""


def find_browser() -> str:
    """Command of a browser that prints.

    Raises:
        UsageError: there is none; it names what to install.
    """
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    found = found or next((str(path) for path in INSTALLED if path.is_file()), None)
    if found is None:
        raise UsageError(
            "--pdf needs Chromium, Google Chrome or Microsoft Edge, and none was found (looked for "
            f"{', '.join(BROWSERS)}). Install one (Debian and Ubuntu: apt install chromium; Fedora: dnf install "
            "chromium; macOS: brew install --cask chromium), or open the HTML report in any browser and print it to a "
            "file"
        )
    return found


def print_pdf(page: Path, target: Path) -> Path:
    """Print a report to A4 with page numbers and with everything unfolded; only its owner may read the file.

    Args:
        page: the HTML report.
        target: the PDF to write.

    Raises:
        UsageError: no browser is there, or it did not print.
    """
    browser = find_browser()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pdf-") as name:  # created with mode 0700
        folder = Path(name)
        unfolded, printed = folder / "page.html", folder / "page.pdf"
        unfolded.write_text(unfold(page.read_text(encoding="utf-8")), encoding="utf-8")
        _print(browser, unfolded, printed, folder / "profile")
        with printed.open("ab") as file:
            file.write(MARK)
        os.chmod(printed, OWNER_ONLY)
        os.replace(printed, target)
    return target


def unfold(html: str) -> str:
    """Open everything that is folded: paper has nothing to click.

    >>> unfold("<details><summary>a</summary></details><details open></details>")
    '<details open><summary>a</summary></details><details open></details>'
    """
    return re.sub(r"<details(?![^>]*\bopen\b)", "<details open", html)


def _print(browser: str, page: Path, printed: Path, profile: Path) -> None:
    command = [browser, *FLAGS, f"--user-data-dir={profile}", f"--print-to-pdf={printed}", page.resolve().as_uri()]
    # Root and most containers have no sandbox of the browser's; a report has no script and may load nothing.
    for further in ([], ["--no-sandbox"]):
        full = [command[0], *further, *command[1:]]
        try:
            done = subprocess.run(full, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"{browser} did not print {page.name} within {LONGEST_SECONDS} seconds") from error
        if printed.is_file():
            return
    raise UsageError(f"{browser} did not print the report (exit code {done.returncode}): {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
