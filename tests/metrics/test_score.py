"""One batch's row of results.json, and its cells in long form."""

import io
import math
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.schema import Column
from lightleak.metrics import METRICS, LabelCountError, LeakageOverBaseline
from lightleak.metrics.score import match, matched, score

N = 6


def _observed(case: object) -> tuple[Reconstruction, GroundTruth]:
    encoder = case.encoder
    reconstruction = Reconstruction(
        attack="test",
        threat_model=ThreatModel(labels="restored"),
        rows=case.guess,
        labels=torch.tensor([0, 0, 1, 1, 1, 1]),
        encoded=encoder.encode(case.guess),
        uncertainty=case.uncertainty,
        loss=0.0,
        seconds=0.0,
    )
    return reconstruction, GroundTruth(encoder.encode(case.truth), torch.tensor([0, 0, 0, 1, 1, 1]))


@pytest.mark.parametrize("seed", range(4))
def test_every_number_is_that_of_its_metric(make_case: Callable, seed: int):
    case = make_case(seed, N)
    reconstruction, truth = _observed(case)
    found = score(reconstruction, truth, case.encoder)
    batch = match(reconstruction, truth, case.encoder)
    compared = 0
    for name in METRICS:
        metric = METRICS.get(name)()
        if isinstance(metric, LeakageOverBaseline) or name.startswith("kendall"):
            continue  # these need more than one batch of one attack
        value = metric(reconstruction.labels, truth.labels) if isinstance(metric, LabelCountError) else metric(batch)
        assert found[name] == pytest.approx(value.item(), abs=1e-12), name
        compared += 1
    assert compared == 11
    assert found["label_count_error"] == pytest.approx(1 / 6)
    for kind in ("categorical", "numerical"):
        names = [c.name for c in getattr(case.encoder.schema, kind)]
        assert found[f"mean_entropy_{kind}"] == pytest.approx(case.uncertainty[names].to_numpy().mean())
        by_column = [found["column_accuracy"][name] for name in names]
        assert found[f"{kind}_accuracy"] == pytest.approx(sum(by_column) / len(by_column))
    assert list(found["column_accuracy"]) == list(case.encoder.schema.names)


def test_what_does_not_exist_is_nan(make_case: Callable):
    case = make_case(0, N, columns=[Column.continuous("height"), Column.integer("age", 18, 90)])
    reconstruction, truth = _observed(case)
    silent = replace(
        reconstruction, uncertainty=case.uncertainty * math.nan, threat_model=ThreatModel(labels="none", update=False)
    )
    found = score(silent, truth, case.encoder)
    undefined = {name for name, value in found.items() if isinstance(value, float) and math.isnan(value)}
    ranked = {f"{end}25_{kind}" for end in ("top", "bottom") for kind in ("categorical", "numerical")}
    entropies = {"mean_entropy_categorical", "mean_entropy_numerical"}
    assert undefined == {"categorical_accuracy", "label_count_error"} | ranked | entropies


def test_truth_outside_the_known_bounds_is_not_clamped(make_case: Callable):
    case = make_case(0, N)
    old, bounded = (case.truth.assign(age=case.truth["age"].where(case.truth.index != 2, age)) for age in (400, 90))
    reconstruction = replace(_observed(case)[0], rows=bounded)  # right but for one age, which is at the upper bound
    truth = GroundTruth(case.encoder.encode(old), torch.zeros(N, dtype=torch.long))
    assert matched(reconstruction, truth, case.encoder).query("column == 'age'")["true"].tolist() == old["age"].tolist()
    assert score(reconstruction, truth, case.encoder)["exact_match_rate"] == pytest.approx((N - 1) / N)


def test_long_form_has_every_cell_beside_its_match(make_case: Callable):
    case = make_case(5, N)
    reconstruction, truth = _observed(case)
    cells = matched(reconstruction, truth, case.encoder)
    batch = match(reconstruction, truth, case.encoder)
    names = list(case.encoder.schema.names)
    assert list(cells.columns) == ["row", "column", "true", "reconstructed", "correct", "entropy"]
    assert len(cells) == N * len(names)
    for line, cell in enumerate(cells.itertuples(index=False)):
        row, column = divmod(line, len(names))
        guess = int(batch.order[row])
        assert (cell.row, cell.column) == (row, names[column])
        if names[column] == "height":  # through float32 and back
            assert cell.true == pytest.approx(case.truth["height"].iloc[row], rel=1e-6)
        else:
            assert cell.true == case.truth[cell.column].iloc[row]
        assert cell.reconstructed == case.guess[cell.column].iloc[guess]
        assert cell.entropy == case.uncertainty[cell.column].iloc[guess]
        assert cell.correct == bool(batch.hits[row, column])
    assert cells["correct"].mean() == pytest.approx(score(reconstruction, truth, case.encoder)["cell_accuracy"])


def test_long_form_writes_whole_numbers_as_such(make_case: Callable):
    case = make_case(5, N, columns=[Column.continuous("height"), Column.integer("age", 18, 90)])
    written = matched(*_observed(case), case.encoder).to_csv(index=False)
    ages = pd.read_csv(io.StringIO(written), dtype=str).query("column == 'age'")
    assert ages["true"].str.isdigit().all() and ages["reconstructed"].str.isdigit().all()


def test_truth_of_another_width_is_refused(make_case: Callable):
    case = make_case(0, N)
    reconstruction, truth = _observed(case)
    with pytest.raises(UsageError, match=rf"shape \(n, {case.encoder.width}\).*got \({N}, 3\)"):
        score(reconstruction, replace(truth, inputs=torch.zeros(N, 3)), case.encoder)
