"""LightLeak: how much private data do tabular deep-learning models leak?

Importing this package is cheap: torch and the rest are loaded by the subpackages that need them.
"""

__version__ = "0.1.0"
