"""Mean, deviation and 95% interval: see `lightleak.core.summary`."""

from lightleak.core.summary import CONFIDENCE as CONFIDENCE
from lightleak.core.summary import FACTS as FACTS
from lightleak.core.summary import Summary as Summary
from lightleak.core.summary import summarize as summarize
from lightleak.core.summary import summarize_by as summarize_by
from lightleak.core.summary import summarize_rows as summarize_rows
