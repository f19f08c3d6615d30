"""The server under load from another process: speed, order, overload, and a clean end.

    python benchmarks/serve_load.py [--seconds 60] [--clients 64] [--run RUN] [--workers N]
                                    [--precision auto]

Clients on the loopback send requests of one text, and of one to sixteen texts, of mixed lengths, as
fast as answers come. Every answer is compared with the offline prediction, after the clock has
stopped. Speed is told as a share of offline `predict` on the same texts, measured before and after
each load in turn. Then ten times the queue is asked for at once, and then the server is told to end
under load. Server and clients share the machine's cores, so the clients' work counts against the
server.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

import peer
from bough.inference.load import load_torch
from bough.inference.torch_model import MultiTaskModel
from bough.model import pretrained
from bough.model.network import Network, plan_of

CLIENTS = Path(__file__).with_name("serve_clients.py")
QUEUE = 256
LATE = 0.1  # seconds before the signal within which a request may not have reached the server yet


class Bench:
    def __init__(
        self, folder: Path, run: Path | None, count: int, workers: int = 1, precision: str = "auto"
    ):
        self.folder = folder
        self.options = ["--workers", str(workers), "--precision", precision]
        self.run = run or make_model(folder)
        self.model = load_torch(self.run)
        self.model.answer_in(precision)
        self.texts = mixed_texts(self.model, count)
        truth = self.model.predict(self.texts)
        known = {
            "texts": self.texts,
            "answers": [{t: a.plain() for t, a in one.items()} for one in truth],
        }
        self.known = folder / "texts.json"
        self.known.write_text(json.dumps(known))

    def offline(self) -> float:
        began = time.perf_counter()
        self.model.predict(self.texts)
        return len(self.texts) / (time.perf_counter() - began)

    def start(self, *options: str) -> tuple[subprocess.Popen, tuple[str, int]]:
        command = [sys.executable, "-m", "bough", "serve", *self.options]
        process = subprocess.Popen(
            [*command, str(self.run), "--port", "0", *options], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        host, port = line.split("http://")[1].split()[0].split(":")
        return process, (host, int(port))

    def clients(self, address, seconds: float, clients: int, sizes) -> subprocess.Popen:
        job = {
            "address": address,
            "seconds": seconds,
            "clients": clients,
            "sizes": sizes,
            "texts": str(self.known),
        }
        file = self.folder / "job.json"
        file.write_text(json.dumps(job))
        return subprocess.Popen(
            [sys.executable, str(CLIENTS), str(file)], stdout=subprocess.PIPE, text=True
        )


def report_of(process: subprocess.Popen) -> dict:
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit("the clients failed")
    return json.loads(out)


def make_model(folder: Path) -> Path:
    """MiniLM with fresh heads: what the answers say does not matter here."""
    tasks, _ = peer.load_rows(peer.real_or_embedded())
    encoder = pretrained.load("minilm")
    tasks = encoder.pooling.resolve(tasks)
    network = Network.pretrained(plan_of("split@3", tasks, encoder.shape), tasks, encoder, 0)
    return MultiTaskModel(network, encoder.tokenizer, 512).save(folder / "model")


def mixed_texts(model: MultiTaskModel, count: int) -> list:
    """Rows of all tasks; one in twenty is a paragraph made of many rows."""
    _, train = peer.load_rows(peer.real_or_embedded())
    rng = random.Random(0)
    rows = [row for task in train.values() for row in rng.sample(task.texts, min(count, len(task)))]
    forms = {len(task.columns) for task in model.tasks.values()}
    rows = [row for row in rows if len(row) in forms]
    texts = []
    for _ in range(count):
        row = rng.choice(rows)
        if rng.random() < 0.05 and 1 in forms:
            row = (" ".join(rng.choice(rows)[0] for _ in range(rng.randrange(5, 30))),)
        texts.append(row[0] if len(row) == 1 else row)
    return texts


def processor_time(process: subprocess.Popen) -> float:
    """Of the server, and of its workers, if it has any."""
    parent = psutil.Process(process.pid)
    times = [one.cpu_times() for one in (parent, *parent.children())]
    return sum(one.user + one.system for one in times)


def memory(process: subprocess.Popen) -> str:
    """What each process has that no other has, and what all of them have together."""
    parent = psutil.Process(process.pid)
    infos = [one.memory_full_info() for one in (parent, *parent.children())]
    own = ", ".join(f"{info.uss / 2**20:.0f}" for info in infos)
    return f"  memory: {own} MiB of its own each, {sum(i.pss for i in infos) / 2**20:.0f} in all"


def speed(bench: Bench, name: str, seconds: float, clients: int, sizes) -> None:
    before = bench.offline()
    process, address = bench.start()
    spent = processor_time(process)
    report = report_of(bench.clients(address, seconds, clients, sizes))
    spent = processor_time(process) - spent
    held = memory(process)
    process.terminate()
    code = process.wait()
    after = bench.offline()
    rate, alone = report["texts"] / report["seconds"], (before + after) / 2
    took = sorted(report["took"])
    parts = [took[: len(took) // 2], took[-len(took) // 20 :]]
    short, long = ([1000 * s for _, s in part] for part in parts)
    print(
        f"{name}: {rate:.0f} texts/s, offline {alone:.0f}: ratio {rate / alone:.2f}; "
        f"statuses {report['statuses']}, wrong answers {report['wrong']}, exit code {code}"
    )
    each = 1000 / report["texts"]
    print(
        f"  processor time of a text: server {spent * each:.2f} ms, "
        f"clients {report['processor'] * each:.2f} ms"
    )
    print(held)
    for words, part in (("shorter half", short), ("longest 5 %", long)):
        tail = statistics.quantiles(part, n=20)[-1]
        print(f"  {words}: median {statistics.median(part):.0f} ms, 95 % within {tail:.0f} ms")


def overload(bench: Bench, clients: int) -> None:
    """Ten times the queue at once, for a while; then the end under load."""
    process, address = bench.start("--queue", str(QUEUE))
    each = [10 * QUEUE // clients]
    report = report_of(bench.clients(address, 5, clients, each))
    print(
        f"ten times the queue ({clients} clients, {each[0]} texts each): "
        f"statuses {report['statuses']}, wrong answers {report['wrong']}"
    )
    running = bench.clients(address, 60, clients, [1, 2, 4])
    time.sleep(4)
    moment = time.time()
    process.send_signal(signal.SIGTERM)
    report = report_of(running)
    code = process.wait()
    early = [began for began in report["lost"] if began < moment - LATE]
    under_way = sum(began < moment for began in report["sent"]) - sum(
        began < moment for began in report["lost"]
    )
    print(
        f"SIGTERM under load: {under_way} requests sent before it were answered, "
        f"{len(early)} lost; statuses {report['statuses']}, wrong answers {report['wrong']}, "
        f"ended with exit code {code} after {time.time() - moment:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=2000, help="different texts")
    parser.add_argument("--run", type=Path, help="a run; by default MiniLM with fresh heads")
    parser.add_argument("--workers", type=int, default=1, help="processes of the server")
    parser.add_argument("--precision", default="auto", help="fp32, bf16; int8 for a measured run")
    args = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {args.clients} clients, {args.seconds:g} s each, "
        f"{args.workers} worker(s), precision {args.precision}"
    )
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args.run, args.texts, args.workers, args.precision)
        bench.offline()
        speed(bench, "one text each", args.seconds, args.clients, [1])
        speed(bench, "1 to 16 texts", args.seconds, args.clients, [1, 1, 2, 4, 8, 16])
        overload(bench, args.clients)


if __name__ == "__main__":
    main()
