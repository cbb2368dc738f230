"""Networks of one's own by name: kept as they are, equal names for equal modules, and no code from a capture."""

import copy
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets import NetworkSpec, build_network, own
from lightleak.targets.own import hand_over, network_digest, trust_network
from lightleak.targets.own_check import require_classifier
from lightleak.targets.single_logit import with_two_logits
from lightleak.targets.spec import is_differentiable

LAYOUT = EncodedLayout.of_numerical(3)
ROWS = torch.linspace(-1, 1, 9).reshape(3, 3)


def small(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def test_a_module_is_built_again_with_its_weights_and_shares_nothing() -> None:
    network = small()
    name = hand_over(network)
    built = build_network(NetworkSpec(name, 2, LAYOUT), seed=5)
    for key, value in network.state_dict().items():
        assert torch.equal(value, built.state_dict()[key])
    with torch.no_grad():
        built[0].weight.zero_()
        network[0].weight.fill_(3.0)
    again = build_network(NetworkSpec(name, 2, LAYOUT))
    assert torch.equal(again[0].weight, small()[0].weight)
    assert is_differentiable(name)


def test_a_module_may_write_into_the_rows_it_is_given() -> None:
    network, rows = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)), ROWS.clone().requires_grad_()
    built = build_network(NetworkSpec(hand_over(network), 2, LAYOUT))
    assert torch.equal(built(rows), network[1](ROWS.relu())) and torch.equal(rows, ROWS)


def test_torchscript_is_refused() -> None:
    name = hand_over(torch.jit.trace(nn.Linear(3, 2), ROWS))
    with pytest.raises(UnsupportedError, match="hand over the module that it was made from"):
        build_network(NetworkSpec(name, 2, LAYOUT))


def test_names_tell_weights_structure_and_code_apart() -> None:
    class One(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    def other() -> type[nn.Module]:
        class One(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x) * 2

        return One

    assert network_digest(small()) == network_digest(small())
    assert network_digest(small()) != network_digest(small(1))
    torch.manual_seed(0)
    first = One(3, 2)
    torch.manual_seed(0)
    second = other()(3, 2)
    second.__class__.__qualname__ = One.__qualname__
    assert network_digest(first) != network_digest(second)


def test_the_digest_sees_names_constants_and_attributes() -> None:
    """Each pair has the same structure, weights and instructions."""

    def net(forward: Any, k: float = 1.0) -> nn.Module:
        torch.manual_seed(0)
        made = type("Net", (nn.Linear,), {"forward": forward})(3, 2)
        made.k = k
        return made

    pairs = [
        (net(lambda self, x: torch.relu(x)), net(lambda self, x: torch.tanh(x))),
        (net(lambda self, x: x * 1.5), net(lambda self, x: x * 5.5)),
        (net(lambda self, x: (lambda y: y + 1)(x)), net(lambda self, x: (lambda y: y + 2)(x))),
        (net(lambda self, x: self.k * x), net(lambda self, x: self.k * x, 2.0)),
    ]
    for first, second in pairs:
        assert network_digest(first) != network_digest(second)
        assert network_digest(first) == network_digest(copy.deepcopy(first))


def test_the_digest_sees_methods_and_functions_among_the_attributes() -> None:
    """Each pair has the same structure, weights and ``forward``."""

    class Net(nn.Linear):
        def __init__(self, act: Any) -> None:
            torch.manual_seed(0)
            super().__init__(3, 2)
            self.act = act

        def forward(self, x: Tensor) -> Tensor:
            return self.act(super().forward(x))

    class Scaled:
        def __init__(self, k: float) -> None:
            self.k = k

        def __call__(self, x: Tensor) -> Tensor:
            return self.k * x

    def scaled(k: float) -> Any:
        return lambda x: x * k

    def with_method(act: Any) -> nn.Module:
        return type("Net", (Net,), {"hidden": lambda self, x: act(x), "forward": lambda self, x: self.hidden(x)})(None)

    relu, tanh = nn.functional.relu, nn.functional.tanh
    pairs = [
        (Net(relu), Net(tanh)),
        (Net(torch.relu), Net(torch.tanh)),
        (Net([relu, tanh]), Net([tanh, relu])),
        (Net(scaled(0.5)), Net(scaled(0.25))),
        (Net(partial(relu, inplace=False)), Net(partial(relu, inplace=True))),
        (Net(Scaled(0.5)), Net(Scaled(0.25))),
        (with_method(relu), with_method(tanh)),
    ]
    for first, second in pairs:
        assert network_digest(first) != network_digest(second)
        assert network_digest(first) == network_digest(copy.deepcopy(first))


def test_the_digest_is_the_same_in_every_process() -> None:
    code = (
        "import torch; from torch import nn; from lightleak.targets.own import network_digest\n"
        "class Net(nn.Linear):\n"
        "    def forward(self, x): return self.act(super().forward(x)) if 'a' in {'a', 'b', 'c', 'd'} else x\n"
        "torch.manual_seed(0); net = Net(3, 2); net.act = nn.functional.gelu; net.other = object()\n"
        "print(network_digest(net))"
    )
    found = {
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_code_is_imported_only_where_the_user_named_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ownnetworks.py").write_text(
        "from torch import nn\nraised = 0\n"
        "def wide(layout, n_classes, units=7):\n"
        "    return nn.Sequential(nn.Linear(layout.width, units), nn.ReLU(), nn.Linear(units, n_classes))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(own, "_KNOWN", dict(own._KNOWN))  # later workers must not import it
    spec = NetworkSpec("ownnetworks:wide", 2, LAYOUT, {"units": 5})
    with pytest.raises(UsageError, match=r"which a capture alone does not import: name it as target\.network"):
        build_network(spec)
    assert "ownnetworks" not in sys.modules
    trust_network("ownnetworks:wide")
    assert build_network(spec)[0].out_features == 5
    with pytest.raises(UsageError, match="does not take these options"):
        build_network(NetworkSpec("ownnetworks:wide", 2, LAYOUT, {"unitz": 5}))


@pytest.mark.parametrize(
    ("name", "message"),
    [("nosuchpackage:make", "cannot be imported"), ("lightleak.core.seeds:nosuch", "no function or class 'nosuch'")],
)
def test_code_that_is_not_there_is_named(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trust_network(name)


def test_a_module_of_another_process_is_asked_for() -> None:
    with pytest.raises(UsageError, match="was handed over in memory, and not in this process"):
        build_network(NetworkSpec("own:Sequential-0000000000", 2, LAYOUT))


def test_modules_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="ReLU has no parameters"):
        hand_over(nn.ReLU())
    holds = small()
    holds.generator = (i for i in range(3))  # type: ignore[assignment]
    with pytest.raises(UnsupportedError, match=r"cannot be copied .*name its code instead"):
        hand_over(holds)


@pytest.mark.parametrize("use", [hand_over, partial(with_two_logits, width=3), partial(require_classifier, rows=ROWS)])
def test_what_cannot_be_copied_is_refused_wherever_it_is_copied(use: Any) -> None:
    locked, pruned = small(), small()
    locked.lock = threading.Lock()  # type: ignore[assignment]
    prune.l1_unstructured(pruned[0], "weight", 0.5)
    for network in (locked, pruned):
        with pytest.raises(UnsupportedError, match=r"Sequential cannot be copied .*name its code instead"):
            use(network)


class HoldsItself(nn.Module):
    """Its forward calls a function that refers to the module, which a copy does not rebind."""

    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, outputs)
        self.body = lambda x: self.first(x).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x))


