"""The attacks of this family by name; importing this package registers them."""

from lightleak.attacks.gradient_inversion.declarations import exact, fedavg, gradients  # noqa: F401
