"""Attack accuracy against plain counting, its intervals against statsmodels, and its sum over ranks."""

import copy

import pytest
import torch
from statsmodels.stats.proportion import proportion_confint

from lightleak.core.errors import UsageError
from lightleak.core.summary import wilson
from lightleak.metrics.inversion.attack_accuracy import AttackAccuracy, wilson_interval

Z95_EXACT_TO = 2e-5  # 1.96 against scipy's 1.959964 moves an end of the interval by less than this


def batches(n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Logits that are right more often for some classes; class 3 has no row."""
    made = []
    for i in range(n):
        generator = torch.Generator().manual_seed(i)
        labels = torch.randint(0, 3, (20 + 7 * i,), generator=generator)
        logits = torch.randn(len(labels), 4, generator=generator)
        logits[torch.arange(len(labels)), labels] += labels
        made.append((logits, labels))
    return made


def test_counts_are_those_of_a_loop():
    seen = batches(5)
    accuracy = AttackAccuracy(4)
    for logits, labels in seen:
        accuracy.update(logits, labels)
    pairs = [(int(row.argmax()), int(c)) for logits, labels in seen for row, c in zip(logits, labels, strict=True)]
    by_class = [[guess == c for guess, c in pairs if c == k] for k in range(3)]
    shares = [sum(hits) / len(hits) for hits in by_class]
    found = accuracy.compute()
    assert found["per_class"][:3].tolist() == pytest.approx(shares)
    assert found["mean"].item() == pytest.approx(sum(shares) / 3)  # class 3 has no rows and does not count
    assert found["pooled"].item() == pytest.approx(sum(guess == c for guess, c in pairs) / len(pairs))
    assert found["pooled"].item() != pytest.approx(found["mean"].item(), abs=1e-6)
    assert found["n"].item() == len(pairs)
    assert all(bool(found[f"per_class{end}"][3].isnan()) for end in ("", "_low", "_high"))
    for hits, low, high in zip(by_class, found["per_class_low"], found["per_class_high"], strict=False):
        expected = proportion_confint(sum(hits), len(hits), method="wilson")
        assert (low.item(), high.item()) == pytest.approx(expected, abs=Z95_EXACT_TO)


def test_classes_may_come_in_place_of_logits():
    logits, labels = batches(1)[0]
    by_logits, by_class = AttackAccuracy(4), AttackAccuracy(4)
    by_logits.update(logits, labels)
    by_class.update(logits.argmax(-1), labels)
    assert torch.equal(by_logits.right, by_class.right)


@pytest.mark.parametrize(("right", "n"), [(0, 1), (0, 30), (7, 30), (30, 30), (421, 1000)])
def test_the_interval_is_wilsons(right: int, n: int):
    low, high = wilson_interval(torch.tensor(right), torch.tensor(n))
    expected = proportion_confint(right, n, method="wilson")
    assert (low.item(), high.item()) == pytest.approx(expected, abs=Z95_EXACT_TO)
    if 0 < right < n:
        assert (low.item(), high.item()) == pytest.approx(wilson(right / n, n), abs=1e-12)


def test_the_interval_stays_within_0_and_1():
    n = torch.arange(1, 500)
    assert wilson_interval(0 * n, n)[0].min() >= 0
    assert wilson_interval(n, n)[1].max() <= 1


def test_two_ranks_agree_with_one_process():
    seen = batches(5)
    ranks: list[AttackAccuracy] = []

    def gather(state: torch.Tensor, group: object) -> list[torch.Tensor]:
        """What all ranks hold of the state that rank 0 is about to reduce."""
        name = next(name for name in ("right", "total") if getattr(ranks[0], name) is state)
        return [getattr(rank, name) for rank in ranks]

    for share in (seen[:4], seen[4:]):
        ranks.append(AttackAccuracy(4, dist_sync_fn=gather, distributed_available_fn=lambda: True))
        for logits, labels in share:
            ranks[-1].update(logits, labels)
    alone = AttackAccuracy(4)
    for logits, labels in seen:
        alone.update(logits, labels)
    found, expected = ranks[0].compute(), alone.compute()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name].nan_to_num(-1), value.nan_to_num(-1)), name
    assert int(ranks[0].total.sum()) < int(alone.total.sum())  # each rank keeps its own counts


def test_forward_and_reset_keep_to_themselves():
    seen = batches(2)
    accuracy = AttackAccuracy(4)
    of_first = copy.deepcopy(accuracy(*seen[0]))
    accuracy(*seen[1])
    alone = AttackAccuracy(4)
    alone.update(*seen[0])
    assert of_first["pooled"] == alone.compute()["pooled"]
    accuracy.reset()
    assert int(accuracy.total.sum()) == 0


def test_wrong_input_is_refused():
    accuracy = AttackAccuracy(3)
    labels = torch.tensor([0, 1])
    with pytest.raises(UsageError, match="logits must have shape"):
        accuracy.update(torch.zeros(2, 4), labels)
    with pytest.raises(UsageError, match="NaN"):
        accuracy.update(torch.full((2, 3), torch.nan), labels)
    with pytest.raises(UsageError, match="one per row"):
        accuracy.update(torch.zeros(3, 3), labels)
    with pytest.raises(UsageError, match=r"0\.\.2"):
        accuracy.update(torch.tensor([0, 3]), labels)
    with pytest.raises(UsageError, match="at least 2"):
        AttackAccuracy(1)
