"""What the server that workers are forked from imports, once for all of them: PyTorch takes seconds."""

from lightleak.core.imports import uncollected_imports

with uncollected_imports():
    import lightleak.experiments.engine  # noqa: F401
