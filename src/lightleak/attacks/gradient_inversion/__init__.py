"""Gradient inversion: reconstruct a batch from the gradient or the weight update it produced.

From the lowest package to the highest, each importing only from those before it:

* `network`: the client's network, its gradient as a sum over rows, checks of an update against it
* `tables`: encoded rows as cells of a table, priors of rows, what the first layer's gradient says of the columns
* `optimize`: candidates optimized until their gradient matches; the published attacks on FedSGD gradients
* `exact`: rows tested one by one against the spaces that a gradient spans, with certificates
* `joint`: all rows of a batch optimized together, beyond the limit of `exact`
* `fedavg`: weight updates of several local steps, by simulation or exactly
* `compose`: several attacks in sequence on one update, the best result chosen without the truth
* `declarations`: the attacks by name, with defaults and documented facts
"""
