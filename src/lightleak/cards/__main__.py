"""``python -m lightleak.cards`` writes what a checkout holds of the registries and configs: the catalogue and pages."""

from pathlib import Path

from lightleak.cards.catalogue import CATALOGUE
from lightleak.cards.config_page import PAGE, config_page
from lightleak.cards.registries import read_registries

if __name__ == "__main__":
    here = Path(__file__)
    here.with_name(CATALOGUE).write_text(read_registries().to_json(), encoding="utf-8")
    (here.parents[3] / "docs" / PAGE).write_text(config_page(), encoding="utf-8")
