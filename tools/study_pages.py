"""What the studies' pages say, and the scores that it stands on.

    python -m tools.study_pages record SURVEY [--name NAME] [--baseline CELL] [--tasks A,B]
    python -m tools.study_pages write

`record` reads a finished survey's directory and writes `docs/studies/NAME.json`: every run's scores
and seeds, the intervals and corrected tests of `bough compare`, and what the runs cost. `write`
makes the tables of the pages anew, each between `<!-- NAME: PART -->` and `<!-- end -->`; PART is
`scores`, `differences`, `costs`, `verdict` or `effort`. A study whose runs have different tasks has
several records, STUDY.WHAT each. What others printed of a cell stands in
`docs/studies/printed.yaml`. A test holds the pages to the records.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bough.comparison.compare import Comparison, compare
from bough.comparison.groups import Variant
from bough.comparison.verdict import verdict
from bough.errors import UserError
from bough.files import write_atomically
from bough.formatting import chance, number, seconds, size
from bough.survey.survey_dir import SurveyDir

PAGES = Path(__file__).parent.parent / "docs" / "studies"
BLOCK = re.compile(r"(<!-- ([\w.]+): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
COSTS = {
    "bytes_to_serve": ("to serve", size),
    "bytes_with_optimiser": ("with optimiser", size),
    "step_seconds": ("a step", seconds),
    "training_seconds": ("a run", seconds),
}

Record = dict[str, Any]


# --- from a survey to its record ------------------------------------------------------------------


def record(folder: Path, baseline: str | None = None, tasks: Sequence[str] | None = None) -> Record:
    """All that a page may say of a survey whose runs are done."""
    place = SurveyDir(folder)
    survey = place.survey
    if survey is None:
        raise UserError(f"{folder}: there is no survey.yaml; expected the directory of a survey")
    names = [f"{cell}-s{seed}" for cell in survey.cells for seed in survey.seeds]
    missing = [name for name in names if place.state(name) != "done"]
    if missing:
        raise UserError(
            f"{folder}: {len(missing)} of {len(names)} runs are not done, {missing[0]} the first; "
            f"go on with: bough survey {folder}"
        )
    found = compare(folder, baseline=baseline, tasks=tasks)
    return {
        "asks": " ".join(survey.asks.split()),
        "budget": survey.budget,
        "split": found.split,
        "metrics": found.metrics,
        "rows": found.rows,
        "baseline": found.baseline.label,
        "variants": [_variant(found, variant) for variant in found.variants],
        "verdict": [line.replace(f"{folder}/runs/", "") for line in verdict(found).lines()],
    }


def _variant(found: Comparison, variant: Variant) -> dict[str, Any]:
    scores, differences = {}, {}
    for column in found.columns():
        score = found.scores[variant.label].get(column)
        if score is None:
            continue
        scores[column] = _rounded(
            {"value": score.value, "interval": score.interval, "runs": score.runs}
        )
        if score.difference is not None:
            apart = score.difference
            differences[column] = _rounded(
                {"value": apart.value, "half": apart.half, "p": apart.holm, "seeds": apart.seeds}
            )
    return {
        "label": variant.label,
        "seeds": list(variant.seeds),
        "steps": variant.steps,
        "scores": scores,
        "differences": differences,
        "cost": _rounded({key: variant.cost[key] for key in COSTS if key in variant.cost}),
    }


def _rounded(value: Any) -> Any:
    """To six digits, more than a page shows."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, tuple | list) else value


# --- from a record to its page --------------------------------------------------------------------


def scores(record: Record, printed: Mapping[str, str]) -> str:
    columns = _columns(record)
    metrics = record["metrics"]
    head = [f"{name} ({metrics[name]})" if name in metrics else name for name in columns]
    body = []
    for variant in record["variants"]:
        cells = [_score(variant["scores"].get(name)) for name in columns]
        row = [f"`{variant['label']}`", str(len(variant["seeds"])), *cells]
        body.append([*row, printed.get(variant["label"], "")] if printed else row)
    return _table(["", "seeds", *head, *["printed"] * bool(printed)], body)


