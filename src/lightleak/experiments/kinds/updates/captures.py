"""Captured updates, read and checked before they are attacked."""

from pathlib import Path

from lightleak.callbacks.capture_store import load_update
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.experiments.observed import OBSERVATIONS, Observed, version_of
from lightleak.protocols.recorded_aggregate import load_truth
from lightleak.protocols.replay import require_replay


def recall_update(folder: Path) -> ClientUpdate:
    """Return the observation of a capture, read once; errors as for `load_update`."""
    return OBSERVATIONS.get(version_of(folder / "observation"), lambda: (load_update(folder), None))[0]


def load_capture(folder: Path) -> Observed:
    """Observation and, where it is stored with it, the truth of one capture; each is read and checked once.

    Raises:
        ObservationError: a file is missing or damaged, or the recorded rows do not reproduce the captured update:
            against a truth that is not the update's, no score means anything. Only what a defense has changed cannot
            be reproduced; it passes. Or a row lies beyond the bounds that the update states.
    """
    if not (folder / "truth").is_dir():
        return recall_update(folder), None
    return OBSERVATIONS.get(version_of(folder), lambda: _checked(folder, recall_update(folder)))


def _checked(folder: Path, update: ClientUpdate) -> Observed:
    truth = load_truth(folder / "truth")
    if update.state != "noised":
        require_replay(update, truth)
    elif len(truth.inputs) != update.facts.n_rows:
        raise ObservationError(
            f"{folder}: the update speaks of {update.facts.n_rows} rows, the recorded ones are {len(truth.inputs)}"
        )
    if not is_image_state(update.encoder):
        try:  # decoding clamps: a score against a row beyond the bounds would be that of another row
            TableEncoder.of(update).require_within_bounds(truth.inputs)
        except UsageError as error:
            raise ObservationError(f"{folder}: {error}") from error
    return update, truth


def load_own_capture(folder: Path) -> Observed:
    """As `load_capture`, for an audit's own captures: without a truth a row would have no scores, and be kept.

    Raises:
        ObservationError: also where the truth is gone.
    """
    update, truth = load_capture(folder)
    if truth is None:
        raise ObservationError(
            f"{folder} has no truth to score against (a redacted run removes it when all is done): "
            "choose another --output, or attack it with `lightleak attack`"
        )
    return update, truth