class HoldsAMethod(HoldsItself):
    def __init__(self) -> None:
        super().__init__()
        self.body = self._body
        self.unused = lambda x: self.first(x)

    def _body(self, x: Tensor) -> Tensor:
        return self.first(x).relu()


def test_a_module_whose_copies_compute_with_its_own_parameters_is_refused() -> None:
    replaced = small()
    replaced.forward = lambda x: replaced[3](replaced[0](x))  # type: ignore[method-assign]
    for network in (HoldsItself(), replaced, with_two_logits(HoldsItself(1), 3)[0]):
        with pytest.raises(UnsupportedError, match="computes with parameters of the module that it was copied from"):
            require_classifier(network, ROWS)
    assert require_classifier(HoldsAMethod(), ROWS) == 2


class Pairs(nn.Linear):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return x, x


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Linear(5, 2), r"must take encoded rows \[n, 3\].*got RuntimeError"),
        (nn.Linear(3, 1), r"at least 2 classes; it returned \[3, 1\]"),
        (nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)), r"it returned \[6\]"),
        (Pairs(3, 2), "it returned a tuple"),
        (nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1)), "returns probabilities.* return logits, without softmax"),
        (nn.Sequential(nn.LazyLinear(2)), r"without a shape yet, \['0.weight', '0.bias'\]"),
    ],
)
def test_what_is_no_classifier_of_encoded_rows_is_refused(network: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        require_classifier(network, ROWS)


@pytest.mark.parametrize("last", [nn.LogSoftmax(-1), nn.Sigmoid(), nn.ReLU()])
def test_outputs_that_are_no_probabilities_of_the_classes_are_logits(last: nn.Module) -> None:
    assert require_classifier(nn.Sequential(small(), last), ROWS) == 2


def test_lazy_layers_are_served_once_they_are_made() -> None:
    network = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 1))
    for refuse in (hand_over, lambda lazy: with_two_logits(lazy, 3)):
        with pytest.raises(UnsupportedError, match="run it once on encoded rows"):
            refuse(network)
    network(torch.zeros(1, 3))
    grown, _ = with_two_logits(network, 3)
    assert require_classifier(grown, ROWS) == 2 and hand_over(grown).startswith("own:")


def test_trying_a_module_changes_nothing() -> None:
    network = small().eval()
    network.append(nn.Dropout(0.5))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    state = torch.get_rng_state()
    assert require_classifier(network, ROWS) == 2
    assert torch.equal(torch.get_rng_state(), state)
    assert not network.training and type(network[1]) is nn.BatchNorm1d
    assert all(torch.equal(value, network.state_dict()[key]) for key, value in before.items())
