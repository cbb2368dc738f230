"""Defences, their guarantee and the threat model of a frontier in words for a reader without training in the field."""

import math
from collections.abc import Sequence

from lightleak.report.change.plain import KNOWLEDGE, message
from lightleak.report.frontier.comparison import Frontier
from lightleak.report.frontier.result import Strength
from lightleak.report.frontier.wording import short_name
from lightleak.report.kinds.updates_groups import BASELINE
from lightleak.report.plain import NO_PROOF, THIS_ALONE
from lightleak.report.result import Setting

DOES = {
    "gaussian_noise": "random noise is added to every number of the message",
    "laplacian_noise": "random noise, now and then strong, is added to every number of the message",
    "random_pruning": "numbers of the message are left out at random",
    "clipping": "a large message is scaled down as a whole",
    "sign": "of every number of the message only the sign is sent, plus or minus",
    "quantization": "every number of the message is rounded coarsely",
    "gradient_compression": "only the largest numbers of the message are sent",
    "dp_sgd": "what a single record can add to a message is limited, and hidden by random noise",
}
"""What a defence does, by its name."""

HOW_MUCH = {
    ("gaussian_noise", "scale"): "of size {value:g}",
    ("laplacian_noise", "scale"): "of size {value:g}",
    ("random_pruning", "probability"): "{hundredths:g} in 100",
    ("clipping", "max_norm"): "to size {value:g}",
    ("quantization", "bits"): "to {value:g} binary digits",
    ("gradient_compression", "keep"): "{hundredths:g} in 100",
    ("dp_sgd", "noise_multiplier"): "{value:g} times as large as the limit",
}
"""What its strength means, by the setting that is varied; it ends the sentence of `DOES`."""

TERMS = (
    "A “message” is what a participant sends instead of its records. A “value” is one entry of one record, such as an "
    "age; it is read when it comes out right, or, of a number, close. “Seeing nothing” is to fill in values as often "
    "as other people have them, without a message; some are right by luck."
)
LIMITS = (
    "The attacks do not allow for the defence: an attacker who knows it may read more.",
    "Each participant sent one message. Whoever collects many of one participant can average noise away.",
    "Every defence trained with the same settings; others may make it cheaper.",
    "Values are counted one by one. How many records are read whole, and whether one points to a person, is not said.",
    NO_PROOF,
    THIS_ALONE,
)
NEARLY = 0.9995
"""From this share on, one decimal would print that a guess is always right."""


def defense_words(strength: Strength) -> str:
    """The defence by name, and what it does where that is known.

    >>> defense_words(Strength("sign", "sign"))
    'Sign (of every number of the message only the sign is sent, plus or minus)'
    >>> defense_words(Strength("mine", "my_own", 2.0, "power"))
    'Mine 2'
    """
    words = does(strength)
    return f"{short_name(strength)} ({words})" if words else short_name(strength)


def does(strength: Strength) -> str:
    """What a defence does; empty where that is not known.

    >>> does(Strength("g", "gradient_compression", 0.01, "keep"))
    'only the largest numbers of the message are sent, 1 in 100'
    """
    words, how = DOES.get(strength.defense, ""), HOW_MUCH.get((strength.defense, strength.option or ""))
    if not how or strength.value is None:
        return words
    return f"{words}, {how.format(value=strength.value, hundredths=100 * strength.value)}"


def most_often_right(epsilon: float, delta: float | None) -> float:
    """How often a guess whether a record was used is right at most, where both are as likely beforehand.

    Differential privacy bounds the sum of the two rates at which any test is right (Kairouz, Oh and Viswanath 2015,
    Theorem 2.1): (e^epsilon + delta) / (e^epsilon + 1) on average.

    >>> most_often_right(0.0, 0.0), round(most_often_right(1.0, 1e-5), 3)
    (0.5, 0.731)
    """
    odds = math.exp(-max(epsilon, 0.0))
    return min((1 + (delta or 0.0) * odds) / (1 + odds), 1.0)


def often(share: float) -> str:
    """A share of guesses, in a sentence.

    >>> often(0.767), often(0.99987)
    ('76.7 times in 100', 'nearly always, hardly a limit')
    """
    return "nearly always, hardly a limit" if share >= NEARLY else f"{100 * share:.1f} times in 100"


def of_epsilon(delta: float | None) -> str:
    """What a guarantee counts on.

    >>> of_epsilon(1e-5).partition(",")[0]
    'The guarantee may fail with a chance of 1 in 100'
    """
    chance = f"may fail with a chance of 1 in {1 / delta:,.0f}, and " if delta and 0 < delta < 1 else ""
    return (
        f"The guarantee {chance}counts on nobody knowing which records a message was made from. A server that knows "
        "is bound by the epsilon of one message, the second in the table."
    )


def attacker(frontier: Frontier) -> tuple[tuple[str, str], ...]:
    """Questions and answers that make up the threat model, without jargon."""
    return (
        (
            "Who is the attacker?",
            "Whoever runs the server that collects the messages, or can read what it receives. The attacker follows "
            "the agreed procedure and only looks closely at what arrives.",
        ),
        ("What do they see?", message(Setting("", protocol=frontier.setting.protocol))),
        ("What else do they know?", f"{'; '.join(('The model and its settings', *_knows(frontier)))}."),
        (
            "What do they not have?",
            "Any of the participant's records, access to its computers, or the help of someone who works there.",
        ),
        ("When did we look?", "At messages sent before the training, when most can be read from one."),
    )


def _knows(frontier: Frontier) -> Sequence[str]:
    """What the attacks assume, each fact once."""
    told = {
        one.threat_model
        for point in frontier.points
        for one in point.results
        if one.threat_model and one.attack != BASELINE
    }
    return [words for phrase, words in KNOWLEDGE.items() if any(phrase in sentence for sentence in told)]
