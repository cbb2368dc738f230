"""``python -m lightleak.cards`` writes the generated files of a checkout: catalogue, config page, schema, attacks."""

import json
import runpy
from pathlib import Path

from lightleak.cards.catalogue import CATALOGUE
from lightleak.cards.registries import read_registries
from lightleak.report.attacks import FILE_NAME as ATTACKS
from lightleak.report.attacks import registered

if __name__ == "__main__":
    package = Path(__file__).parents[1]
    docs = package.parents[1] / "docs"
    pages = runpy.run_path(str(docs / "site" / "config_page.py"))
    schema = runpy.run_path(str(docs / "site" / "results_schema.py"))
    written = {
        package / "cards" / CATALOGUE: read_registries().to_json(),
        docs / pages["PAGE"]: pages["config_page"](),
        docs / schema["PAGE"]: json.dumps(schema["results_schema"](), indent=1) + "\n",
        package / "report" / ATTACKS: json.dumps(registered(), indent=1, ensure_ascii=False) + "\n",
    }
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
