"""Networks split between the parties of vertical federated learning, and the module that trains them."""

from lightleak.targets.split.classifier import SplitClassifier
from lightleak.targets.split.exchange import Exchange, Transform
from lightleak.targets.split.network import SplitNetwork, SplitSpec

__all__ = ["Exchange", "SplitClassifier", "SplitNetwork", "SplitSpec", "Transform"]
