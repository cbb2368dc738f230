"""Released models that were kept before, with or without the truth."""

from pathlib import Path

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.released_model import ReleasedModel
from lightleak.data.encoder import TableEncoder
from lightleak.experiments.kinds.released.judge import Judge
from lightleak.targets import NetworkSpec


def load_capture(folder: Path) -> tuple[ReleasedModel, Judge | None]:
    """Return the observation of one capture, and its truth where that is stored with it.

    Raises:
        ObservationError: a file is missing or damaged, or network, columns and public rows do not fit each other.
    """
    seen = ReleasedModel.load(folder / "observation")
    try:
        spec, encoder = NetworkSpec.from_dict(seen.network), TableEncoder.of(seen)
        if spec.layout != encoder.layout:
            raise ObservationError("the columns of the network (layout) are not those of the encoder (schema)")
        encoder.schema.validate(seen.public, require_label=False)
    except UsageError as error:
        raise ObservationError(f"{folder / 'observation'}: {error}") from error
    return seen, Judge.load(folder / "truth") if (folder / "truth").is_dir() else None
