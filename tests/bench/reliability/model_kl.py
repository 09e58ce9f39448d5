#!/usr/bin/python3
"""What flipped bits in a stored prefix do to a real language model: mean KL, in nats a token, by protection and rate.

The harness of docs/quality.md gives the model and its exact cache; protection_bench stores K and V of a prefix of 1,536
tokens, flips bits once, and says what a worker gets (missed blocks are computed anew: exact). The first 4 and the newest
128 tokens of the prefix stay exact, as there. One window of each of two texts, flips drawn three times, other seeds for
each. What was measured is kept in the JSON file, and a run that was stopped goes on.

  model_kl.py BENCH JSON      BENCH: protection_bench; needs what tests/quality/run needs
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX" if "avx512f" in open("/proc/cpuinfo").read() else "Haswell")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "quality"))

import torch  # noqa: E402

import harness as hs  # noqa: E402

PRESET, SINKS, RECENT, DRAWS = "firn-fast", 4, 128, 3
PROTECTIONS = ("nothing", "checks", "secded", "graded_secded")
RATES = (1e-7, 1e-6, 1e-5, 1e-4)


def write_safetensors(path, arrays):
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F16", "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            out.write(array.tobytes())


class Window:
    """A text's first window: what is stored of it, and what the model says on an exact cache."""

    def __init__(self, harness, text, folder):
        self.e = e = harness.evaluate
        self.ids, self.layers = harness.window(text, 0)[:-1], []
        self.exact = e.forward(self.ids, visit=lambda l, q, k0, k, v, pos: self.layers.append(
            [x[:e.PREFIX].numpy() for x in (q, k, v)]))[e.PREFIX:]
        self.capture = folder / f"{text}.safetensors"
        write_safetensors(self.capture, {f"layer{l}.{name}": x.astype(np.float16) for l, layer in enumerate(self.layers)
                                         for name, x in zip("qkv", layer)})

    def kl(self, served):
        past = []
        for l, (_, *exact) in enumerate(self.layers):
            part = [served[f"layer{l}.{name}"].astype(np.float32) for name in "kv"]
            for got, true in zip(part, exact):
                got[:SINKS], got[-RECENT:] = true[:SINKS], true[-RECENT:]
            past.append(tuple(torch.from_numpy(x) for x in part))
        coded = self.e.forward(self.ids, self.e.PREFIX, past)
        return float((self.exact.exp() * (self.exact - coded)).sum(-1).mean())


def serve(bench, window, folder, bits, protection, rate, seed):
    out = folder / "served.safetensors"
    said = subprocess.run([bench, "--capture", window.capture, "--blocks", "1000", "--served", out, "--preset", PRESET,
                           "--bits", str(bits), "--protection", protection, "--rate", str(rate), "--seed", str(seed)],
                          check=True, capture_output=True, text=True).stdout.splitlines()[-1].split()
    counts = {name: int(value) for name, value in zip(said[::2], said[1::2])}
    return window.e.read_safetensors(out), counts


def main():
    bench, results = sys.argv[1], pathlib.Path(sys.argv[2])
    rows = json.loads(results.read_text()) if results.exists() else []
    done = {(r["bits"], r["protection"], r["rate"]) for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        folder, harness = pathlib.Path(folder), hs.Harness()
        windows = {text: Window(harness, text, folder) for text in hs.TEXTS}
        points = [(bits, "checks", 0.0) for bits in (8, 4, 2)]
        points += [(bits, p, rate) for bits in (8, 4, 2) for rate in RATES for p in PROTECTIONS]
        for index, (bits, protection, rate) in enumerate(points):
            if (bits, protection, rate) in done:
                continue
            row = {"preset": PRESET, "bits": bits, "protection": protection, "rate": rate, "blocks": 0, "missed": 0,
                   "coarser": 0, **{f"kl_{text}": [] for text in windows}}
            for draw in range(DRAWS if rate > 0 else 1):
                for text, window in windows.items():
                    served, counts = serve(bench, window, folder, bits, protection, rate, 1 + index * DRAWS + draw)
                    row[f"kl_{text}"].append(float(f"{window.kl(served):.4g}"))
                    for name in ("blocks", "missed", "coarser"):
                        row[name] += counts[name]
            rows.append(row)
            print(row, flush=True)
            results.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
