"""Are the files of the public tables here, and are they the right ones?"""

from pathlib import Path

from lightleak.data.datasets import DATASETS, Dataset
from lightleak.data.sources import DATA_DIR_VARIABLE, data_root, sha256_of
from lightleak.doctor.finding import Facts, Finding, State

TOPIC = "data"


def check(facts: Facts) -> list[Finding]:
    """The folder of tables, and every dataset whose files have to be fetched."""
    root = data_root(facts.data)
    asked = facts.data is not None or bool(facts.variables.get(DATA_DIR_VARIABLE))
    findings = [data_folder_is_there(root, asked)]
    entries = [DATASETS.get(name) for name in DATASETS]
    with_files = [entry for entry in entries if entry.card.files]
    into = "" if facts.data is None else f" --data {facts.data}"
    findings += [table(entry, root / entry.card.name, into) for entry in with_files]
    without = [entry.card.name for entry in entries if not entry.card.files]
    findings.append(Finding(TOPIC, "no files needed", State.OK, ", ".join(without)))
    return findings


def data_folder_is_there(root: Path, asked: bool) -> Finding:
    """Whether the folder of tables exists; one that nobody named need not."""
    if root.is_dir():
        return Finding(TOPIC, "folder", State.OK, str(root))
    if asked:
        mend = f"make it, or let --data or {DATA_DIR_VARIABLE} name the folder that holds adult/, german/, ..."
        return Finding(TOPIC, "folder", State.PROBLEM, f"{root} is no folder", mend)
    mend = f"export {DATA_DIR_VARIABLE} as the folder of your tables, on a cluster one that all nodes see"
    return Finding(TOPIC, "folder", State.NOTE, f"{root} is not there yet", mend)


def table(entry: Dataset, folder: Path, into: str = "") -> Finding:
    """Whether the files of a dataset are in its folder, readable and with the known checksums.

    Args:
        entry: the dataset.
        folder: its own folder.
        into: the flag that makes ``lightleak data prepare`` fetch into the folder that is examined.
    """
    card, here = entry.card, []
    prepare = f"lightleak data prepare {card.name}{into}"
    for file in card.files:
        path = folder / file
        if not path.is_file():
            continue
        try:
            got = sha256_of(path)
        except OSError as error:
            found = f"{path} cannot be read: {error.strerror}"
            return Finding(TOPIC, card.name, State.PROBLEM, found, f"chmod u+r {path}, or ask its owner")
        if (expected := card.sha256.get(file)) not in (None, got):
            found = f"{path} is another file: SHA-256 {got[:12]}..., expected {str(expected)[:12]}..."
            again = f"{prepare} --force" if entry.downloads else f"get it from {card.urls[0]}"
            return Finding(TOPIC, card.name, State.PROBLEM, found, again)
        here.append(file)
    if len(here) < len(card.files):
        absent = [file for file in card.files if file not in here]
        found = f"{len(here)} of {len(card.files)} files here, no {', '.join(absent[:2])}"
        by_hand = f"get {'them' if len(absent) > 1 else 'it'} from {card.urls[0]} into {folder} ({card.license})"
        mend = prepare if entry.downloads else by_hand
        return Finding(TOPIC, card.name, State.NOTE, found, mend)
    known = sum(file in card.sha256 for file in here)
    found = f"{len(here)} files here, " + (f"{known} checksums right" if known else "no checksum known")
    return Finding(TOPIC, card.name, State.OK, found)
