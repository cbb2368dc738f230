"""A card per attack, defence and metric: what it is after, what it assumes, its settings, what it measured."""

from lightleak.cards.card import Card, Measurement
from lightleak.cards.catalogue import all_cards, find_cards

__all__ = ["Card", "Measurement", "all_cards", "find_cards"]
