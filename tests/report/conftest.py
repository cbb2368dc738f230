"""A run folder as an audit leaves it, with made-up but plausible numbers."""

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lightleak.core.threat_model import ThreatModel
from lightleak.report import build_report, print_pdf

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-quic", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--virtual-time-budget=2000",
)  # fmt: skip
WIDTHS = (1280, 390)

# A window is never narrower than 500 pixels, a frame is: both widths are measured in frames of one page.
MEASURE = """<!doctype html><body style="margin:0">%s<script>
onload = () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement, width = frame.clientWidth;
    if (%s) for (const node of page.querySelectorAll("details")) node.open = true;
    const boxes = [...page.querySelectorAll("body *")].filter(node => !node.closest(".scroll, pre"));
    found[width] = {
      client: root.clientWidth,
      scroll: root.scrollWidth,
      outside: boxes.filter(node => {
        const box = node.getBoundingClientRect();
        return box.width && (box.right > width + 1 || box.left < -1);
      }).map(node => node.tagName + " " + node.textContent.trim().slice(0, 30)),
      clipped: [...page.querySelectorAll(".scroll")].filter(
        node => node.scrollHeight > node.clientHeight + 1).map(node => node.getAttribute("aria-label")),
      wide: [...page.querySelectorAll(".scroll")].filter(
        node => node.scrollWidth > node.clientWidth + 1).map(node => node.getAttribute("aria-label")),
      scripts: page.scripts.length,
      sections: page.querySelectorAll("section").length,
      bottoms: Object.fromEntries([...page.querySelectorAll("section")].map(
        node => [node.id, node.getBoundingClientRect().bottom + page.defaultView.scrollY])),
      drawn: [...page.querySelectorAll("svg.chart")].map(node => node.getBoundingClientRect().width),
    };
  }
  document.body.dataset.found = JSON.stringify(found);
};
</script>"""


CATEGORIES = {
    "workclass": ["Private", "Self-emp-not-inc", "Local-gov", "State-gov", "Federal-gov"],
    "education": ["HS-grad", "Some-college", "Bachelors", "Masters", "Assoc-voc", "11th"],
    "marital-status": ["Married-civ-spouse", "Never-married", "Divorced", "Widowed"],
    "occupation": ["Craft-repair", "Prof-specialty", "Exec-managerial", "Adm-clerical", "Sales", "Other-service"],
    "relationship": ["Husband", "Not-in-family", "Own-child", "Unmarried", "Wife"],
    "race": ["White", "Black", "Asian-Pac-Islander"],
    "sex": ["Male", "Female"],
    "native-country": ["United-States", "Mexico", "Philippines", "Germany"],
}
NUMBERS = {
    "age": (17, 90),
    "fnlwgt": (12285, 1484705),
    "education-num": (1, 16),
    "capital-gain": (0, 99999),
    "capital-loss": (0, 4356),
    "hours-per-week": (1, 99),
}
COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
]  # fmt: skip
ACCURACY = {
    "tableak": {8: 0.95, 32: 0.79, 128: 0.71},
    "tableak_no_pooling": {8: 0.93, 32: 0.72, 128: 0.60},
    "inverting_gradients": {8: 0.91, 32: 0.57, 128: 0.45},
    "audit_max": {8: 1.0, 32: 0.92, 128: 0.75},
    "random": {8: 0.53, 32: 0.53, 128: 0.53},
}
GUESSABLE = {
    "native-country": 0.35,
    "race": 0.25,
    "capital-gain": 0.3,
    "capital-loss": 0.3,
    "fnlwgt": -0.2,
    "age": -0.2,
}
STATUSES = {8: (8, 0), 32: (24, 6), 128: (0, 128)}
"""Certified and likely rows of ``audit_max`` by batch size; the others are missing."""
FEASIBILITY = {
    "ranks": [32, 32], "row_constraints": [74, 69], "unit_constraints": [68, 68], "noise": 0.0, "expected": "exact",
    "reason": "69 + 68 equations of layer 2 test every row",
}  # fmt: skip
THREAT = ThreatModel(labels="true").threat()
GUESSING = ThreatModel(
    labels="none", update=False, column_bounds=False, encoder_statistics=False, marginals=True
).threat()


