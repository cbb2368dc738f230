"""What travels between the parties in one step, and where a defense may change it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Exchange:
    """One step's intermediate results of every party (ProVFL Algorithm 2, line 11), before the step's update.

    The tensors are the step's own: keeping them needs no copy. Under several ranks they are this rank's rows, and the
    gradients those of the mean over the rows of all ranks.

    Attributes:
        ids: LongTensor ``[batch]`` sample ids.
        outputs: ``[parties, batch, width]`` what the parties sent: outputs of their bottom networks, after a defense.
        computed: ``[parties, batch, width]`` what each party computed, before a defense: known to itself alone.
        gradients: ``[parties, batch, width]`` gradient of the queried loss with respect to `outputs`, as the active
            party computes it, before a defense acts on what it sends back.
    """

    ids: Tensor
    outputs: Tensor
    computed: Tensor
    gradients: Tensor


class Transform:
    """A defense as split training meets it; this one changes nothing.

    A transform draws from generators of its own (`lightleak.core.seeds`), never from the global one, and does not write
    into its arguments, which are recorded. Under several ranks it gets this rank's rows.
    """

    def outputs(self, outputs: Tensor, training: bool) -> Tensor:
        """What the parties send in place of ``outputs`` ``[parties, batch, width]``; must be differentiable."""
        return outputs

    def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
        """What comes back in place of ``gradients`` ``[parties, batch, width]``.

        Args:
            gradients: gradient with respect to what was sent.
            outputs: what was sent.
        """
        return gradients
