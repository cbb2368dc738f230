"""Logistic regression: the "Linear" of TabLeak's Table 3 and Appendix C.3, hard to invert for every attack."""

from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.mlp import FullyConnected
from lightleak.targets.spec import NETWORKS


@NETWORKS.register("linear")
class Linear(FullyConnected):
    """One linear layer ``[n, d] -> [n, n_classes]``, stored as ``linears[0]``.

    >>> len(Linear(EncodedLayout.of_numerical(4), n_classes=3).linears)
    1
    """

    def __init__(self, layout: EncodedLayout, n_classes: int) -> None:
        """Build the layer.

        Raises:
            UsageError: fewer than two classes.
        """
        super().__init__(layout.width, (), options.count("n_classes", n_classes, 2))
