"""The embedded default: three small tasks written for bough, and the recipe that trains them."""

from __future__ import annotations

from pathlib import Path

from bough.errors import UserError
from bough.files import write_atomically

# What the demo asks the trained model at the end; none of it is in the data.
SAMPLES: dict[str, list[tuple[str, ...]]] = {
    "sentiment": [
        ("Drop everything and go and see this play, it is magnificent!",),
        ("The sofa is not the prettiest, but nobody ever wants to get up from it.",),
        ("The rooms are lovely; the price is not.",),
        ("The concert begins at eight and there is one interval.",),
        ("I have rarely been so bored, and I have sat through a lot of school concerts.",),
    ],
    "questions": [
        ("How do I get from Rome to Naples by train?", "Which train goes to Naples from Rome?"),
        (
            "How do I get from Rome to Naples by train?",
            "How do I get from Naples to Rome by train?",
        ),
        ("Why do dogs howl at night?", "What makes a dog howl after dark?"),
        ("Why do dogs howl at night?", "Why do wolves howl at night?"),
    ],
    "similarity": [
        ("A man is washing his car in the rain.", "In the rain, a man washes his car."),
        ("A man is washing his car in the rain.", "A man is washing his dog in the rain."),
        ("A man is washing his car in the rain.", "A woman is selling her car."),
        ("A man is washing his car in the rain.", "The orchestra has a new conductor."),
    ],
}


def folder() -> Path:
    """Where the data files are."""
    return Path(__file__).parent / "data"


def recipe() -> Path:
    """The recipe that trains the three tasks."""
    return Path(__file__).parent / "recipe.yaml"


def survey() -> Path:
    """The survey that the demo runs: three plans, two seeds."""
    return Path(__file__).parent / "survey.yaml"


def copy_files(target: Path) -> list[Path]:
    """The tasks' train rows as CSV files to try bough on, one a task; none is overwritten."""
    if not target.is_dir():
        raise UserError(f"{target}: there is no such folder; make it first")
    copies = {
        file: target / file.name.replace("-train", "") for file in folder().glob("*-train.csv")
    }
    for copy in copies.values():
        if copy.exists():
            raise UserError(f"{copy} is there already; choose another folder")
    for file, copy in copies.items():
        write_atomically(copy, file.read_text(encoding="utf-8"))
    return sorted(copies.values())
