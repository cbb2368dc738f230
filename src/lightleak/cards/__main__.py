"""``python -m lightleak.cards`` writes the generated files of a checkout: catalogue, config page, schema, attacks."""

import json
import runpy
from pathlib import Path

from lightleak.cards.catalogue import CATALOGUE
from lightleak.cards.registries import read_registries
from lightleak.core.results import results_schema
from lightleak.report.attacks import FILE_NAME as ATTACKS
from lightleak.report.attacks import registered

if __name__ == "__main__":
    here = Path(__file__)
    docs = here.parents[3] / "docs"
    here.with_name(CATALOGUE).write_text(read_registries().to_json(), encoding="utf-8")
    pages = runpy.run_path(str(docs / "site" / "config_page.py"))
    (docs / pages["PAGE"]).write_text(pages["config_page"](), encoding="utf-8")
    (docs / "results.schema.json").write_text(json.dumps(results_schema(), indent=1) + "\n", encoding="utf-8")
    (here.parents[1] / "report" / ATTACKS).write_text(
        json.dumps(registered(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
