"""The report of vertical runs: what one party can tell of another's records from what they exchange.

`page.vertical_context` turns run folders into what ``templates/vertical.html.j2`` shows;
`lightleak.report.build_report` calls it for folders of that kind.
"""
