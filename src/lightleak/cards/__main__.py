"""``python -m lightleak.cards`` writes the generated files of a checkout: catalogue, config page, schema, budgets."""

import json
from pathlib import Path

from lightleak.cards.catalogue import CATALOGUE
from lightleak.cards.config_page import PAGE, config_page
from lightleak.cards.registries import read_registries
from lightleak.core.results import results_schema
from lightleak.report.budget import FILE_NAME as BUDGETS
from lightleak.report.budget import registered

if __name__ == "__main__":
    here = Path(__file__)
    docs = here.parents[3] / "docs"
    here.with_name(CATALOGUE).write_text(read_registries().to_json(), encoding="utf-8")
    (docs / PAGE).write_text(config_page(), encoding="utf-8")
    (docs / "results.schema.json").write_text(json.dumps(results_schema(), indent=1) + "\n", encoding="utf-8")
    (here.parents[1] / "report" / BUDGETS).write_text(json.dumps(registered(), indent=1) + "\n", encoding="utf-8")
