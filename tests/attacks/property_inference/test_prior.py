import torch

from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
from lightleak.attacks.property_inference.prior import PriorGuess
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts


def test_the_prior_reads_the_auxiliary_rows_alone():
    facts = VerticalFacts(2, 0, 1, ("age",), ("sex",), epoch=0, batch_size=2, n_classes=2)
    known = AuxiliaryData("sex=Male", torch.tensor([0, 1, 2, 3]), torch.tensor([True, False, False, False]), ("age",))
    guess = PROPERTY_ATTACKS.get("prior")()
    assert isinstance(guess, PriorGuess)
    for scale in (1.0, 50.0):
        seen = IntermediateResults("C2", torch.arange(4), {"AO": scale * torch.randn(4, 2)}, known, facts)
        estimate = guess.run(seen)
        assert (estimate.fraction, estimate.low, estimate.high, estimate.prior) == (0.25, 0, 1, 0.25)
        assert not estimate.reads_records
    assert guess.options() == {}
