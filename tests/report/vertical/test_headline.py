"""The words of the headline follow from the numbers."""

from typing import Any

from lightleak.report.vertical.comparison import compare, properties
from lightleak.report.vertical.headline import Headline, headline
from lightleak.report.vertical.result import PropertyResult, Setting


def rows(errors: tuple[float, ...], own: float | None = 0.16, **changes: Any) -> list[PropertyResult]:
    """One row per error of seeds 0, 1, ...; the truth is .66, and the adversary's own columns are ``own`` off."""
    values: dict[str, Any] = {
        "run": "run", "setting": Setting("adult"), "attack": "provfl_b", "variant": "passive", "adversary": "C1",
        "property_name": "sex=Male", "true": 0.66, "prior": 0.5, "own_error": own,
    }  # fmt: skip
    values |= changes
    return [PropertyResult(seed=seed, estimated=0.66 + error, **values) for seed, error in enumerate(errors)]


def opening(found: list[PropertyResult], redact: bool = False) -> Headline:
    measured = tuple(one for one in properties(compare(found)) if one.groups)
    return headline(measured, len(found), redact)


GOOD = (0.01, -0.02, 0.03)


def test_both_adversaries_are_named_with_their_errors_beside_their_own_columns() -> None:
    found = opening(rows(GOOD) + rows((0.04, 0.05, 0.06), adversary="C2"))
    assert found.sentence == (
        "From what companies exchange while they train one model together, the company that holds the labels (C1) "
        "learned what share of the other's records has sex=Male to within 2.0 points on average (95% interval 0.0 "
        "to 4.5), by its own columns alone 16.0 points (95% interval 16.0 to 16.0); a company without the labels (C2) "
        "learned it to within 5.0 points on average (95% interval 2.5 to 7.5), by its own columns alone 16.0 points "
        "(95% interval 16.0 to 16.0). The true share is 66.0%; C1 estimated 66.7%."
    )
    # For two comparisons: 14 points, deviation 1, t(2) at 1 - 0.025 / 2 is 6.205.
    assert found.verdict[0] == (
        "Learned from the exchange: C1 came 14.0 points (95% interval 10.4 to 17.6) closer to the truth than its own "
        "columns alone."
    )
    # p (1 - p) = .2244; squared errors .0001, .0004, .0009: mean .000467, deviation .000404, half .001004.
    assert found.verdict[1] == (
        "As good as a random sample of records whose property is known: C1's estimate is worth 481 (at least 153) "
        "records, that of its own columns alone 9 (9 to 9)."
    )
    assert [tile.value for tile in found.tiles] == ["2.0", "16.0", "5.0", "16.0"]
    assert found.selection.startswith("Measured with 3 seeds; no defence. C1 used ProVFL-B, which follows the protocol")
    assert "holds for all 2 combinations of property and adversary at once (Bonferroni)" in found.selection
    assert "picked afterwards" not in found.selection


def test_what_own_columns_tell_as_well_is_not_called_learned() -> None:
    """An estimate may be close to the truth, and far better than one half, and have nothing of the exchange."""
    found = opening(rows((0.01, -0.012, 0.009), own=0.01))
    assert "(C1) was not shown to learn what share of the other's records has sex=Male: it was 1.0 points" in (
        found.sentence
    )
    assert "by its own columns alone 1.0 points" in found.sentence and " learned " not in found.sentence
    assert "was not measurably closer than its own columns alone" in found.verdict[0]
    assert "may be chance" in found.verdict[0]
    worse = opening(rows((0.3, 0.31, 0.32)))
    assert worse.verdict[0] == "C1 came 15.0 points further off than its own columns alone."
    assert "was not shown to learn" in worse.sentence


def test_without_the_null_nothing_is_called_learned() -> None:
    found = opening(rows(GOOD, own=None))
    assert "(C1) estimated what share of the other's records has sex=Male to within 2.0 points" in found.sentence
    assert "its own columns alone were not measured, so that nothing shows that the exchange gave any" in found.sentence
    assert "what its own columns alone tell is not part of this run" in found.verdict[0]
    assert not any("Learned" in line for line in found.verdict)


