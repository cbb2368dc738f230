"""Fully connected networks: the logistic regression and the multilayer perceptrons of TabLeak (Vero et al. 2023)."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.normalization import BatchNorm1d, LayerNorm
from lightleak.targets.spec import NETWORKS

NORMS = ("none", "batch", "layer")


def norm_layer(name: str, width: int) -> nn.Module:
    """A normalization of ``width`` units: ``batch`` or ``layer``.

    Raises:
        UsageError: another name.
    """
    layers = {"batch": BatchNorm1d, "layer": LayerNorm}
    return layers[options.choice("norm", name, layers)](width)


class FullyConnected(nn.Module):
    """Linear layers ``[n, width] -> [n, n_out]``; after each hidden one: norm, activation, dropout.

    Linear layers keep PyTorch's default initialization, which is what TabLeak attacks.

    Attributes:
        linears: all linear layers in order, the output layer last.
        norms: one normalization per hidden layer; empty for ``norm="none"``.
        activation_name: name of the activation.
        norm_name: name of the normalization.
        dropout_rate: share of hidden units dropped in train mode.
    """

    def __init__(
        self,
        width: int,
        hidden: Sequence[int],
        n_out: int,
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str = "none",
    ) -> None:
        """Build the layers.

        Raises:
            UsageError: an option outside its domain.
        """
        super().__init__()
        self.activation_name = activation
        self.norm_name = options.choice("norm", norm, NORMS)
        self.dropout_rate = options.rate("dropout", dropout)
        layers = (width, *options.widths("hidden", hidden), n_out)
        self.linears = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(layers))
        self.norms = nn.ModuleList() if norm == "none" else nn.ModuleList(norm_layer(norm, w) for w in layers[1:-1])
        self.activation = options.activation(activation)
        self.dropout = nn.Dropout(self.dropout_rate)

    def forward(self, x: Tensor) -> Tensor:
        """``[n, width]`` to ``[n, n_out]``."""
        for index, linear in enumerate(self.linears[:-1]):
            x = linear(x)
            if self.norms:
                x = self.norms[index](x)
            x = self.dropout(self.activation(x))
        output: Tensor = self.linears[-1](x)
        return output


@NETWORKS.register("mlp")
class MLP(FullyConnected):
    """Multilayer perceptron; the default is the target of TabLeak's main body (two hidden layers of 100, ReLU).

    >>> MLP(EncodedLayout.of_numerical(105), n_classes=2).linears[0]
    Linear(in_features=105, out_features=100, bias=True)
    """

    def __init__(
        self,
        layout: EncodedLayout,
        n_classes: int,
        hidden: Sequence[int] = (100, 100),
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str = "none",
    ) -> None:
        """Build the layers.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            hidden: width of each hidden layer.
            activation: relu, gelu, tanh, sigmoid, leaky_relu or elu.
            dropout: share of hidden units dropped in train mode.
            norm: none, batch or layer, between a linear layer and its activation.

        Raises:
            UsageError: an option outside its domain.
        """
        super().__init__(layout.width, hidden, options.count("n_classes", n_classes, 2), activation, dropout, norm)
