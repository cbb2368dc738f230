"""``python -m lightleak.cards`` writes the catalogue file of this checkout from the registries."""

from pathlib import Path

from lightleak.cards.catalogue import CATALOGUE
from lightleak.cards.registries import read_registries

if __name__ == "__main__":
    Path(__file__).with_name(CATALOGUE).write_text(read_registries().to_json(), encoding="utf-8")
