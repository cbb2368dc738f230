import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.targets.split import SplitNetwork, SplitSpec


def test_a_specification_survives_json() -> None:
    spec = SplitSpec((4, 2), 3, (8, 4), 5, ())
    assert SplitSpec.from_dict(spec.to_dict()) == spec
    assert SplitSpec([4, 2]).widths == (4, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widths": ()}, "widths must hold the number of encoded columns of each party, got none"),
        ({"widths": (3, 0)}, r"widths\[1\] must be a whole number of at least 1, got 0"),
        ({"n_classes": 1}, "n_classes must be a whole number of at least 2, got 1"),
        ({"output_width": 0}, "output_width must be a whole number of at least 1, got 0"),
        ({"bottom_hidden": 32}, "bottom_hidden must be a sequence of widths"),
        ({"top_hidden": (0,)}, r"top_hidden\[0\] must be a whole number"),
    ],
)
def test_widths_are_checked(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SplitSpec(**({"widths": (3, 2)} | settings))


def test_initial_weights_depend_on_the_seed_alone() -> None:
    first = SplitNetwork(SplitSpec((3, 2)), seed=4).state_dict()
    drawn = torch.rand(1)
    torch.manual_seed(0)
    torch.testing.assert_close(SplitNetwork(SplitSpec((3, 2)), seed=4).state_dict(), first, rtol=0, atol=0)
    assert torch.equal(torch.rand(1), drawn)  # torch's own state goes on untouched


@pytest.mark.parametrize(("n_classes", "shape"), [(2, (6,)), (4, (6, 4))])
def test_a_party_sends_a_function_of_its_own_columns(n_classes: int, shape: tuple[int, ...]) -> None:
    network = SplitNetwork(SplitSpec((3, 2, 4), n_classes, output_width=5), seed=0)
    inputs = torch.randn(6, 9, requires_grad=True)
    outputs = network.outputs(inputs)
    assert outputs.shape == (3, 6, 5)
    assert network.logits(outputs).shape == shape
    assert outputs.min() == 0  # the last layer's ReLU
    for party, own in enumerate(network.party_inputs(inputs)):
        torch.testing.assert_close(network.party_output(party, own), outputs[party])
    (reached,) = torch.autograd.grad(outputs[1].sum(), inputs)
    assert reached[:, 3:5].any()
    assert not reached[:, :3].any()
    assert not reached[:, 5:].any()
    # The top network reads the parties' outputs in their order.
    together = network.top(torch.cat(list(outputs), 1))
    torch.testing.assert_close(network(inputs), together.squeeze(1) if n_classes == 2 else together)


def test_no_other_party_and_no_other_columns() -> None:
    network = SplitNetwork(SplitSpec((3, 2)))
    with pytest.raises(UsageError, match="party must be from 0 to 1, got -1"):
        network.party_output(-1, torch.zeros(1, 2))
    with pytest.raises(UsageError, match=r"inputs of party 0 must have shape \[n, 3\], got \(1, 2\)"):
        network.party_output(0, torch.zeros(1, 2))
