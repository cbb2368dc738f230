"""A user's network in the form that attacks take: one tensor of encoded rows in, one tensor of logits out.

A network that a project trains may take several tensors, look integer codes of categories up in ``nn.Embedding``,
return its logits in a dictionary, or keep some layers in eval mode. `ClientForm` is that network, with the same
parameters and the same gradients, as a function of encoded rows ``[n, d]``: an embedding of codes is the product of
one-hot columns and the embedding's rows, which has a derivative by the columns.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightleak.core.errors import UnsupportedError
from lightleak.data.input_form import InputForm
from lightleak.data.layout import Block
from lightleak.targets.differentiable_parts import with_differentiable_parts
from lightleak.targets.own import copied_network

PREFIX = "network"
"""Under which a `ClientForm` has the network: begins the names of its parameters, buffers and layers."""

LOGITS = "logits"
"""Key of the logits where a network returns a dictionary, as pytorch-tabular's do."""

MOST_ORDERED = 3
"""Tensors whose orders are all tried as positional arguments."""


@dataclass(frozen=True)
class Call:
    """How a network takes its tensors.

    Attributes:
        style: as positional or keyword arguments, or as one dictionary or tuple.
        keys: names of keyword arguments or of a dictionary; of positional arguments the tensors' numbers.
    """

    style: Literal["positional", "keywords", "dictionary", "tuple"]
    keys: tuple[Any, ...] = ()

    def __call__(self, network: nn.Module, parts: Sequence[Tensor]) -> Any:
        """Call the network."""
        if self.style == "positional":
            return network(*(parts[i] for i in self.keys))
        if self.style == "tuple":
            return network(tuple(parts))
        named = dict(zip(self.keys, parts, strict=True))
        return network(**named) if self.style == "keywords" else network(named)


ONE_TENSOR = Call("positional", (0,))


@dataclass(frozen=True)
class _Route:
    """Which row of an embedding a position of its input asks for.

    Attributes:
        block: encoded positions of the column that decides; None where none does.
        rows: index of the embedding for each category ``[width]``, or ``[1]`` where no column decides.
    """

    block: Block | None
    rows: Tensor


class OneHotEmbedding(nn.Module):
    """An ``nn.Embedding`` as the product of one-hot columns and its rows; same parameter, same gradient.

    Args:
        embedding: the layer.
        routes: for each of its calls in a forward, for each position of a row's indices.

    Attributes:
        x: encoded rows ``[n, d]`` of the present forward.
    """

    def __init__(self, embedding: nn.Embedding, routes: list[list[_Route]]) -> None:
        super().__init__()
        self.weight, self.padding = embedding.weight, embedding.padding_idx
        self.routes = routes
        self.x: Tensor | None = None
        self.calls = 0

    def forward(self, codes: Tensor) -> Tensor:
        """Embed ``codes`` ``[n, ...]``, whose values are those of the rows' one-hot blocks, to ``[n, ..., e]``."""
        assert self.x is not None  # set by the network around
        routes = self.routes[self.calls]
        self.calls += 1
        embedded = torch.stack([self._product(self.x, route) for route in routes], 1)
        return embedded.reshape(*codes.shape, embedded.shape[-1])

    def _product(self, x: Tensor, route: _Route) -> Tensor:
        table = self.weight[route.rows.to(self.weight.device)]
        if self.padding is not None:  # nn.Embedding gives this row no gradient
            is_padding = (route.rows == self.padding).unsqueeze(-1).to(table.device)
            table = torch.where(is_padding, table.detach(), table)
        return table.expand(len(x), -1) if route.block is None else x[:, route.block.slice] @ table

    def extra_repr(self) -> str:
        """Part of the digest by which a network in memory is named."""
        return f"{self.padding}, {[(r.block, r.rows.tolist()) for call in self.routes for r in call]}"


def network_name(module: nn.Module) -> str:
    """Name of the class of a network, as its project knows it."""
    return type(module.network if type(module) is ClientForm else module).__name__


