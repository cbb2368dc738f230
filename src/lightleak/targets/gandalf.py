"""GANDALF (Joseph and Raj, arXiv 2207.08548) with pytorch-tabular's backbone: one encoded tensor in, logits out."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lightleak.data.layout import EncodedLayout, runs
from lightleak.targets import options
from lightleak.targets.differentiable_parts import with_differentiable_parts
from lightleak.targets.normalization import with_functional_normalization
from lightleak.targets.spec import NETWORKS

MAX_EMBEDDING = 50  # pytorch-tabular's rule for the embedding of c categories: min(50, (c + 2) // 2)


@NETWORKS.register("gandalf")
class GANDALF(nn.Module):
    """Embeddings, gated feature learning units, one linear layer.

    A categorical block ``p`` enters as ``p @ W``, with ``W`` the rows of its embedding: for one-hot ``p`` that is the
    look-up, for soft ``p`` its expectation. Where the encoding standardizes the block, ``p = (onehot - mean) / std``,
    the same product is an affine re-parametrization of an embedding: row ``j`` of ``W`` is divided by ``std[j]`` and
    every row shifted by one constant vector. Numerical columns enter unchanged, after a BatchNorm.

    The first row of each embedding is pytorch-tabular's place for unknown categories; nothing reaches it and its
    gradient is zero.
    """

    # pytorch-tabular carries no type information.
    backbone: Any
    embedding: Any

    def __init__(
        self,
        layout: EncodedLayout,
        n_classes: int,
        stages: int = 6,
        dropout: float = 0.0,
        embedding_dropout: float = 0.0,
        feature_sparsity: float = 0.3,
        learnable_sparsity: bool = True,
        normalize_numerical: bool = True,
    ) -> None:
        """Build the layers; defaults are pytorch-tabular's ``GANDALFConfig``.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            stages: gated feature learning units.
            dropout: share of a stage's output dropped in train mode.
            embedding_dropout: share of the embedded row dropped in train mode.
            feature_sparsity: share of features that a stage's mask starts without.
            learnable_sparsity: train the masks' sparsity.
            normalize_numerical: BatchNorm on the numerical columns.

        Raises:
            UsageError: an option outside its domain.
        """
        super().__init__()
        self.layout = layout
        dimensions = [(b.width + 1, min(MAX_EMBEDDING, (b.width + 2) // 2)) for b in layout.categorical]
        n_classes = options.count("n_classes", n_classes, 2)
        normalizes = options.flag("normalize_numerical", normalize_numerical) and bool(layout.numerical)
        from pytorch_tabular.models.gandalf.gandalf import GANDALFBackbone  # takes seconds

        with _python_random_from_torch():
            backbone = GANDALFBackbone(
                cat_embedding_dims=dimensions,
                n_continuous_features=len(layout.numerical),
                gflu_stages=options.count("stages", stages),
                gflu_dropout=options.rate("dropout", dropout),
                gflu_feature_init_sparsity=options.rate("feature_sparsity", feature_sparsity),
                learnable_sparsity=options.flag("learnable_sparsity", learnable_sparsity),
                batch_norm_continuous_input=normalizes,
                embedding_dropout=options.rate("embedding_dropout", embedding_dropout),
            )
            embedding = backbone._build_embedding_layer()
        self.backbone = with_differentiable_parts(backbone)
        self.embedding = with_functional_normalization(embedding)
        self.output = nn.Linear(backbone.output_dim, n_classes)
        self._numerical_runs = runs(layout.numerical)

    def embed(self, x: Tensor) -> Tensor:
        """``[n, d]`` to the backbone's features: numerical columns, then the embedded categorical ones."""
        parts = []
        if self.layout.numerical:
            numerical = torch.cat([x[:, run] for run in self._numerical_runs], dim=1)
            if self.embedding.batch_norm_continuous_input:
                numerical = self.embedding.normalizing_batch_norm(numerical)
            parts.append(numerical)
        for block, layer in zip(self.layout.categorical, self.embedding.cat_embedding_layers, strict=True):
            parts.append(x[:, block.slice] @ layer.weight[1:])
        features = torch.cat(parts, dim=1)
        return features if self.embedding.embd_dropout is None else self.embedding.embd_dropout(features)

    def forward(self, x: Tensor) -> Tensor:
        """``[n, d]`` to logits ``[n, n_classes]``."""
        logits: Tensor = self.output(self.backbone(self.embed(x)))
        return logits


@contextmanager
def _python_random_from_torch() -> Iterator[None]:
    """Python's ``random``, which seeds the backbone's masks, follows torch's seed within the block; then as before."""
    state = random.getstate()
    random.seed(int(torch.randint(2**62, ()).item()))
    try:
        yield
    finally:
        random.setstate(state)