def test_one_seed_claims_nothing() -> None:
    found = opening(rows((0.01,)))
    assert "(C1) estimated what share of the other's records has sex=Male to within 1.0 points;" in found.sentence
    assert "on average" not in found.sentence and "interval" not in found.sentence
    assert "C1 came closer than its own columns alone" in found.verdict[0]
    assert "one seed is too few" in found.verdict[0] and "one seed is too few" in found.sentence
    assert found.tiles[0].detail == "ProVFL-B, one seed, no interval"


def test_the_choice_of_the_attack_is_told() -> None:
    found = opening(rows((0.01, -0.02, 0.03)) + rows((0.1, 0.1, 0.1), attack="aia"))
    assert (
        "The attack was chosen among 2: for each seed the one that was closest on the other seeds." in found.selection
    )
    single = opening(rows((0.01,)) + rows((0.1,), attack="aia"))
    assert "The attack was chosen among 2: afterwards, on this seed." in single.selection


def test_of_many_chances_one_that_looks_learned_is_not_called_so() -> None:
    """By itself the difference is clear at 95%; picked among 20 it is not, and the headline says so."""
    lucky = rows((0.02, 0.03, 0.025), own=0.05)
    assert "learned what share" in opening(lucky).sentence
    others = [row for k in range(19) for row in rows((0.1, 0.11, 0.12), own=0.1, property_name=f"a={k}")]
    found = opening(lucky + others)
    assert "was not shown to learn what share of the other's records has sex=Male" in found.sentence
    assert found.tiles[-1].value == "0 of 20" and "The property was picked afterwards." in found.selection


def test_manipulation_is_said_and_what_comes_without_it() -> None:
    found = opening(rows((0.001, -0.002, 0.003), attack="provfl_m", variant="LR+MR") + rows(GOOD))
    assert "(C1), if it manipulates the training, learned" in found.sentence
    assert "Without manipulating the training, C1 came to within 2.0 points (95% interval 0.0 to 4.5) by ProVFL-B." in (
        found.verdict
    )
    assert "ProVFL-M, LR+MR, which departs from the protocol" in found.selection
    assert not any("Without manipulating" in line for line in opening(rows(GOOD)).verdict)


def test_what_was_not_shown_to_be_learned_is_listed() -> None:
    found = opening(
        rows((0.01, -0.011, 0.012))
        + rows((0.16, -0.2, 0.3), property_name="race=White")
        + rows((0.16, -0.2, 0.3), property_name="a=b")
        + rows((0.001,), property_name="single=seed")
    )
    assert found.verdict[-2:] == (
        "Of 4 properties, the exchange measurably gave something away on 1.",
        "Nothing was shown to be learned from the exchange on race=White and a=b.",
    )
    assert found.tiles[-1].value == "1 of 4"


def test_without_truth_only_the_estimate_is_told() -> None:
    found = opening(rows((0.01,), true=None, low=0.61, high=0.7))
    assert found.sentence == (
        "The true shares are not part of this run, so how far off the estimates are is unknown. By ProVFL-B, the "
        "company that holds the labels (C1) estimated that 67.0% of the other's records have sex=Male (its own 95% "
        "interval 61.0 to 70.0)."
    )
    assert not found.tiles and not found.verdict


def test_without_results_nothing_is_claimed() -> None:
    assert opening([]).sentence == "No attack has finished yet: this run holds no results."
    for name in ("prior", "aia_raw", "aia_raw_adjusted"):
        assert opening(rows(GOOD, attack=name)).sentence.startswith("Only what reads nothing of the exchange")


def test_redaction_leaves_no_share() -> None:
    open_, closed = opening(rows(GOOD)), opening(rows(GOOD), redact=True)
    for share in ("66.0%", "66.7%", "16.0", "14.0", "481"):
        assert any(share in text for text in (open_.sentence, *open_.verdict))
        assert not any(share in text for text in (closed.sentence, *closed.verdict, *(t.value for t in closed.tiles)))
    assert "to within 2.0 points" in closed.sentence
    assert "66" not in opening(rows(GOOD, true=None), redact=True).sentence
