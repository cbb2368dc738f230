"""What the numbers say, in words that follow from the numbers alone."""

from collections.abc import Sequence

from lightleak.report.estimate import Estimate
from lightleak.report.headline import Headline, Tile
from lightleak.report.intervals import difference
from lightleak.report.released.comparison import Scenario, most_telling
from lightleak.report.released.entries import Entry, Memorisation
from lightleak.report.released.group import Group
from lightleak.report.released.memorisation import copied, highest_share, memory_of, share_of
from lightleak.report.released.verdict import Measure, Outcome, gives_away, having, measures_of
from lightleak.report.released.wording import attack_name, group_titles, model_name, scenario_titles
from lightleak.report.wording import percent, with_interval

LIMITS = (
    "It is about classes, not about persons. The made-up rows show what the people of a class have in common; no "
    "person was found, and an attacker cannot see which of the rows happen to be close to a real one.",
    "“Taken for its class” is the judgement of a model that was trained on the same private rows; a second one, which "
    "was trained on private rows that the released model never saw, stands beside it. A row may be taken for its class "
    "and still describe nobody.",
    "The attacker is assumed to hold the released model, as far as is said below, and public rows with the same "
    "columns, from a source as like the private one as here. With other public rows the numbers are others.",
    "It is a lower bound: another attack may get more out of the same model, so a low number is no proof of safety.",
)
PUBLIC_ROWS = "as many public rows that the released model merely sorted into the classes"
OUTCOMES: tuple[tuple[Outcome, str], ...] = (
    ("more", "The made-up rows show more by"),
    ("less", "less by"),
    ("chance", "may differ by chance"),
    ("unknown", "not measured"),
)
"""What the measures say, where not all of them say the same."""

ONE_TRAINING = (
    "There is no interval: these are figures of one training of the models and the generator, and several evaluations "
    "of it would not say how another one comes out."
)


def headline(scenarios: Sequence[Scenario], entries: Sequence[Entry]) -> Headline:
    """Say how often made-up rows are taken for their class, beside public data, real rows and copies."""
    found = most_telling(scenarios)
    if found is None:
        return Headline(_nothing_measured(scenarios), limits=LIMITS if scenarios else ())
    scenario, group = found
    memory = memory_of(group, entries)
    public = [memory_of(baseline, entries) for baseline in scenario.baselines]
    own = () if group.n_seeds > 1 else (ONE_TRAINING,)
    return Headline(
        sentence=_sentence(scenario, group),
        verdict=tuple(
            line
            for line in (
                _together(measures_of(group)),
                *_each(measures_of(group)),
                _beside_best(scenario, group),
                _beside_real(scenario, group),
                _copies(memory, public),
                _exact(scenario, group),
            )
            if line
        ),
        tiles=_tiles(scenario, group, memory),
        selection=_selection(scenarios, scenario, group),
        limits=(*LIMITS[:-1], *own, LIMITS[-1]),
    )


def _nothing_measured(scenarios: Sequence[Scenario]) -> str:
    if not scenarios:
        return "No attack has finished yet: this run holds no results."
    if not any(scenario.attacks for scenario in scenarios):
        return "Only the baselines from public data have been measured: no attack on the model has finished yet."
    return "The made-up rows were not judged by an evaluation model, so how much of the classes they show is unknown."


def _sentence(scenario: Scenario, group: Group) -> str:
    value = group.value()
    assert value is not None  # most_telling keeps only groups with an accuracy
    parts = [
        f"From the released model and public data alone, an attacker made up rows of which {percent(value.mean)}"
        f"{with_interval(value)} are taken, by an evaluation model that was trained on the same private rows, for the "
        "class they were made for."
    ]
    public = _public(scenario)
    if public:
        parts.append(f"Of {_what(public[0])} it is {percent(public[1])}.")
    if scenario.real_rows_accuracy is not None:
        parts.append(f"Of real private rows that no model was trained on it is {percent(scenario.real_rows_accuracy)}.")
    return " ".join(parts)


def _public(scenario: Scenario) -> tuple[Group, float] | None:
    reference = scenario.reference
    value = reference.value() if reference else None
    return (reference, value.mean) if reference and value else None


def _what(baseline: Group) -> str:
    return {
        "public_pseudo_labelled": "public rows that the released model merely sorted into the classes",
        "gan_without_target": "rows made up without the model's loss",
        "plgmi_black_box": "rows made up without asking the model about them",
        "public_random": "public rows drawn at random",
    }[baseline.attack]


def _together(measures: Sequence[Measure]) -> str:
    """The conclusion, which takes every measure; a few of them only describe the rows."""
    if gives_away(measures):
        return (
            "The model gives away what its classes look like: by every measure the made-up rows show more of them "
            f"than {PUBLIC_ROWS}."
        )
    if having(measures, "one training"):
        return (
            f"One training was measured: nothing says whether another would show as much beside {PUBLIC_ROWS}. So "
            "nothing is concluded of what the model gives away."
        )
    if len(having(measures, "unknown")) == len(measures):
        return f"The rows were not compared with {PUBLIC_ROWS}. So nothing is concluded of what the model gives away."
    told = [(words, having(measures, outcome)) for outcome, words in OUTCOMES]
    counted = "; ".join(f"{words}: {', '.join(one.words for one in found)}" for words, found in told if found)
    return (
        f"That the model gives away what its classes look like would take all {len(measures)} measures, each beside "
        f"{PUBLIC_ROWS}. {counted}."
    )


