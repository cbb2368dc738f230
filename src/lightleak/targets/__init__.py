"""Networks under audit and the LightningModule that trains them; importing this package fills the registry."""

from lightleak.targets import boosted_trees, cnn, gandalf, linear, mlp, resnet  # noqa: F401  each registers its networks
from lightleak.targets.spec import NETWORKS, NetworkSpec, build_network

__all__ = ["NETWORKS", "NetworkSpec", "build_network"]
