"""The report of a defence frontier: what each defence keeps from being read, against what it costs in accuracy.

`page.frontier_context` gives the template all it shows; `comparison` makes points of rows and `pareto` compares them.
"""