def _each(measures: Sequence[Measure]) -> list[str]:
    """One line for each measure that was taken."""
    return [
        f"{one.title}: {one.shown(one.value)}, public rows {one.shown(one.public)}, difference {one.difference}."
        for one in measures
        if one.gain is not None
    ]


def _beside_best(scenario: Scenario, group: Group) -> str:
    gain, public = scenario.gain(group), _public(scenario)
    if gain is None or public is None:
        return "No baseline from public data was measured beside the attack."
    more, shown = "more", gain
    if gain.mean < 0:
        ends = (None if end is None else -end for end in (gain.high, gain.low))
        more, shown = "less", Estimate(-gain.mean, gain.n, *ends)
    text = (
        f"They are recognised {100 * shown.mean:.1f} points{with_interval(shown, -1)} {more} often than "
        f"{_what(public[0])} ({percent(public[1])}), the best of what was tried with public data"
    )
    if gain.low is None or gain.high is None:
        return f"{text}; of one training nothing says whether this is chance."
    if gain.low > 0 or gain.high < 0:
        return f"{text}."
    return f"{text}; the difference may be chance."


def _beside_real(scenario: Scenario, group: Group) -> str:
    value, real = group.value(), scenario.real_rows_accuracy
    if value is None or real is None:
        return ""
    if (value.low if value.low is not None else value.mean) > real:
        return (
            f"They are recognised more often than real rows are ({percent(real)}): each looks like the typical case of "
            "its class, which most real rows do not. That is a picture of the class, not of a person."
        )
    return (
        f"The evaluation model recognises real private rows in {percent(real)} of cases; no attack has to exceed that."
    )


def _copies(memory: Memorisation | None, public: Sequence[Memorisation | None]) -> str:
    share, verdict = share_of(memory), copied(memory, public)
    if share is None:
        return "Whether single rows the model was trained on come through was not measured."
    told = (
        f"{percent(share.mean)} of the made-up rows{with_interval(share)} lie nearer to a row the model was trained on "
        "than to one it never saw, where chance gives half."
    )
    highest = highest_share(public)
    public_share = "" if highest is None else percent(highest.mean)
    return {
        "unknown": told,
        "too few": f"Too few private rows were held out to say whether single training rows are copied: {told}",
        "none": f"No sign that single training rows are copied: {told}",
        "as public": f"No sign that single training rows are copied: {told} But so do {public_share} of rows from "
        "public data, which cannot be copies.",
        "may be": f"Traces of single training rows may come through: {told}",
        "traces": f"Traces of single training rows come through: {told} Of rows from public data it is {public_share}.",
    }[verdict]


def _exact(scenario: Scenario, group: Group) -> str:
    name = "exact_match_rate"
    found = group.value(name)
    if found is None:
        return ""
    if found.mean == 0:
        return "No made-up row equals a private training row in every column."
    text = f"Of the made-up rows {percent(found.mean)} equal a private training row in every column"
    public_rows = [one for one in scenario.baselines if one.attack.startswith("public")]
    public = [value for one in public_rows if (value := one.value(name)) is not None]
    if not public:
        return f"{text}."
    highest = max(public, key=lambda one: one.mean)
    compared = difference(found, highest)
    so = ""
    if compared and compared.low is not None and compared.low <= 0:
        so = ", so that equal rows alone say nothing about copying"
    return f"{text}; of public rows {percent(highest.mean)} do{so}."


def _tiles(scenario: Scenario, group: Group, memory: Memorisation | None) -> tuple[Tile, ...]:
    value, public = group.value(), _public(scenario)
    assert value is not None
    spread = with_interval(value).strip(" ()") or "one training, no interval"
    tiles = [Tile(percent(value.mean), "of made-up rows taken for their class", f"{_short(scenario, group)}, {spread}")]
    if public:
        name = attack_name(public[0].attack, public[0].label)
        tiles.append(Tile(percent(public[1]), "with public data instead", name))
    if scenario.real_rows_accuracy is not None:
        tiles.append(
            Tile(
                percent(scenario.real_rows_accuracy),
                "of real private rows",
                f"held out from all training, judged by {model_name(scenario.setting.evaluation)}",
            )
        )
    if memory and memory.share is not None:
        tiles.append(Tile(percent(memory.share), "nearer to a training row", "than to a held-out one; half is chance"))
    return tuple(tiles)


def _short(scenario: Scenario, group: Group) -> str:
    return group_titles(scenario)[group]


def _selection(scenarios: Sequence[Scenario], scenario: Scenario, group: Group) -> str:
    seeds, evaluations = group.n_seeds, len(group.evaluations)
    text = f"{_short(scenario, group)}: {evaluations} evaluation{'s' if evaluations != 1 else ''}"
    text += f" of {group.samples:,} rows each" if group.samples and evaluations > 1 else ""
    text += f" of {group.samples:,} rows" if group.samples and evaluations == 1 else ""
    text += f", {seeds} training{'s' if seeds != 1 else ''} of the models and the generator"
    where = scenario_titles(scenarios)[scenario.setting]
    text += f" ({where})." if where else "."
    measured = sum(one.value() is not None for each in scenarios for one in each.attacks)
    if measured > 1:
        text += (
            f" It is the one that most surely exceeds public data among {measured} combinations measured; picked "
            "afterwards, it flatters the attacker a little."
        )
    return text
