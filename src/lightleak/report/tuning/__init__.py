"""The report of a tuning study: what was searched, what was best, and whether held-out data bear it out.

`page.tuning_context` gives the template all it shows; `study` says which trials count; a chart is a file.
"""
