"""One answer to each claim over all settings."""

import dataclasses
from typing import Any

from mcclt.experiments.analysis import pooled
from mcclt.experiments.analysis.missing import few_of, whole
from mcclt.experiments.analysis.texts import interval, p_text
from mcclt.experiments.results import Results, variant_label
from mcclt.experiments.tables.form import MISSING, Entry, Row, Table, several


def pooled_table(results: Results) -> Table:
    """One answer to each claim over all settings."""
    title = "All settings together: MC-CLT against each of the others"
    found = {measure: pooled.answers(results, measure) for measure in pooled.MEASURES}
    shown = [answer for answers in found.values() for answer in answers]
    if not shown:
        caption = "There are no two variants to compare yet. This computes them:"
        return Table(title, caption, (), (), (whole(results, "--table", "1"),))
    rows = []
    for measure, answers in found.items():
        if answers:
            rows.append(Row(pooled.MEASURES[measure]))
            rows += [Row(variant_label(answer.b), _pooled_entries(answer)) for answer in answers]
    tasks, settings = (sorted({n(a) for a in shown}) for n in (lambda a: a.mean.tasks, lambda a: len(a.effects)))
    caption = (
        f"{several(settings)} settings of {several(tasks)} tasks; tasks are the unit, since PPO and TRPO on one task "
        "are not independent. Probability of improvement: that a random seed of MC-CLT beats one of the other (95 % "
        "bootstrap interval over tasks, and seeds within them). Difference: Hedges' g, in standard deviations over "
        "seeds, above 0 where MC-CLT is better; random-effects mean over tasks with Hartung and Knapp's 95 % interval. "
        "Over tasks: whether that depends on the task, I² the share of the differences between tasks that is not "
        "noise, p that of Cochran's Q. Better or worse where both intervals say so."
    )
    notes = [
        "To decide it: seeds of each variant on these tasks (unless no number of them would do), or tasks with as many "
        "seeds as now, with which the difference found, were it the true one, would be seen with power 0.8.",
        "Steps are those to the first evaluation that reaches the threshold; agents that never do count with the last.",
        *(
            ["Few tasks: where they differ much, the bootstrap interval is too narrow; the other one holds its level."]
            if tasks[0] < 6
            else []
        ),
        *few_of([f"Left out, {pooled.MEASURES[a.measure]}: {why}" for a in shown for why in a.left_out]),
    ]
    columns = ("P(improvement)", "difference (g)", "over tasks", "answer", "to decide it")
    return Table(title, caption, columns, tuple(rows), tuple(notes), tuple(map(_pooled_record, shown)), len(columns))


def _pooled_entries(answer: pooled.Answer) -> tuple[Entry, ...]:
    mean = answer.mean
    decided = answer.verdict != "undecided"
    differs = "one task" if mean.tasks < 2 else f"I² {mean.i2:.0%}, {p_text(mean.p_q)}"
    needs = [f"{n:,} {what}" for n, what in ((answer.seeds, "seeds"), (answer.tasks, "tasks")) if n is not None]
    return (
        Entry(interval(answer.probability, answer.low, answer.high, ".2f")),
        Entry(interval(mean.mean, mean.low, mean.high, "+z.2f")),
        Entry(differs.replace("%", " %")),
        Entry(answer.verdict, bold=decided),
        Entry(" or ".join(needs)) if needs else Entry(MISSING, missing=True),
    )


def _pooled_record(answer: pooled.Answer) -> dict[str, Any]:
    own = {name: getattr(answer, name) for name in ("measure", "a", "b", "verdict", "probability", "low", "high")}
    effect = {f"effect_{name}": value for name, value in dataclasses.asdict(answer.mean).items()}
    needed = {"seeds_needed": answer.seeds, "tasks_needed": answer.tasks}
    return own | {"settings": len(answer.effects)} | effect | needed
