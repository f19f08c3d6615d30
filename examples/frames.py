"""A pandas frame in, answers as a frame out.

python examples/frames.py [ENCODER]
"""

import sys

import pandas as pd

import bough

rows = pd.DataFrame(
    {
        "text": ["A fine film.", "Two hours I will not get back.", "I laughed a lot.", "Dull."] * 4,
        "mood": ["good", "bad", "good", "bad"] * 4,
        "minutes": [95, 120, 88, 131] * 4,
    }
)
table = {"text": "text", "train": rows, "dev": rows}  # dev rows should be others than train rows
recipe = {
    "encoder": sys.argv[1] if sys.argv[1:] else "minilm",
    "tasks": {
        "mood": {"kind": "classify", "label": "mood", **table},
        "minutes": {"kind": "regress", "label": "minutes", **table},
    },
    "training": {"epochs": 3},
}
model = bough.load(bough.train(recipe, out="runs/frames"))
asked = pd.DataFrame({"text": ["Not bad at all.", "I fell asleep."]})
answers = pd.DataFrame(bough.columns(model.predict(asked)), index=asked.index)
print(asked.join(answers).to_string())
