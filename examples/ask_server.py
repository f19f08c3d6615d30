"""Ask a server from Python, with nothing but the standard library.

bough serve runs/two-tasks &
python examples/ask_server.py [ADDRESS]
"""

import json
import sys
from urllib.request import Request, urlopen

ADDRESS = sys.argv[1] if sys.argv[1:] else "http://127.0.0.1:8000"


def ask(texts, **more):
    """Answers in the order of the texts; a pair is a list of two."""
    body = json.dumps({"texts": texts, **more}).encode()
    request = Request(f"{ADDRESS}/predict", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as response:
        return json.load(response)["answers"]


with urlopen(f"{ADDRESS}/tasks", timeout=30) as response:
    tasks = json.load(response)["tasks"]
texts = ["The old tree is green.", "What is very good?"]
for name, task in tasks.items():
    asked = [[text, "Who does grow?"] for text in texts] if task["texts"] == 2 else texts
    for text, answer in zip(asked, ask(asked, tasks=[name]), strict=True):
        print(name, json.dumps(text), json.dumps(answer[name]))