class ClientForm(nn.Module):
    """A copy of a network as a function of encoded rows; see the module.

    Args:
        network: as the project trains it, in the modes in which it trains.
        form: how it takes rows; None for one tensor of encoded rows.
        rows: valid encoded rows ``[n, d]``, on which it is tried.

    Raises:
        UnsupportedError: it cannot be copied, takes rows in no form that is tried, or indexes an embedding by several
            columns at once.
    """

    def __init__(self, network: nn.Module, form: InputForm | None, rows: Tensor) -> None:
        super().__init__()
        self.form = form
        self.network = with_differentiable_parts(copied_network(network))
        self._still = still_modules(network)
        self.call = self._find_call(rows)
        if form is not None and form.coded:
            self._route(form.coded, rows[:1])
        self.train(network.training)

    @classmethod
    def of(cls, network: nn.Module, form: InputForm | None, rows: Tensor) -> nn.Module:
        """The network itself where it is such a function already, else a copy in this form; errors as for the class."""
        if form is None and not still_modules(network):
            return network
        kind = type(network)
        # A class of its own with the network's name: messages are about that, and it is no network of the registry.
        named = type(kind.__name__, (cls,), {"__module__": kind.__module__})
        found: ClientForm = named(network, form, rows)
        if found._still or (form is not None and form.coded) or found.call != ONE_TENSOR:
            return found
        return network if isinstance(found._run(rows), Tensor) else found

    def train(self, mode: bool = True) -> "ClientForm":
        """As for any module; layers that the project keeps in eval mode stay in it."""
        super().train(mode)
        for name in self._still:
            self.network.get_submodule(name).training = False
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Encoded rows ``[n, d]`` to logits ``[n, n_classes]``."""
        embeddings = [layer for layer in self.network.modules() if isinstance(layer, OneHotEmbedding)]
        for layer in embeddings:
            layer.x, layer.calls = x, 0
        try:
            logits: Tensor = logits_of(self.call(self.network, self._parts(x)))
            return logits
        finally:
            for layer in embeddings:
                layer.x = None

    def extra_repr(self) -> str:
        """Part of the digest by which a network in memory is named."""
        return f"{self.form}, {self.call}, {self._still}"

    def _parts(self, x: Tensor) -> list[Tensor]:
        return [x] if self.form is None else self.form.decode(x)

    def _run(self, rows: Tensor) -> Any:
        """What the network returns in eval mode for rows in its parameters' precision."""
        parts = self._parts(rows.to(next(self.network.parameters()).dtype))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return self.call(self.network.eval(), parts)

    def _find_call(self, rows: Tensor) -> Call:
        """The first way to call the network by which it takes the rows and returns something for each."""
        failures = []
        for call in _calls(self.form):
            self.call = call
            try:
                logits = logits_of(self._run(rows))
            except Exception as error:  # a user's forward may raise anything
                failures.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
                continue
            if isinstance(logits, Tensor) and logits.shape[:1] == rows.shape[:1]:
                return call
            failures.append(f"it returned a {type(logits).__name__}")
        parts = [] if self.form is None else self.form.parts
        keys = ", ".join("".join(f"[{step!r}]" for step in part.path) for part in parts) or "encoded rows"
        raise UnsupportedError(
            f"{type(self.network).__name__} must take the inputs of a batch ({keys}) as one dictionary or tuple, as "
            f"keyword or as positional arguments, and return logits [n, n_classes], or a dictionary with {LOGITS!r}; "
            f"got {failures[0]}"
        )

    def _route(self, coded: Sequence[Block], row: Tensor) -> None:
        """Replace every embedding that is called, by what it does as each column of codes changes alone."""
        base = row.clone()
        for block in coded:
            base[:, block.slice] = torch.eye(block.width)[:1]
        lots = [base]
        for block in coded:
            lots.append(base.repeat(block.width, 1))
            lots[-1][:, block.slice] = torch.eye(block.width)
        called: dict[str, list[Tensor]] = {}
        with ExitStack() as hooks:
            for name, layer in self.network.named_modules():
                if isinstance(layer, nn.Embedding):
                    hooks.callback(layer.register_forward_pre_hook(_recorder(called.setdefault(name, []))).remove)
            self._run(torch.cat(lots))
        for name, inputs in called.items():
            layer = self.network.get_submodule(name)
            assert isinstance(layer, nn.Embedding)
            if layer.max_norm is not None or layer.sparse or layer.scale_grad_by_freq:
                raise UnsupportedError(
                    f"embedding {name!r} has max_norm, sparse or scale_grad_by_freq: its gradient is not that of a "
                    "product with one-hot columns"
                )
            routes = [_routes(name, one.split([len(lot) for lot in lots]), coded) for one in inputs]
            if routes:
                self.network.set_submodule(name, OneHotEmbedding(layer, routes))


def still_modules(network: nn.Module) -> list[str]:
    """Names of the layers that are in eval mode within a network in train mode."""
    return [name for name, module in network.named_modules() if network.training and not module.training]


def logits_of(output: Any) -> Any:
    """The logits among what a network returned."""
    return output[LOGITS] if isinstance(output, Mapping) and LOGITS in output else output


def _calls(form: InputForm | None) -> list[Call]:
    """Ways to call a network, the likeliest first."""
    if form is None:
        return [ONE_TENSOR]
    n = len(form.parts)
    orders = permutations(range(n)) if n <= MOST_ORDERED else [tuple(range(n))]
    positional = [Call("positional", tuple(order)) for order in orders]
    if not all(part.path and isinstance(part.path[-1], str) for part in form.parts):
        return [*positional, Call("tuple")]
    keys = tuple(part.path[-1] for part in form.parts)
    return [Call("keywords", keys), *positional, Call("dictionary", keys)]


def _recorder(found: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    return lambda layer, args: found.append(args[0])


def _routes(name: str, lots: Sequence[Tensor], coded: Sequence[Block]) -> list[_Route]:
    """Of each position of a row's indices, which column decides it, and how.

    Args:
        name: of the embedding, for messages.
        lots: indices ``[1, ...]`` of one row, then for each column ``[width, ...]`` as it changes alone.
        coded: the columns.
    """
    first, *others = (lot.reshape(len(lot), -1) for lot in lots)
    routes = []
    for position, index in enumerate(first[0]):
        deciding = [
            _Route(block, lot[:, position].clone())
            for block, lot in zip(coded, others, strict=True)
            if bool((lot[:, position] != index).any())
        ]
        if len(deciding) > 1:
            raise UnsupportedError(f"embedding {name!r} is indexed by several columns at once")
        routes += deciding or [_Route(None, index.reshape(1).clone())]
    return routes
