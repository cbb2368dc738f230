"""Loaders of public tables. A new dataset is a loader imported here, with its facts and codebook in a YAML file."""

from lightleak.data.datasets import (  # noqa: F401  each registers its loader
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

__all__ = ["DATASETS", "Dataset", "Download", "load_dataset"]
