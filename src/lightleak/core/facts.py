"""What a reader must know about an attack, a defense or a metric that its code does not show."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """Facts about a registered name, for the card that `lightleak explain` prints.

    Attributes:
        summary: one line; empty where the docstring of the entry begins with one.
        sees: the threat model in words; empty where the entry declares its own or its kind has one for all.
        needs: assumptions and requirements, one sentence each; empty where the docstring of the entry, or of the attack
            that it makes, has a section ``Needs``.
        deviates: what is done otherwise than in the paper and why, one sentence each; options that undo it are named.
            Empty where that docstring has a section ``Deviates``.
        citation: the paper, where the entry has no attribute ``citation``.
        settings: where its settings are declared, in the order of the card: a dataclass or an instance of one, a
            callable whose arguments they are, or a pair of a setting's name and the dataclass that is given under it.
            Empty where a made entry has a dataclass ``config``, or is one itself.
    """

    summary: str = ""
    sees: str = ""
    needs: tuple[str, ...] = ()
    deviates: tuple[str, ...] = ()
    citation: str = ""
    settings: tuple[object, ...] = ()
