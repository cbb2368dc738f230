"""A user's own network: a module handed over in memory, or code named as ``package.module:factory``.

A specification holds no code, and a capture is never unpickled, so a user's network is described by a name that
this process knows. Names in a capture alone never import anything: its reader must have named the code before
(`trust_network`), or have the module in memory (`hand_over`).
"""

import copy
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lightleak.core.arguments import require_kind
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.registry import MEMORY
from lightleak.data.own_table import DIGEST_LENGTH

NAMED = 3
"""Parameters that an error lists: enough to see which they are."""

Factory = Callable[..., nn.Module]

_KNOWN: dict[str, Factory] = {}


def is_own(name: str) -> bool:
    """Whether a name is one of a user's own network or table, not of a registry.

    >>> is_own("mlp"), is_own("mynetworks:wide"), is_own("own:Sequential-0123456789")
    (False, True, True)
    """
    return ":" in name


def hand_over(network: nn.Module, name: str | None = None) -> str:
    """Keep a copy of a module, with its weights, under a name that a `NetworkSpec` can carry in this process.

    Building that specification gives a copy of it, weights included, whatever the seed. The name holds a digest of the
    structure, the code and the weights (`network_digest`): the same module has the same name in every process.

    Args:
        network: the module.
        name: the name under which another process handed over the same structure; left out, one is made.

    Raises:
        UnsupportedError: the module cannot be copied, or has no parameters (`require_parameters`).
        UsageError: it is no module.
    """
    require_parameters(network)
    kept = copied_network(network)
    name = name or f"{MEMORY}{type(network).__name__}-{network_digest(network)}"

    def make(layout: object, n_classes: int) -> nn.Module:
        return copy.deepcopy(kept)

    _KNOWN[name] = make
    return name


def copied_network(network: nn.Module) -> nn.Module:
    """A copy of a user's module, on the CPU.

    Raises:
        UnsupportedError: the module cannot be copied.
    """
    try:
        return copy.deepcopy(network).cpu()
    except Exception as error:  # whatever a user's module holds: a lock, an open file, a tensor within a graph
        raise UnsupportedError(
            f"{type(network).__name__} cannot be copied ({type(error).__name__}: {error}); name its code instead, "
            "as 'package.module:factory'"
        ) from error


