"""The pass that finds the actions of a log in files: the distinct labels of its action column."""

from __future__ import annotations

from typing import Any

from cael.engine.passes import over_tasks
from cael.io import cells
from cael.io.reading import Task, batches


class Distinct:
    """Distinct labels of a column."""

    def __init__(self, labels: set[Any]) -> None:
        self.labels = labels

    def merge(self, other: Distinct) -> Distinct:
        return Distinct(self.labels | other.labels)


def distinct_actions(tasks: tuple[Task, ...], column: str, types: dict[str, Any], workers: int) -> list[Any]:
    """The sorted distinct labels of a column: whole numbers if all are, else text."""
    labels = over_tasks(distinct_of, (column, types), tasks, workers).labels
    if len({type(label) for label in labels}) > 1:
        labels = {str(label) for label in labels}
    return sorted(labels)


def distinct_of(work: tuple[str, dict[str, Any]], task: Task) -> Distinct:
    import pyarrow.compute as pc
    import pyarrow.types as t

    column, types = work
    distinct: set[Any] = set()
    for batch in batches(task, [column], 2**17, types):
        chunk = cells.plain(batch.column(0))
        distinct.update(cells.labels(column, [chunk if t.is_nested(chunk.type) else pc.unique(chunk)])[1])
    return Distinct(distinct)
