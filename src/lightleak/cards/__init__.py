"""Cards: for every attack, defense and metric its paper, threat model, settings, deviations and measured figures.

They are made from the registries; `lightleak explain NAME` prints one, and the documentation has a page for each.
"""

from lightleak.cards.catalogue import Card, all_cards, find_cards, load_catalogue

__all__ = ["Card", "all_cards", "find_cards", "load_catalogue"]
