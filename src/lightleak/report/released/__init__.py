"""The report of audits of released models: what a model gives away of the rows it was trained on.

`page.released_context` turns run folders into what ``templates/released.html.j2`` shows;
`lightleak.report.build_report` calls it for folders of that kind.
"""
