"""Tables of a store, ours beside the paper's, as Markdown, LaTeX and CSV; the report shows them.

Two errors are told apart everywhere: ours is over seeds, and the paper's is pooled over episodes, which is not an
error of the algorithm (see `stats.pooled_se`). The CSV has both for our results.
"""

from collections.abc import Callable

from mcclt.experiments.results import Results
from mcclt.experiments.tables.cost import table2
from mcclt.experiments.tables.form import Entry, Row, Table
from mcclt.experiments.tables.returns import table1, table3
from mcclt.experiments.tables.together import pooled_table

__all__ = ["TABLES", "Entry", "Row", "Table", "pooled_table", "table1", "table2", "table3"]

TABLES: dict[str, Callable[[Results], Table]] = {"pooled": pooled_table, "1": table1, "2": table2, "3": table3}