class RunMaker:
    """Writes run folders; every part can be left out or changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        *,
        attacks: tuple[str, ...] = ("tableak", "inverting_gradients", "random"),
        batch_sizes: tuple[int, ...] = (8, 32),
        n_batches: int = 5,
        epochs: int = 0,
        keep_rows: bool = True,
        extra: dict[str, Any] | None = None,
        without: tuple[str, ...] = (),
    ) -> Path:
        rng = np.random.default_rng(0)
        rows = []
        for size in batch_sizes:
            for attack in attacks:
                for batch in range(n_batches):
                    accuracy = ACCURACY[attack][size] + 0.05 * np.sin(3 * batch) + 0.015 * rng.standard_normal()
                    accuracy = min(accuracy, 1.0)
                    row = self._row(rng, attack, size, batch, accuracy, "initial", None, keep_rows)
                    rows.append(row | (extra or {}))
        for epoch in range(epochs):
            for attack in attacks[:1] + attacks[-1:]:
                for batch in range(2):
                    fade = 0.0 if attack == "random" else 0.2 * epoch / epochs
                    accuracy = ACCURACY[attack][32] - fade + 0.01 * rng.standard_normal()
                    row = self._row(rng, attack, 32, batch, accuracy, "training", epoch, False)
                    rows.append(row | (extra or {}))
        self._write(rows, epochs, without)
        return self.folder

    def _row(self, rng, attack, size, batch, accuracy, source, epoch, keep_rows) -> dict[str, Any]:
        unit = f"{attack}-{size}-{batch}" if source == "initial" else f"{attack}-{size}-{batch}-epoch{epoch}"
        columns = {}
        for name in COLUMNS:
            lift = GUESSABLE.get(name, 0.0) * (1.0 if attack == "random" else 0.3)
            columns[name] = float(np.clip(accuracy + lift + 0.03 * rng.standard_normal(), 0.02, 1))
        if keep_rows:
            self._cells(rng, unit, size, columns)
        quartiles = attack != "random"
        threat = THREAT if attack != "random" else GUESSING
        return self._certificate(attack, size) | {
            "dataset": "adult", "target": "mlp-100-100", "protocol": "fedsgd", "attack": attack, "batch_size": size,
            "labels": "true", "defense": "none", "seed": 0, "batch_index": batch, "source": source, "epoch": epoch,
            "cell_accuracy": accuracy, "categorical_accuracy": min(accuracy + 0.04, 1.0),
            "numerical_accuracy": accuracy - 0.06,
            "exact_match_rate": 0.0 if attack == "random" else max(0.0, accuracy - 0.7) / 2, "rmse": 1.3 - accuracy,
            "top25_categorical": 0.99 if quartiles else None, "bottom25_categorical": 0.61 if quartiles else None,
            "top25_numerical": 0.86 if quartiles else None, "bottom25_numerical": 0.5 if quartiles else float("nan"),
            "label_count_error": 0.0, "column_accuracy": columns,
            "seconds": 0.002 if attack == "random" else 0.3 * size,
            "threat_model": threat.describe(), "threat": threat.to_dict(),
            "options": {"restarts": 30, "steps": 1500}, "reconstruction": f"reconstructions/{unit}.csv",
        }  # fmt: skip

    def _certificate(self, attack: str, size: int) -> dict[str, Any]:
        if attack != "audit_max":
            return dict.fromkeys(
                ("certified_rows", "certified_share", "certified_digits_share", "expected", "row_status")
            )
        status = self.statuses(size)
        certified = status.count("certified")
        right = 1.0 if certified else None
        return {
            "certified_rows": certified, "certified_share": certified / size,
            "certified_digits_share": certified / size,
            "certificate_residual": 1.3e-7 if certified == size else 0.21, "expected": "exact", "row_status": status,
            "feasibility": FEASIBILITY, "certified_accuracy": right, "certified_exact": right,
        }  # fmt: skip

    @staticmethod
    def statuses(size: int) -> list[str]:
        """Of the rows of ``audit_max``, in their order."""
        certified, likely = STATUSES[size]
        return ["certified"] * certified + ["likely"] * likely + ["missing"] * (size - certified - likely)

    def _cells(self, rng, unit: str, size: int, columns: dict[str, float]) -> None:
        folder = self.folder / "reconstructions"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{unit}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            status = self.statuses(size) if unit.startswith("audit_max") else [""] * size
            writer.writerow(["row", "column", "true", "reconstructed", "correct", "entropy", "status"])
            for row in range(size):
                for name in COLUMNS:
                    right = rng.random() < columns[name] or status[row] == "certified"
                    sure = np.clip(rng.beta(2, 6) if right else rng.beta(5, 3), 0, 1)
                    if name in CATEGORIES:
                        options = CATEGORIES[name]
                        true = options[int(len(options) * rng.random() ** 2)]
                        found = true if right else options[(options.index(true) + 1) % len(options)]
                        entropy = sure
                    else:
                        low, high = NUMBERS[name]
                        true = int(low + (high - low) * rng.random() ** 2)
                        found = true + int((0.01 if right else 0.3) * (high - low))
                        entropy = 1.42 + np.log(sure + 1e-3)
                    writer.writerow([row, name, true, found, int(right), f"{entropy:.4f}", status[row]])

    def _write(self, rows: list[dict[str, Any]], epochs: int, without: tuple[str, ...]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        results = {"schema_version": 1, "rows": rows, "summary": []}
        (self.folder / "results.json").write_text(json.dumps(results))
        config = {
            "title": "Leakage of the census table",
            "seed": 0,
            "data": {"name": "adult"},
            "target": {"network": "mlp", "hidden": [100, 100]},
            "attacks": [{"name": "tableak", "restarts": 30, "steps": 1500}, {"name": "random"}],
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        environment = {
            "date": "2025-03-01T10:00:00",
            "command": ["lightleak", "audit", "adult.yaml"],
            "device": "cpu",
            "cores": 2,
            "versions": {"python": "3.11.2", "torch": "2.13.0", "lightning": "2.6.6", "lightleak": "0.1.0"},
            "determinism": "bit-equal at equal threads and device type",
        }
        (self.folder / "environment.json").write_text(json.dumps(environment))
        if epochs:
            with (self.folder / "metrics.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                names = ("train/loss", "val/loss", "val/accuracy", "reconstruction/tableak/cell_accuracy")
                columns = ["epoch", "step", *names]
                writer.writerow(columns)
                for epoch in range(epochs):
                    writer.writerow([epoch, 100 * epoch + 50, 0.5, "", "", 0.8 - 0.02 * epoch])
                    writer.writerow([epoch, 100 * epoch + 99, "", 0.4, 0.85 - 0.1 / (epoch + 1), ""])
        for name in without:
            (self.folder / name).unlink()


@pytest.fixture
def make_run(tmp_path: Path) -> RunMaker:
    """A maker for a run folder named ``run``."""
    return RunMaker(tmp_path / "run")


@pytest.fixture
def make_named_run(tmp_path: Path) -> Callable[[str], RunMaker]:
    """A maker for a run folder of any name."""
    return lambda name: RunMaker(tmp_path / name)


class Browser:
    """A headless Chromium with a profile of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, page: Path, *flags: str) -> str:
        """What Chromium prints for a page."""
        assert CHROMIUM is not None
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={self.folder / 'profile'}", *flags, page.as_uri()]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    def measure(self, report: Path, unfold: bool = False, widths: tuple[int, ...] = WIDTHS) -> dict[str, Any]:
        """What it makes of a report at each width; ``unfold``: with everything unfolded that can be."""
        text = report.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
        frames = "".join(
            f'<iframe srcdoc="{text}" style="border:0;width:{width}px;height:900px"></iframe>' for width in widths
        )
        page = self.folder / "frames.html"
        page.write_text(MEASURE % (frames, str(unfold).lower()), encoding="utf-8")
        match = re.search(r'data-found="([^"]*)"', self.run(page, "--dump-dom"))
        assert match, "the browser did not finish"
        return json.loads(unescape(match[1]))

    def sheets(self, report: Path) -> int:
        """Sheets of A4 that the first page takes when it is printed, one short section after it left out."""
        text = report.read_text(encoding="utf-8")
        rest = "<style>main > section:not(#summary), footer { display: none }</style>"
        page = self.folder / "first.html"
        shown = f"{rest}<section style='display: block !important'>rest</section></main>"
        page.write_text(text.replace("</main>", shown), encoding="utf-8")
        printed = print_pdf(page, self.folder / "first.pdf").read_bytes()
        return len(re.findall(rb"/Type\s*/Page\b", printed)) - 1


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian package: chromium)")
    return Browser(tmp_path)


VOID = {"meta", "br", "link", "img", "input", "hr"}


class Outline(HTMLParser):
    """Tags, sections, visible text and table rows of a page; fails on tags that do not close and text escaped twice."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.source = page
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())
        assert not re.search("&(#\\d+|amp|lt|gt|quot);", self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)
        if self.rows and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] = " ".join((self.rows[-1][-1] + " " + data).split())


@pytest.fixture(scope="session")
def outline() -> type[Outline]:
    """Reads a page."""
    return Outline


@pytest.fixture(scope="session")
def page_of() -> Callable[..., Outline]:
    """Builds the report of a folder and reads it."""
    return lambda folder, redact=False: Outline(build_report(folder, redact=redact).read_text(encoding="utf-8"))
