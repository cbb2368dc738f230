"""Tables without numbers, without categories, of one column; batches of one row and two; gradients of nothing."""

from dataclasses import replace
from itertools import product
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.core.certificate import Feasibility
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator, numpy_generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import Column, ColumnKind, TableSchema
from lightleak.protocols import fedavg
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

TABLES = {"categories": (3, 0, 0), "numbers": (0, 2, 1), "one category": (1, 0, 0), "one number": (0, 1, 0)}
"""How many categorical, integer and continuous columns."""

ATTACK_OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {"patience": 4},
    "exact_joint": {"steps": 20, "rounds": 1, "round_steps": 10},
    "audit_max": {"tableak": {"steps": 5, "restarts": 2}, "exact_joint": {"steps": 20, "rounds": 1, "round_steps": 10}},
}


def update_of(
    kinds: tuple[int, int, int], n: int, local: bool = False
) -> tuple[ClientUpdate, TableEncoder, torch.Tensor, torch.Tensor]:
    rng = numpy_generator(3, "odd")
    columns = [Column.categorical(f"c{i}", ["u", "v", "w"]) for i in range(kinds[0])]
    columns += [Column.integer(f"i{i}", 0, 500) for i in range(kinds[1])]
    columns += [Column.continuous(f"x{i}") for i in range(kinds[2])]
    cells = {
        c.name: rng.normal(3, 2, 200) if c.kind is ColumnKind.CONTINUOUS else rng.integers(0, 501, 200) for c in columns
    }
    cells |= {c.name: np.take(["u", "v", "w"], rng.integers(0, 3, 200)) for c in columns if not c.is_numerical}
    frame = pd.DataFrame(cells).assign(label=np.take(["no", "yes"], rng.integers(0, 2, 200)))
    schema = TableSchema(tuple(columns), Column.categorical("label", ["no", "yes"]))
    encoder = TableEncoder(schema).fit(frame)
    rows = torch.randperm(100, generator=generator(1, "rows"))[:n]
    x, y = encoder.encode(frame)[rows], encoder.encode_labels(frame)[rows]
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [24, 24]})
    network = build_network(spec, 5)
    if local:
        sent, _ = fedavg.client_update(
            network, spec, encoder, x, y, LocalTraining(2, n, 0.01, 0.0, 0.0), share_labels="none", seed=0
        )
        return sent, encoder, x, y
    sent, _ = client_update(
        network, spec, encoder, x, y, share_labels=False, marginals=Marginals.of(schema, frame[100:])
    )
    return sent, encoder, x, y


def wrongly_certified(found: Any, encoder: TableEncoder, x: torch.Tensor, y: torch.Tensor) -> int:
    certain = [i for i, status in enumerate(found.certificate.status) if status == "certified"]
    near = (found.encoded[certain].unsqueeze(1) - x).abs().amax(-1) < 0.05
    return int((~(near & (found.labels[certain].unsqueeze(1) == y)).any(1)).sum())


@pytest.mark.parametrize(("attack", "table", "n"), list(product(ATTACK_OPTIONS, TABLES, (1, 2, 6))))
def test_every_attack_serves_every_table(attack: str, table: str, n: int) -> None:
    update, encoder, x, y = update_of(TABLES[table], n)
    found = ATTACKS.get(attack)(**ATTACK_OPTIONS[attack]).run(update, 0)
    assert len(found.rows) == len(found.labels) == n
    assert wrongly_certified(found, encoder, x, y) == 0


@pytest.mark.parametrize(("table", "n"), list(product(TABLES, (1, 2, 6))))
def test_weight_updates_of_every_table_are_served(table: str, n: int) -> None:
    update, encoder, x, y = update_of(TABLES[table], n, local=True)
    found = ATTACKS.get("exact_fedavg")(restarts=1, steps=20).run(update, 0)
    assert len(found.rows) == n and wrongly_certified(found, encoder, x, y) == 0


@pytest.mark.parametrize("attack", ["exact", "audit_max"])
def test_a_gradient_of_nothing_is_answered(attack: str) -> None:
    found = ATTACKS.get(attack)(**ATTACK_OPTIONS[attack]).run(nothing(), 0)
    assert len(found.rows) == 4 and found.certificate.certified == 0
    assert isfinite(found.loss) and isfinite(found.certificate.residual)


def test_a_gradient_of_nothing_is_refused_by_the_joint_fit() -> None:
    with pytest.raises(ObservationError, match="zero in every element"):
        ATTACKS.get("exact_joint")().run(nothing(), 0)


def nothing() -> ClientUpdate:
    update, *_ = update_of((2, 1, 0), 4)
    return replace(update, update={name: torch.zeros_like(value) for name, value in update.update.items()})


@pytest.mark.parametrize(
    ("table", "normalized", "certified"),
    [("numbers", None, "110"), ("numbers", [True, False, True], "101"), ("one category", None, "111")],
)
def test_a_row_of_numbers_is_certified_only_with_its_numbers(
    table: str, normalized: list[bool] | None, certified: str
) -> None:
    """A proven label alone is no proven row: behind noise labels show long before numbers do."""
    encoder, attack, yes = update_of(TABLES[table], 3)[1], ATTACKS.get("exact")(), torch.ones(3, dtype=torch.bool)
    digits = torch.tensor([True, True, False]) if normalized is None else ~yes
    found = CertifiedRows(
        torch.zeros(3, encoder.width),
        torch.zeros(3, dtype=torch.long),
        pd.DataFrame(),
        0.0,
        Proof(yes, digits),
        torch.ones(3, dtype=torch.long),
        Feasibility((), (), (), 0.0, "exact", ""),
        normalized_proven=None if normalized is None else torch.tensor(normalized),
    ).reconstruction(attack.name, attack.threat_model, encoder, 0.0)
    assert [status == "certified" for status in found.certificate.status] == [one == "1" for one in certified]
