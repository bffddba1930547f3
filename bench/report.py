"""Writes the results of a run: JSON for programs, Markdown for people, one picture."""

from __future__ import annotations

import json
import os
import platform
import textwrap
import time
from pathlib import Path
from typing import Any

from measure import Row, Table, Verdict


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def machine() -> dict[str, Any]:
    memory = next(
        (line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line), "0"
    )
    return {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / (1 << 20), 1),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d"),
    }


def _row_json(row: Row) -> dict[str, Any]:
    described: dict[str, Any] = {"name": row.name, "role": row.role}
    if row.values:
        described.update(
            n=len(row.values), p50=row.p50, p95=row.quantile(0.95), p99=row.quantile(0.99), best=min(row.values)
        )
    if row.skipped:
        described["skipped"] = row.skipped
    if row.failed:
        described["failed"] = row.failed
    return described


def _verdict_json(verdict: Verdict, unit: str) -> dict[str, Any]:
    described: dict[str, Any] = {"bar": verdict.bar.text(unit), "state": verdict.state, "measured": verdict.measured}
    if verdict.why:
        described["why"] = verdict.why
    return described


def to_json(tables: list[Table], quick: bool, before: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": before,
        "quick": quick,
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "unit": table.unit,
                "rows": [_row_json(row) for row in table.rows],
                "bars": [_verdict_json(verdict, table.unit) for verdict in table.judge()],
                "notes": table.notes,
            }
            for table in tables
        ],
    }


def _case(name: str) -> str:
    """The part of a row's name that says which case it is: rows of one case are compared with each other."""
    return name.rsplit(", ", 1)[1] if ", " in name else ""


def _base(table: Table, row: Row, role: str) -> Row | None:
    found = [other for other in table.rows if other.role == role and other.values]
    same = [other for other in found if _case(other.name) == _case(row.name)]
    return (same or found or [None])[0]  # type: ignore[list-item]


def _ratio(row: Row, base: Row | None) -> str:
    return f"{number(row.p50 / base.p50)} ×" if base and base.p50 > 0 and row.values else "–"


def table_markdown(table: Table) -> str:
    lines = [f"### {table.title}", "", f"| {table.unit} | p50 | p95 | p99 | n | of ours | of the limit |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    comparable = table.unit != "as said"
    for row in table.rows:
        name = f"**{row.name}**" if row.role == "ours" else f"*{row.name}* (limit)" if row.role == "limit" else row.name
        if not row.values:
            why = f"skipped: {row.skipped}" if row.skipped else f"failed: {row.failed}"
            lines.append(f"| {name} | {why.replace('|', '/')} | | | | | |")
            continue
        cells = [number(row.p50), number(row.quantile(0.95)), number(row.quantile(0.99)), str(len(row.values))]
        for role in ("ours", "limit"):
            cells.append(_ratio(row, _base(table, row, role)) if comparable else "–")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("")
    for verdict in table.judge():
        measured = "" if verdict.measured is None else f" (measured: {number(verdict.measured)})"
        why = f": {verdict.why}" if verdict.why else ""
        lines.append(f"- {verdict.state}{measured}: {verdict.bar.text(table.unit)}{why}")
    for note in table.notes:
        lines.extend(textwrap.wrap(f"- {note}", 120, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(lines) + "\n"


def to_markdown(tables: list[Table], quick: bool, before: dict[str, Any]) -> str:
    words = ", ".join(f"{key} {value}" for key, value in before.items())
    head = "# Benchmark results\n\nEverybody in turn on one machine, default isolation on. Ratios count; absolute times"
    head += f" are for orientation.\n\nMachine: {words}{', quick run' if quick else ''}.\n"
    return "\n".join([head, *(table_markdown(table) for table in tables)])


def plot(tables: list[Table], path: Path) -> str:
    """Draws the medians, on a logarithmic scale where they lie far apart. Returns why not, or ""."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return "matplotlib is not installed: tools/setup.sh bench"
    drawn = [table for table in tables if table.unit != "as said" and any(row.values for row in table.rows)]
    if not drawn:
        return "nothing was measured"
    heights = [max(2, sum(1 for row in table.rows if row.values)) for table in drawn]
    figure, axes = pyplot.subplots(
        len(drawn), 1, figsize=(9, 0.32 * sum(heights) + 0.9 * len(drawn)), squeeze=False, height_ratios=heights
    )
    colours = {"ours": "#1f9d6b", "peer": "#8a94a6", "limit": "#d9b44a"}
    for axis, table in zip(axes[:, 0], drawn):
        rows = [row for row in table.rows if row.values][::-1]
        bars = axis.barh(
            [row.name for row in rows], [row.p50 for row in rows], color=[colours[row.role] for row in rows]
        )
        axis.bar_label(bars, [f" {number(row.p50)}" for row in rows], fontsize=8)
        medians = [row.p50 for row in rows if row.p50 > 0]
        if medians and max(medians) > 20 * min(medians):
            axis.set_xscale("log")
            axis.set_xlim(left=min(medians) / 2)  # so that the shortest bar is one
        axis.margins(x=0.12)
        axis.tick_params(labelsize=8)
        better = "more is better" if table.higher_is_better else "less is better"
        axis.set_title(f"{table.title.replace('`', '')} ({table.unit}, {better})", fontsize=9, loc="left")
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return ""


def write(tables: list[Table], directory: Path, quick: bool, before: dict[str, Any]) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(to_json(tables, quick, before), indent=1) + "\n")
    (directory / "results.md").write_text(to_markdown(tables, quick, before))
    return plot(tables, directory / "results.png")
