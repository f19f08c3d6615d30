"""One table with many labels: each column is a task, and one pass over a text serves them all.

    python examples/one_table.py [ENCODER]

Cells may be empty: a task learns from the rows that have its label.
"""

import sys
from pathlib import Path

import bough

TICKETS = """text,topic,stars,tags,hours
The parcel never came.,delivery,1,late|lost,48
It came a day early!,delivery,5,,2
I was charged twice.,payment,1,refund|urgent,6
The invoice has the wrong name.,payment,3,[],24
Where is my parcel?,delivery,2,late,
The card was refused.,payment,2,urgent,3
Thank you for the quick help.,,5,[],1
The box was open when it came.,delivery,2,damaged,72
Please send the money back.,payment,1,refund,12
All fine with the delivery.,delivery,4,[],
"""

for split in ("train", "dev"):  # yours are different rows, so that dev rows can judge
    Path(f"tickets-{split}.csv").write_text(TICKETS, encoding="utf-8")

table = {"text": "text", "train": "tickets-train.csv", "dev": "tickets-dev.csv"}
recipe = {
    "encoder": sys.argv[1] if sys.argv[1:] else "minilm",
    "plan": "full",
    "tasks": {
        "topic": {"kind": "classify", "label": "topic", **table},  # one of several classes
        "stars": {"kind": "ordinal", "label": "stars", **table},  # classes in an order
        "tags": {"kind": "multilabel", "label": "tags", "separator": "|", **table},  # any of them
        "hours": {"kind": "regress", "label": "hours", **table},  # a number
    },
    "training": {"epochs": 3},
}
run = bough.train(recipe, out="runs/one-table")  # says how many cells are empty
answers = bough.load(run).predict("My parcel is late and I want my money back.")
print("topic:", answers["topic"].label)
print("stars:", answers["stars"].label)
print("tags:", answers["tags"].labels)
print("hours:", answers["hours"].value)
