"""Check that the files of the public tables are here, with the known checksums."""

from pathlib import Path

from lightleak.core.shell import shell_word
from lightleak.data.datasets import DATASETS, Dataset
from lightleak.data.sources import DATA_DIR_VARIABLE, data_root, sha256_of
from lightleak.doctor.finding import Check, Facts, Finding

TOPIC = "data"


def check(facts: Facts) -> list[Finding]:
    """Check the folder of tables, and every dataset whose files have to be fetched."""
    root = data_root(facts.data)
    asked = facts.data is not None or bool(facts.variables.get(DATA_DIR_VARIABLE))
    findings = [data_folder_is_there(root, asked)]
    entries = [DATASETS.get(name) for name in DATASETS]
    with_files = [entry for entry in entries if entry.card.files]
    into = "" if facts.data is None else f" --data {shell_word(facts.data)}"
    findings += [table(entry, root / entry.card.name, into) for entry in with_files]
    without = [entry.card.name for entry in entries if not entry.card.files]
    findings.append(Check(TOPIC, "no files needed").ok(", ".join(without)))
    return findings


def data_folder_is_there(root: Path, asked: bool) -> Finding:
    """Check that the folder of tables exists; the default folder need not."""
    check = Check(TOPIC, "folder")
    if root.is_dir():
        return check.ok(str(root))
    if asked:
        fix = f"create it, or name the folder that holds adult/, german/, ... by --data or {DATA_DIR_VARIABLE}"
        return check.problem(f"{root} is no folder", fix)
    fix = f"export {DATA_DIR_VARIABLE} as the folder of your tables, on a cluster one that all nodes see"
    return check.note(f"{root} does not exist yet", fix)


def table(entry: Dataset, folder: Path, into: str = "") -> Finding:
    """Check that the files of a dataset are in its folder, readable and with the known checksums.

    Args:
        entry: the dataset.
        folder: its own folder.
        into: the flag that makes ``lightleak data prepare`` fetch into the folder that is examined.
    """
    card, here = entry.card, []
    check = Check(TOPIC, card.name)
    prepare = f"lightleak data prepare {card.name}{into}"
    for file in card.files:
        path = folder / file
        if not path.is_file():
            continue
        try:
            got = sha256_of(path)
        except OSError as error:
            fix = f"chmod u+r {shell_word(path)}, or ask its owner"
            return check.problem(f"{path} cannot be read: {error.strerror}", fix)
        if (expected := card.sha256.get(file)) not in (None, got):
            found = f"{path} is another file: SHA-256 {got[:12]}..., expected {str(expected)[:12]}..."
            again = f"{prepare} --force" if entry.downloads else f"get it from {card.urls[0]}"
            return check.problem(found, again)
        here.append(file)
    if len(here) < len(card.files):
        absent = [file for file in card.files if file not in here]
        found = f"{len(here)} of {len(card.files)} files here, no {', '.join(absent[:2])}"
        by_hand = f"get {'them' if len(absent) > 1 else 'it'} from {card.urls[0]} into {folder} ({card.license})"
        return check.note(found, prepare if entry.downloads else by_hand)
    known = sum(file in card.sha256 for file in here)
    return check.ok(f"{len(here)} files here, " + (f"{known} checksums right" if known else "no checksum known"))
