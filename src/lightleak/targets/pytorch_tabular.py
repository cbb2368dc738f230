"""pytorch-tabular's models as they ship, under our LightningModule: its embedding layer, backbone and head."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.gandalf import MAX_EMBEDDING
from lightleak.targets.packages import ROWS, NumbersAndCodes, naming_settings
from lightleak.targets.spec import NETWORKS

UNUSED = (("FTTransformerBackbone", "normalizing_batch_norm"), ("TabNetNoEmbeddings", "initial_bn"))
"""BatchNorm layers, by class and attribute, that their model never calls: their parameters have no gradient."""


class Model(nn.Module):
    """Embedding layer, backbone and head of a model of pytorch-tabular: a batch's dictionary in, logits out.

    Args:
        name: of the model, as in ``<name>Config``.
        categories: of every column of codes.
        n_numbers: numerical columns.
        n_classes: logits.
        settings: fields of the model's config.

    Raises:
        UsageError: a setting that the config does not have, or a value that it refuses.
    """

    # pytorch-tabular carries no type information.
    embedding: Any
    backbone: Any
    head: Any

    def __init__(
        self, name: str, categories: list[int], n_numbers: int, n_classes: int, settings: dict[str, Any]
    ) -> None:
        super().__init__()
        from omegaconf import OmegaConf  # these take seconds
        from pytorch_tabular import models
        from pytorch_tabular.config import InferredConfig

        inferred = InferredConfig(
            categorical_dim=len(categories),
            continuous_dim=n_numbers,
            output_dim=n_classes,
            output_cardinality=[n_classes],
            categorical_cardinality=categories,
            embedding_dims=[(width, min(MAX_EMBEDDING, (width + 1) // 2)) for width in categories],
        )
        with naming_settings(f"{name.removesuffix('Model')} of pytorch-tabular", settings):
            config = getattr(models, f"{name}Config")(task="classification", **settings)
            # Its trainer's batch size only bounds that of ghost normalization.
            facts = {**asdict(config), "batch_size": getattr(config, "virtual_batch_size", None) or 1}
            made = getattr(models, name.removesuffix("Model") + "Model")(
                OmegaConf.create(facts), inferred_config=OmegaConf.create(asdict(inferred))
            )
            self.embedding, self.backbone, self.head = made.embedding_layer, made.backbone, made.head
            with torch.no_grad():
                codes = torch.zeros(ROWS, len(categories), dtype=torch.long)
                self.eval()({"continuous": torch.zeros(ROWS, n_numbers), "categorical": codes})
            self.train()
        for layer in self.modules():
            if isinstance(layer, nn.Embedding):
                layer.padding_idx = None  # that row, without a gradient, is the one for unknown categories
        for kind, unused in UNUSED:
            for layer in self.modules():
                if type(layer).__name__ == kind and hasattr(layer, unused):
                    setattr(layer, unused, nn.Identity())

    def forward(self, rows: dict[str, Tensor]) -> Tensor:
        """Columns ``continuous`` and ``categorical`` to logits ``[n, n_classes]``."""
        logits: Tensor = self.head(self.backbone(self.embedding(rows)))
        return logits


class PyTorchTabularNetwork(NumbersAndCodes):
    """A model of pytorch-tabular on encoded rows.

    The rows of its embeddings are the layout's categories; pytorch-tabular has one more, for unknown ones, that no row
    reaches.
    """

    model_name: str

    def __init__(self, layout: EncodedLayout, n_classes: int, **settings: Any) -> None:
        """Build the model.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            settings: fields of the model's config; defaults are pytorch-tabular's.

        Raises:
            UsageError: a setting that the config does not have, or a value that it refuses.
            UnsupportedError: a package that the model needs is not installed.
        """
        self.require_package()
        categories = [block.width for block in layout.categorical]
        n_classes = options.count("n_classes", n_classes, 2)
        model = Model(self.model_name, categories, len(layout.numerical), n_classes, settings)
        super().__init__(model, layout)


@NETWORKS.register("category_embedding")
class CategoryEmbedding(PyTorchTabularNetwork):
    """pytorch-tabular's CategoryEmbedding: embeddings and a ReLU network."""

    model_name = "CategoryEmbeddingModel"


@NETWORKS.register("ft_transformer")
class FTTransformer(PyTorchTabularNetwork):
    """pytorch-tabular's FT-Transformer (Gorishniy et al. 2021, arXiv 2106.11959): attention over columns."""

    model_name = "FTTransformer"


@NETWORKS.register("autoint")
class AutoInt(PyTorchTabularNetwork):
    """pytorch-tabular's AutoInt (Song et al. 2019, arXiv 1810.11921): attention between embedded columns."""

    model_name = "AutoInt"


@NETWORKS.register("danet")
class DANet(PyTorchTabularNetwork):
    """pytorch-tabular's DANet (Chen et al. 2022, arXiv 2112.02962): groups of columns, ghost batch normalization."""

    model_name = "DANet"


@NETWORKS.register("tabnet")
class TabNet(PyTorchTabularNetwork):
    """pytorch-tabular's TabNet (Arik and Pfister 2021, arXiv 1908.07442), which needs pytorch-tabnet: sparse masks."""

    model_name, package, extra = "TabNetModel", "pytorch-tabnet", "tabnet"
