"""Two tasks from two CSV files of your own: trained together, asked, judged.

    python examples/two_tasks.py [ENCODER]

The files here have a few rows, to show their form; yours should have hundreds.
"""

import sys
from pathlib import Path

import bough

MOOD = """text,label
I love this little lamp.,good
It broke on the first day.,bad
Better than I had hoped.,good
Never again.,bad
My mother is delighted with it.,good
The colour came off at once.,bad
Works as it should and looks fine.,good
I sent it back.,bad
"""
SAME = """question1,question2,label
How old is he?,What is his age?,same
How old is he?,Where does he live?,different
Where is the station?,How do I get to the station?,same
Where is the station?,When does the train leave?,different
How much is it?,What does it cost?,same
How much is it?,How heavy is it?,different
Who wrote this?,Who is the author?,same
Who wrote this?,Who reads this?,different
"""

for name, rows in {"mood": MOOD, "same": SAME}.items():
    for split in ("train", "dev"):  # yours are different rows, so that dev rows can judge
        Path(f"{name}-{split}.csv").write_text(rows, encoding="utf-8")

recipe = {
    "encoder": sys.argv[1] if sys.argv[1:] else "minilm",
    "plan": "full",  # one encoder for both; try split@3
    "tasks": {
        "mood": {
            "kind": "classify",
            "text": "text",
            "train": "mood-train.csv",
            "dev": "mood-dev.csv",
        },
        "same": {
            "kind": "classify",
            "text": ["question1", "question2"],
            "train": "same-train.csv",
            "dev": "same-dev.csv",
        },
    },
    "training": {"epochs": 3},
}
run = bough.train(recipe, out="runs/two-tasks")
model = bough.load(run)
print("mood:", model.predict("It is lovely.")["mood"].label)
print("same:", model.predict(("What does it cost?", "How much is it?"))["same"].label)
for task, scores in run.scores["dev"]["tasks"].items():
    print(f"{task}: {scores['metric']} {scores[scores['metric']]:.2f} on {scores['rows']} dev rows")
