"""A task in another language: nothing changes but the encoder, which has to have read it.

    python examples/other_language.py [ENCODER]

`minilm` has read English. For other languages name an encoder that has read yours, such as
`xlm-roberta-base`, or `camembert-base` for French: a folder, or an id on the hub.
"""

import sys

import bough

ROWS = [
    ("Das Paket kam einen Tag zu früh, großartig!", "gut"),
    ("Die Lampe war schon zerbrochen.", "schlecht"),
    ("Schöner, als ich dachte.", "gut"),
    ("Nie wieder in diesem Geschäft.", "schlecht"),
    ("荷物は早く届きました。", "gut"),
    ("すぐに壊れてしまった。", "schlecht"),
    ("Очень доволен покупкой.", "gut"),
    ("Вернул через два дня.", "schlecht"),
]
rows = [{"text": text, "label": label} for text, label in ROWS]
recipe = {
    "encoder": sys.argv[1] if sys.argv[1:] else "xlm-roberta-base",
    "tasks": {"stimmung": {"kind": "classify", "text": "text", "train": rows, "dev": rows}},
    "training": {"epochs": 3},
}
model = bough.load(bough.train(recipe, out="runs/other-language"))
for text in ("Wunderschön!", "ひどい。"):
    answer = model.predict(text)["stimmung"]
    print(f"{text} {answer.label} ({answer.score:.0%})")
