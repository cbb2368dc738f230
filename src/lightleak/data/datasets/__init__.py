"""Loaders of public tables. A new dataset is one file with a card, a schema and a loader, imported here."""

from lightleak.data.datasets import (
    adult,
    bank,
    census,
    diabetes130,
    fair,
    german,
    health_heritage,
    lawschool,
    mimic_iv,
    nus_wide,
    synthetic,
    texas100,
)
from lightleak.data.datasets.registry import DATASETS, Dataset, Download, load_dataset

__all__ = [
    "DATASETS",
    "Dataset",
    "Download",
    "adult",
    "bank",
    "census",
    "diabetes130",
    "fair",
    "german",
    "health_heritage",
    "lawschool",
    "load_dataset",
    "mimic_iv",
    "nus_wide",
    "synthetic",
    "texas100",
]