def _score(score: dict[str, Any] | None) -> str:
    if score is None:
        return ""
    low, high = map(number, score["interval"])
    return f"{number(score['value'])} ({low} to {high})"


def differences(record: Record, printed: Mapping[str, str]) -> str:
    body = [
        [f"`{v['label']}`", *(_difference(v["differences"].get(c)) for c in _columns(record))]
        for v in record["variants"]
        if v["label"] != record["baseline"]
    ]
    return _table([f"against `{record['baseline']}`", *_columns(record)], body)


def _difference(apart: dict[str, Any] | None) -> str:
    if apart is None:
        return ""
    p = f", p {chance(apart['p'], apart['seeds'])}" if apart["p"] is not None else ""
    star = "\\*" if apart["p"] is not None and apart["p"] < 0.05 else ""
    return f"{number(apart['value'], signed=True)} ± {number(apart['half'])}{p}{star}"


def costs(record: Record, printed: Mapping[str, str]) -> str:
    there = [key for key in COSTS if any(key in v["cost"] for v in record["variants"])]
    body = [
        [f"`{v['label']}`", *(COSTS[key][1](v["cost"][key]) for key in there)]
        for v in record["variants"]
    ]
    return _table(["", *(COSTS[key][0] for key in there)], body)


def say_verdict(record: Record, printed: Mapping[str, str]) -> str:
    return "\n".join(f"> {line}" + "  " * bool(line) for line in record["verdict"]) + "\n"


def effort(record: Record, printed: Mapping[str, str]) -> str:
    many = sum(len(v["seeds"]) for v in record["variants"])
    return f"{many} runs at the budget `{record['budget']}`: {number(hours(record), 1)} hours.\n"


def hours(record: Record) -> float:
    """Of training, by the runs' own clocks; evaluations are not in it."""
    took: float = sum(len(v["seeds"]) * v["cost"]["training_seconds"] for v in record["variants"])
    return took / 3600


PARTS: dict[str, Callable[[Record, Mapping[str, str]], str]] = {
    "scores": scores,
    "differences": differences,
    "costs": costs,
    "verdict": say_verdict,
    "effort": effort,
}


def _columns(record: Record) -> list[str]:
    return list(dict.fromkeys(name for v in record["variants"] for name in v["scores"]))


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def records() -> dict[str, Record]:
    return {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(PAGES.glob("*.json"))}


def rebuilt(page: str, known: Mapping[str, Record], printed: Mapping[str, Any]) -> str:
    """A page with all its blocks made anew."""

    def block(match: re.Match[str]) -> str:
        begin, name, part, end = match.groups()
        if name not in known or part not in PARTS:
            raise UserError(f"{begin.strip()}: expected one of {[*known]} and one of {[*PARTS]}")
        return f"{begin}\n{PARTS[part](known[name], printed.get(name) or {})}\n{end}"

    return BLOCK.sub(block, page)


def printed_scores() -> dict[str, Any]:
    file = PAGES / "printed.yaml"
    return (yaml.safe_load(file.read_text("utf-8")) if file.is_file() else None) or {}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="write a finished survey's record")
    recording.add_argument("survey", type=Path)
    recording.add_argument("--name", help="of the study; else the directory's, without its budget")
    recording.add_argument("--baseline")
    recording.add_argument("--tasks", type=lambda text: text.split(","))
    verbs.add_parser("write", help="make the pages' tables anew")
    asked = parser.parse_args()
    try:
        if asked.verb == "record":
            made = record(asked.survey, asked.baseline, asked.tasks)
            name = asked.name or asked.survey.resolve().name.removesuffix(f"-{made['budget']}")
            text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
            write_atomically(PAGES / f"{name}.json", text)
        known, printed = records(), printed_scores()
        for page in sorted(PAGES.glob("*.md")):
            text = page.read_text("utf-8")
            if (anew := rebuilt(text, known, printed)) != text:
                write_atomically(page, anew)
                print(f"{page}: written anew")
    except UserError as error:
        sys.exit(f"study_pages: {error}")


if __name__ == "__main__":
    main()
