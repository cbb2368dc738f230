"""The table on the terminal after a vertical audit."""

import io
from typing import Any

import pytest
from rich.console import Console

from lightleak.experiments.kinds.vertical.summary import vertical_tables
from lightleak.experiments.terminal import print_results


def row(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "vertical", "dataset": "adult", "target": "split-32-16-16", "attack": "provfl_b", "variant": "passive",
        "adversary": "C1", "property": "sex=Male", "defense": "none", "seed": 0, "epoch": 18, "true_fraction": 0.66,
        "estimated_fraction": 0.65, "low": 0.6, "high": 0.7, "prior": 0.5, "auc": 0.9039, "options": {},
    } | changes  # fmt: skip


def printed(rows: list[dict[str, Any]], width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    results = {"rows": rows}
    print_results(vertical_tables(results), results, console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_line_holds_means_over_seeds_and_the_interval_of_the_error() -> None:
    rows = [row(seed=seed, estimated_fraction=0.66 + error) for seed, error in enumerate((-0.01, 0.02, 0.03))]
    said, header, line = printed(rows)
    assert said == (
        "adult, split-32-16-16, epoch 18, no defense; true and found: share in %, MAE: mean error in points"
    )
    assert header.split() == ["property", "by", "attack", "true", "found", "MAE", "95%", "interval", "n", "AUC"]
    # Errors .01, .02, .03: mean .02, deviation .01, half of the interval 4.303 * .01 / sqrt(3) = .0248, cut at 0.
    assert line.split() == ["sex=Male", "C1", "provfl_b", "66.0", "67.3", "2.0", "0.0", "to", "4.5", "3", ".904"]


def test_what_was_learned_from_the_exchange_stands_below_with_what_it_is_worth() -> None:
    rows = [
        row(seed=seed, estimated_fraction=0.66 + error, own_columns_error=0.1, adversary=adversary)
        for adversary in ("C1", "C2")
        for seed, error in enumerate((-0.01, 0.02, 0.03))
    ]
    rows += [row(seed=seed, attack="aia_raw_adjusted", estimated_fraction=0.56) for seed in range(3)]
    lines = printed(rows)
    said = next(index for index, line in enumerate(lines) if line.startswith("learned from the exchange"))
    assert lines[said + 1].split() == ["property", "by", "attack", "own", "MAE", "learned", "95%", "interval", "rows"]
    # 10 - 2 points, deviation 1; for two comparisons t(2) = 6.205: half of the interval is 3.6.
    # .2244 over the mean squared error .000467 is 481.
    assert [line.split() for line in lines[said + 2 :]] == [
        ["sex=Male", name, "provfl_b", "10.0", "2.0", "+8.0", "4.4", "to", "11.6", "481"] for name in ("C1", "C2")
    ]
    assert max(map(len, lines[said + 1 :])) <= 80
    assert not any("learned" in line for line in printed([row(), row(attack="aia_raw_adjusted")]))


def test_an_answer_of_one_half_is_not_learned() -> None:
    errors = (-0.02, -0.021, -0.019, -0.02, -0.021)
    near = {"true_fraction": 0.52, "own_columns_error": 0.16}
    rows = [row(seed=seed, estimated_fraction=0.52 + error, **near) for seed, error in enumerate(errors)]
    said = " ".join(" ".join(printed(rows)).split())
    assert "not measurably closer than the answer one half, so nothing was learned: sex=Male by C1" in said
    close = [
        row(seed=seed, estimated_fraction=0.66 + error, own_columns_error=0.16) for seed, error in enumerate(errors)
    ]
    assert "one half" not in " ".join(printed(close))


def test_what_is_unknown_is_a_dash() -> None:
    line = printed([row(true_fraction=None, auc=None)])[-1]
    assert line.split() == ["sex=Male", "C1", "provfl_b", "-", "65.0", "-", "-", "1", "-"]
    assert printed([]) == ["nothing is finished yet"]


def test_lines_are_ordered_by_property_and_adversary_and_variants_stand_apart() -> None:
    rows = [
        row(adversary="C2"),
        row(attack="provfl_m", variant="LR+MR"),
        row(property="race=White"),
    ]
    lines = [line.split()[:4] for line in printed(rows)[2:]]
    assert [line[:3] for line in lines] == [
        ["race=White", "C1", "provfl_b"],
        ["sex=Male", "C1", "provfl_m"],
        ["sex=Male", "C2", "provfl_b"],
    ]
    assert lines[1][3] == "LR+MR"


def test_other_settings_have_a_heading_each() -> None:
    lines = printed([row(), row(defense="withdraw ratio 0.5"), row(attack="aia")])
    assert lines[0].startswith("adult, split-32-16-16, epoch 18; true")
    assert [line for line in lines if line in ("no defense", "withdraw ratio 0.5")] == [
        "no defense",
        "withdraw ratio 0.5",
    ]
    assert sum("provfl_b" in line for line in lines) == 2
    start = lines.index("withdraw ratio 0.5")
    assert sum("aia" in line for line in lines[:start]) == 1 and not any("aia" in line for line in lines[start:])


@pytest.mark.parametrize("name", ["marital-status=Married-civ-spouse", "a_name_without_any_space_" * 4, "a=[bold]b"])
def test_long_and_odd_names_lose_nothing_and_fit_80_columns(name: str) -> None:
    rows = [
        row(property=name, seed=seed, attack="provfl_b_mixture", true_fraction=0.999, estimated_fraction=0.1 * seed)
        for seed in range(12)
    ]
    lines = printed(rows)[1:]
    assert max(map(len, lines)) <= 80
    room = lines[0].index("by")  # the column of the names ends where the next one starts
    assert "".join(line[:room].strip() for line in lines[1:]) == name
    assert "provfl_b_mixture" in lines[1] and lines[1].rstrip().endswith(".904")
