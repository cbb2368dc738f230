"""Networks under audit and the LightningModule that trains them; importing this package fills the registry."""

from lightleak.targets import (  # noqa: F401  each registers its networks
    boosted_trees,
    cnn,
    gandalf,
    image_cnn,
    linear,
    mlp,
    other_libraries,
    pytorch_tabular,
    realmlp,
    resnet,
)
from lightleak.targets.spec import NETWORKS, NetworkSpec, build_network

__all__ = ["NETWORKS", "NetworkSpec", "build_network"]
