"""Entities, topic and sentiment from one trunk: marked words and two judgements in one pass.

python examples/entities.py [ENCODER]
"""

import sys

import bough


def marked(text, *names):
    """A row with the characters that each name takes, as a JSONL file would have them."""
    places = [(text.index(name), name, label) for name, label in names]
    spans = [{"start": at, "end": at + len(name), "label": label} for at, name, label in places]
    return {"text": text, "spans": spans}


MARKED = [
    marked("Ada Lovelace was born in London.", ("Ada Lovelace", "person"), ("London", "place")),
    marked("The train to Lyon is late again.", ("Lyon", "place")),
    marked("Maria Curie worked in Paris.", ("Maria Curie", "person"), ("Paris", "place")),
    marked("Nothing happened today."),
]  # fmt: skip
TOPICS = [
    {"text": "The train to Lyon is late again.", "label": "travel"},
    {"text": "She found a new element.", "label": "science"},
    {"text": "The ferry leaves at noon.", "label": "travel"},
    {"text": "The probe has reached the comet.", "label": "science"},
]
MOODS = [
    {"text": "What a lovely evening!", "label": "good"},
    {"text": "The train is late again.", "label": "bad"},
    {"text": "We could not have been happier.", "label": "good"},
    {"text": "I am tired of waiting.", "label": "bad"},
]
recipe = {
    "encoder": sys.argv[1] if sys.argv[1:] else "minilm",
    "plan": "full",
    "tasks": {
        "names": {"kind": "tag", "text": "text", "label": "spans", "train": MARKED, "dev": MARKED},
        "topic": {"kind": "classify", "text": "text", "train": TOPICS, "dev": TOPICS},
        "mood": {"kind": "classify", "text": "text", "train": MOODS, "dev": MOODS},
    },
    "training": {"epochs": 3},
}
model = bough.load(bough.train(recipe, out="runs/entities"))
answers = model.predict("Ada is happy in London.")
print("names:", [(span.text, span.label) for span in answers["names"].spans])
print("topic:", answers["topic"].label)
print("mood:", answers["mood"].label)
