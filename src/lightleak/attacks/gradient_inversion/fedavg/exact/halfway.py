"""Weight updates of chains by all layers: as a gradient halfway between start and end.

Local training moves weights little, so that the mean gradient of its steps is nearly the gradient of all rows at the
middle of the weights' way. What the two differ by is measured on drawn rows, which are trained as the client's were,
and is then, with the noise that a defense added, the error behind which rows are sought
(`lightleak.attacks.gradient_inversion.joint`). It is no independent noise, so that of several steps only the first
layer proves rows. One step that no defense changed leaves rounding alone, of the weights and of the gradient, which is
known element by element: its rows are proven as those behind a short type are.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import (
    ANY_ROW,
    RowKind,
    expected_of_shapes,
    row_kind,
)
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import CAUTION, UNIFORM, as_gradient, local_steps
from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.attack import behind_errors, pose
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient
from lightleak.attacks.gradient_inversion.joint.labels import starting_labels
from lightleak.attacks.gradient_inversion.joint.noise import estimated_noise, rounding_variances
from lightleak.attacks.gradient_inversion.network.chain import (
    ReLUChain,
    SmoothChain,
    any_chain,
    chain_names,
    observed_gradient,
)
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain, smooth_chain
from lightleak.attacks.gradient_inversion.network.dropout import drops
from lightleak.core.certificate import Feasibility
from lightleak.core.matching import match_rows
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder

Chain = ReLUChain | SmoothChain

STEPS_OF_ROUNDING, MOSTLY = 16.0, 0.9
"""What a weight must have moved by, in distances of its neighbouring values, for its rounding to be independent of how
far it moved, and the share of the weights that moved of which this must hold where rows are proven."""

TRAININGS = 4
"""Of drawn rows. On Adult, GELU, 32 rows, what the true rows leave was 0.6 to 0.8 times what they foresee."""


EXPLAINED = 1.25
"""What rows may leave of a noised update, in deviations of its error: of four clients of Adult and Bank behind
noise of 0.001 it was 0.98 to 1.00."""


def is_served(update: ClientUpdate) -> bool:
    """Whether a weight update is one client's, of a chain with a hidden layer, whose steps are all known."""
    facts, network = update.facts, client_network(update)
    smooth = smooth_chain(network)
    layers = relu_chain(network) if smooth is None else smooth[0]
    if facts.learning_rate is None or facts.batch_size is None or facts.epochs is None or facts.n_clients != 1:
        return False
    is_told_alike = local_steps(facts) == facts.epochs * -(-facts.n_rows // facts.batch_size)
    return layers is not None and len(layers) > 1 and is_told_alike and not facts.momentum and not drops(update)


def halfway_rows(
    update: ClientUpdate, encoder: TableEncoder, config: JointConfig, seed: int, progress: Progress | None
) -> CertifiedRows | None:
    """All rows of a weight update that `is_served`; of several local steps, or behind noise, none is proven.

    None where a defense changed the update otherwise than by noise, so that its scale is not known: where it is no
    noisier than weights are rounded, or the rows found do not explain it.

    Args:
        update: the observation.
        encoder: its encoder, on the device of the work.
        config: of the search; its noise is not read.
        seed: root of all random streams.
        progress: called with the share of the work done since the last call.
    """
    steps, device = local_steps(update.facts) or 1, encoder.shift.device
    facts = replace(update.facts, epochs=1, learning_rate=None, local_steps=None)
    sent = replace(as_gradient(update), facts=facts, parameters=between(update, (steps - 1) / (2 * steps)))
    observed = observed_gradient(sent, device)
    variances, is_raw = weight_rounding(update, device), update.state == "raw"
    if not is_raw:
        added = estimated_noise(observed, encoder)
        if added <= CAUTION * _deviation(variances):
            return None
        variances = tuple(layer + added**2 for layer in variances)
    noise, proves = _deviation(variances), is_raw and steps == 1 and is_fine(update)
    problem = pose(sent, encoder, observed, noise, config.prior)
    if steps > 1:
        draws = generator(seed, "halfway")
        rows = problem.space.rows.of(*problem.space.draw(facts.n_rows, draws, from_prior=True))
        noise = hypot(noise, way_error(update, rows, starting_labels(sent, problem.space, draws), draws))
        variances = tuple(torch.full_like(layer, noise**2) for layer in observed)
        problem = replace(problem, prior_weight=2 * noise**2)
    hidden = [len(layer) for layer in observed[:-1]]
    expected = expected_halfway(facts.n_rows, steps, hidden, encoder.width, row_kind(update, encoder))
    feasibility = replace(expected, noise=noise)
    found = behind_errors(problem, sent, [observed], [variances], config, seed, feasibility, progress, proves=proves)
    if bool(found.proof.cells.any()):
        return found
    typical = sum(layer.square().sum() for layer in observed) / sum(layer.numel() for layer in observed)
    if not is_raw and not found.guesses and found.residual * float(typical) ** 0.5 > EXPLAINED * noise:
        return None
    return replace(found, labels_proven=False, feasibility=replace(unproven(expected, steps, is_raw), noise=noise))


def expected_halfway(
    n_rows: int, steps: int, hidden: Sequence[int], encoded_width: int, kind: RowKind = ANY_ROW
) -> Feasibility:
    """What to expect of a weight update that `is_served`, from sizes alone.

    Args:
        n_rows: rows behind the update.
        steps: local steps.
        hidden: units of every hidden layer, the first layer first.
        encoded_width: features of an encoded row.
        kind: of the rows.

    >>> [expected_halfway(32, steps, (100, 100), 105).expected for steps in (1, 10)]
    ['exact', 'approximate']
    """
    found = expected_of_shapes(n_rows, hidden, encoded_width, kind)
    return found if steps == 1 else unproven(found, steps)


def unproven(expected: Feasibility, steps: int, is_raw: bool = True) -> Feasibility:
    """The same where all layers together prove nothing."""
    why = f"of {steps} local steps" if steps > 1 else "whose one step all layers do not explain to its rounding"
    why = why if is_raw else f"{why} behind a defense" if steps > 1 else "behind a defense"
    reason = f"the first layer alone proves rows {why}; labels are not proven"
    return replace(expected, expected="approximate", reason=reason)


def between(update: ClientUpdate, share: float) -> dict[str, Tensor]:
    """Parameters on the straight line from start to end."""
    return {name: p.double() + share * update.update[name].double() for name, p in update.parameters.items()}


def is_fine(update: ClientUpdate) -> bool:
    """Whether rounding is independent of how far weights moved: of those that did, most passed many values.

    Weights that stayed are taken for those of columns that no row of the batch has.
    """
    moved = torch.cat([(u.abs() / _spacing(update, name)).flatten() for name, u in update.update.items()])
    return bool((moved[moved > 0] >= STEPS_OF_ROUNDING).double().mean() >= MOSTLY)


def weight_rounding(update: ClientUpdate, device: torch.device | str) -> tuple[Tensor, ...]:
    """Variance of what rounding adds to the elements of every layer, as `as_gradient` scales them.

    Each step rounds every weight to the nearest; gradients themselves are rounded in float32.
    """
    scale = (local_steps(update.facts) or 1) ** 0.5 * (update.facts.learning_rate or 1.0)

    def spacing(name: str) -> Tensor:
        return _spacing(update, name).to(device, torch.float64) / scale

    gradients = rounding_variances(observed_gradient(as_gradient(update), device))
    each = ((spacing(f"{name}.weight"), spacing(f"{name}.bias")) for name in chain_names(update))
    return tuple(
        torch.cat([weight, bias.unsqueeze(-1)], -1).square() / UNIFORM + gradient
        for (weight, bias), gradient in zip(each, gradients, strict=True)
    )


def way_error(update: ClientUpdate, x: Tensor, labels: Tensor, draws: torch.Generator) -> float:
    """Root mean square of what a mean gradient of local training differs by from the gradient halfway.

    Args:
        update: whose client's training is followed.
        x: encoded rows ``[n, d]``.
        labels: theirs ``[n]``.
        draws: of the orders of the rows, a CPU generator.
    """
    facts, start = update.facts, any_chain(update, x.device)
    squares = []
    for _ in range(TRAININGS):
        chain, total, steps = start, None, 0
        for _ in range(facts.epochs or 1):
            for batch in torch.randperm(len(x), generator=draws).split(facts.batch_size or len(x)):
                step = _gradient(chain, x[batch], labels[batch])
                total = step if total is None else tuple(a + b for a, b in zip(total, step, strict=True))
                chain, steps = _moved(chain, step, facts.learning_rate or 1.0), steps + 1
        assert total is not None  # rows make at least one batch
        middle = _moved(start, total, (facts.learning_rate or 1.0) * (steps - 1) / (2 * steps))
        expected = _gradient(middle, x, labels)
        squares.append(_deviation([(a / steps - b).square() for a, b in zip(total, expected, strict=True)]) ** 2)
    return float((sum(squares) / TRAININGS) ** 0.5)


def with_proven(rows: CertifiedRows, proven: Tensor, proof: Proof, encoder: TableEncoder) -> CertifiedRows:
    """The rows with others in the places of those most like them, which the first layer proves, their labels aside.

    Args:
        rows: of a batch, none of them proven.
        proven: encoded rows ``[m, d]`` of the same batch.
        proof: of these.
        encoder: of both.
    """
    if not len(proven) or rows.guesses:
        return rows
    (codes, numbers), (own_codes, own_numbers) = encoder.project(proven), encoder.project(rows.encoded)
    apart = (numbers.unsqueeze(1) - own_numbers).abs() / encoder.deviation
    alike = (codes.unsqueeze(1) == own_codes).sum(-1) - apart.clamp(max=1.0).sum(-1)
    places = torch.as_tensor(match_rows(alike), device=proven.device)
    encoded, cells, digits = rows.encoded.clone(), rows.proof.cells.clone(), rows.proof.digits.clone()
    encoded[places] = proven.to(encoded)
    cells[places], digits[places] = proof.cells, proof.digits
    multiplicity = rows.multiplicity.clone()
    multiplicity[places] = 1  # equal rows are not independent, and the first layer proves none of them
    return replace(rows, encoded=encoded, proof=Proof(cells, digits), multiplicity=multiplicity, labels_proven=False)


def _spacing(update: ClientUpdate, name: str) -> Tensor:
    """Distance between the values that a parameter can have, where it was and where it went."""
    largest = torch.stack([update.parameters[name], update.parameters[name] + update.update[name]]).abs().amax(0)
    return torch.nextafter(largest, torch.full_like(largest, torch.inf)) - largest


def _gradient(chain: Chain, x: Tensor, labels: Tensor) -> Gradient:
    terms = Nodes.of([chain]).terms(x)
    return terms.gradient(terms.of_labels(labels, len(x)))


def _moved(chain: Chain, gradient: Gradient, rate: float) -> Chain:
    weights = (w - rate * g[:, :-1] for w, g in zip(chain.weights, gradient, strict=True))
    biases = (b - rate * g[:, -1] for b, g in zip(chain.biases, gradient, strict=True))
    return replace(chain, weights=tuple(weights), biases=tuple(biases))


def _deviation(variances: Sequence[Tensor]) -> float:
    return float(torch.cat([layer.flatten() for layer in variances]).mean().sqrt())