def uncompiled(network: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` wrapped, whose parameters have the names of its own; any other unchanged."""
    return getattr(network, "_orig_mod", network)


def require_parameters(network: nn.Module) -> None:
    """Refuse a module without parameters to attack.

    Raises:
        UnsupportedError: it has none, or lazy layers have not made theirs.
        UsageError: it is no module.
    """
    require_kind("network", network, nn.Module, "an nn.Module")
    name = type(network).__name__
    if lazy := [key for key, parameter in network.named_parameters() if is_lazy(parameter)]:
        raise UnsupportedError(
            f"{name} has parameters without a shape yet, {lazy[:NAMED]}, as nn.LazyLinear makes them; run it once on "
            "encoded rows [n, width], or give each layer its input width"
        )
    if not any(True for _ in network.parameters()):
        raise UnsupportedError(f"{name} has no parameters, so no gradient that a client could send")


PLAIN = (bool, int, float, str, bytes, type(None))
"""Types of attributes whose text says all of them."""


OF_TORCH = frozenset(vars(nn.Module())) - {"training"}
"""Attributes in which every module keeps its parts and hooks."""


def network_digest(network: nn.Module) -> str:
    """Digest of structure, code, attributes and weights, equal in every process.

    The code is that of every method of a module's classes and of the functions among its attributes. Functions and
    numbers that these look up as globals count by name alone.
    """
    digest = hashlib.sha256(repr(network).encode())
    for module in network.modules():
        attributes = {key: value for key, value in vars(module).items() if key not in OF_TORCH}
        for words in (*_class_words(type(module)), *_words(dict(sorted(attributes.items())))):
            digest.update(words.encode() + b"\0")
    for key, value in network.state_dict().items():
        digest.update(f"{key} {_tensor_words(value)}".encode())
    return digest.hexdigest()[:DIGEST_LENGTH]


def _class_words(kind: type, within: tuple[int, ...] = ()) -> Iterator[str]:
    """Methods and plain attributes of a class and its bases, but for those that every object or module has."""
    yield kind.__qualname__
    for base in kind.__mro__:
        if base not in (nn.Module, object):
            for name, value in sorted(vars(base).items()):
                is_plain = isinstance(value, PLAIN) and not name.startswith("__")
                if is_plain or isinstance(value, FunctionType | staticmethod | classmethod | property):
                    yield name
                    yield from _words(value, within)


def _words(value: Any, within: tuple[int, ...] = ()) -> Iterator[str]:
    """What a value says about a computation, without addresses; ``within`` are the ids of the values that hold it."""
    held: Any = ()
    if id(value) in within:
        return
    if isinstance(value, PLAIN):
        yield repr(value)
    elif isinstance(value, Tensor):
        yield _tensor_words(value)
    elif isinstance(value, frozenset | set):
        yield str(sorted(map(repr, value)))  # in one order in every process
    elif isinstance(value, list | tuple):
        held = value
    elif isinstance(value, dict):
        held = [part for item in value.items() for part in item]
    elif isinstance(value, CodeType):
        yield value.co_code.hex()
        held = [value.co_names, value.co_consts]
    elif isinstance(value, FunctionType):
        yield value.__qualname__
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        held = [value.__code__, value.__defaults__, value.__kwdefaults__, cells]
    elif isinstance(value, staticmethod | classmethod | MethodType):
        held = [value.__func__]
    elif isinstance(value, property):
        held = [value.fget]
    elif isinstance(value, partial):
        held = [value.func, value.args, value.keywords]
    elif callable(value):
        yield getattr(value, "__qualname__", type(value).__qualname__)
        if not isinstance(value, type) and not (type(value).__module__ or "").startswith(("builtins", "torch")):
            yield from _class_words(type(value), (*within, id(value)))
            held = [getattr(value, "__dict__", {})]
    for part in held:
        yield from _words(part, (*within, id(value)))


def _tensor_words(value: Tensor) -> str:
    numbers = value.detach().cpu().double().numpy()  # numpy has no bfloat16
    return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(numbers.tobytes()).hexdigest()}"


def reads_copies(network: nn.Module) -> nn.Module:
    """Let a module compute on a copy of its rows from now on: its forward may write into them, as ``x *= 2`` does.

    Returns:
        ``network``.

    Raises:
        UnsupportedError: TorchScript, whose forward takes neither hooks nor other weights.
        UsageError: it is no module.
    """
    require_kind("network", network, nn.Module, "an nn.Module")
    if isinstance(network, torch.jit.ScriptModule):
        raise UnsupportedError("the network is compiled by torch.jit; hand over the module that it was made from")
    network.register_forward_pre_hook(copied_rows)
    return network


def copied_rows(module: nn.Module, rows: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The hook of `reads_copies`."""
    return tuple(part.clone() for part in rows)


def trust_network(name: str) -> None:
    """Import ``package.module:factory`` and let specifications name it; call it with names that the user gave alone.

    The factory is called as a network of the registry is: ``factory(layout, n_classes, **options)``. Names of the
    registry and of modules in memory need no trust and are left alone.

    Raises:
        UsageError: there is no such module, it fails to be imported, or it has no such function or class.
    """
    if not is_own(name) or name.startswith(MEMORY) or name in _KNOWN:
        return
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:  # it is the user's code that is run
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"network {name!r}: {module!r} cannot be imported ({reason})") from error
    if not callable(found):
        raise UsageError(f"network {name!r}: {module!r} has no function or class {attribute!r}")
    _KNOWN[name] = found


def trusted_networks() -> tuple[str, ...]:
    """Return the names that `trust_network` has imported, for another process to import."""
    return tuple(name for name in _KNOWN if not name.startswith(MEMORY))


def own_factory(name: str) -> Factory:
    """Return the factory registered under `name`.

    Raises:
        UsageError: this process does not know it; the message says how it would.
    """
    if name in _KNOWN:
        return _KNOWN[name]
    if name.startswith(MEMORY):
        raise UsageError(
            f"network {name!r} was handed over in memory, and not in this process: hand the same module over again, "
            "by lightleak.audit_model or lightleak.attack_updates, or name its code as 'package.module:factory'"
        )
    raise UsageError(
        f"network {name!r} is user code, which a capture alone does not import: name it as target.network "
        "in the config, or call lightleak.targets.own.trust_network first, if you trust it"
    )
