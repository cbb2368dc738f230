"""Exact inversion: rows of a table tested against the spaces that a ReLU network's gradient spans.

In the order of the steps, each package importing only from those before it:

1. `spaces`: row and column space of each layer's gradient
2. `row_tests`: whether a row lies in these spaces, and with which label
3. `search`: candidates that pass the tests
4. `enumerate`: categories that satisfy the equations, where a search is not needed
5. `peel`: found rows subtracted, their numbers fitted
6. `repair`: rows that no single test finds, explained together or guessed
7. `certify`: which of the rows are proven

`rounds` repeats the steps until nothing is left; `attack` is the attack around it.
"""
