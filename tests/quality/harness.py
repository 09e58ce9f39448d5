"""The quality harness ($FIRN_SHARED/quality/evaluate.py) with the exact model's part of every window kept on disk.

What does not depend on a codec is computed once for each variant of the model and kept under build/quality/exact: K and
V of the prefix, log probabilities on the exact cache, and the windows that calibration sees. A run of a codec is then
its coding and one pass over 512 tokens. One process holds one variant: outliers change the weights.
"""
import hashlib
import importlib.util
import os
import pathlib

import numpy as np
import torch

import firn_codecs as fc
from calibration import LayerCalibration

SHARED = pathlib.Path(os.environ.get("FIRN_SHARED", fc.ROOT.parent / "shared")).resolve()
BUILD = fc.ROOT / "build" / "quality"
TEXTS = {"wikitext2_test": 4096, "eval": 40000}  # Tokens to pass over, as the harness does.
VARIANTS = {"plain": (1.0, 0.0), "outliers8": (8.0, 0.0), "shift6": (1.0, 6.0)}  # --key-outliers, --key-shift
CALIBRATION_WINDOWS = 2
BLOCK = 128  # Tokens that one value of a result stands for.


def _load_evaluate():
    path = SHARED / "quality" / "evaluate.py"
    if not path.exists():
        raise SystemExit(f"no {path}: set FIRN_SHARED to the folder of real data")
    spec = importlib.util.spec_from_file_location("evaluate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.set_num_threads(int(os.environ.get("FIRN_QUALITY_THREADS", "1")))
    return module


def digest_of(*paths):
    total = hashlib.sha256()
    for path in paths:
        total.update(pathlib.Path(path).read_bytes())
    return total.hexdigest()[:16]


class Harness:
    """One variant of the model. `digest` names the harness and the model, for keys of caches."""

    def __init__(self, variant="plain"):
        self.evaluate = e = _load_evaluate()
        self.digest = digest_of(SHARED / "quality" / "evaluate.py", e.DATA / "model" / "model.int8.safetensors")
        outliers, shift = VARIANTS[variant]
        if outliers != 1:
            e.amplify_key_outliers(outliers)
        if shift:
            e.shift_keys(shift)
        self._folder = BUILD / "exact" / f"{self.digest}-{variant}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._calibrations = None

    def tokens(self, text):
        return np.load(self.evaluate.DATA / "model" / f"{text}_tokens.npy").astype(np.int64)

    def window(self, text, i):
        """Token ids of a window, one more than it is long."""
        e = self.evaluate
        ids = self.tokens(text)[TEXTS[text] + i * e.T:][:e.T + 1]
        if len(ids) <= e.T:
            raise SystemExit(f"text {text} has no window {i}")
        return torch.from_numpy(ids)

    def kept(self, name, make):
        """Arrays by name that `make()` gives, from disk where they are there. Writers may race: files are renamed."""
        path = self._folder / f"{name}.npz"
        if not path.exists():
            part = path.with_name(f"{path.name}.{os.getpid()}.npz")
            np.savez(part, **make())
            part.rename(path)
        return np.load(path)

    def prefill(self, ids, start):
        """K before RoPE, K and V of the first `start` tokens, and log probabilities of the others, on an exact cache."""
        layers = []
        log_p = self.evaluate.forward(ids, visit=lambda l, q, k0, k, v, pos: layers.append((k0, k, v)))[start:]
        arrays = {f"{l}.{name}": x[:start].numpy()
                  for l, layer in enumerate(layers) for name, x in zip(("k0", "k", "v"), layer)}
        return {"log_p": log_p.numpy(), **arrays}

    def cache_of(self, arrays):
        """What stored_prefix() of the harness takes."""
        return [[torch.from_numpy(arrays[f"{l}.{name}"]) for name in ("k0", "k", "v")] for l in range(self.evaluate.L)]

    def calibrations(self):
        """Layer -> LayerCalibration, over the windows that the harness calibrates on."""
        if self._calibrations is None:
            self._calibrations = {l: LayerCalibration() for l in range(self.evaluate.L)}
            for i in range(CALIBRATION_WINDOWS):
                arrays = self.kept(f"gradients.{i}", lambda: self._calibration_window(i))
                for l, calibration in self._calibrations.items():
                    q, k, v, *gradients = (arrays[f"{l}.{x}"] for x in ("q", "k", "v", "k_gradient", "v_gradient"))
                    calibration.add(q, k, v, np.arange(self.evaluate.T), gradients)
        return self._calibrations

    def _calibration_window(self, i):
        """Q, K and V of every layer, and the gradients of the summed negative log likelihood by K and V."""
        e, seen = self.evaluate, {}
        ids = torch.from_numpy(self.tokens("eval")[i * e.T:(i + 1) * e.T])

        def keep(l, q, k0, k, v, pos):
            seen.update({f"{l}.q": q, f"{l}.k": k, f"{l}.v": v})
            k.retain_grad(), v.retain_grad()
        embedding = e.W["model.embed_tokens.weight"].requires_grad_(True)  # So that all that follows has gradients.
        with torch.enable_grad():
            log_p = e.forward(ids, visit=keep)
            (-log_p[torch.arange(len(ids) - 1), ids[1:]]).sum().backward()
        embedding.requires_grad_(False).grad = None
        arrays = {name: x.detach().numpy() for name, x in seen.items()}
        arrays.update({f"{name}_gradient": x.grad.numpy() for name, x in seen.items() if not name.endswith("q")})
        return arrays

    def measure(self, coder, text, i):
        """KL and change of the negative log likelihood of a window, token by token."""
        e, ids = self.evaluate, self.window(text, i)
        arrays = self.kept(f"{text}.{i}", lambda: self.prefill(ids[:-1], e.PREFIX))
        exact = torch.from_numpy(arrays["log_p"])
        past = e.stored_prefix(self.cache_of(arrays), coder, coder.method.recent, coder.method.sinks)
        coded = e.forward(ids[:-1], e.PREFIX, past)
        at = (torch.arange(e.T - e.PREFIX), ids[e.PREFIX + 1:])
        return (exact.exp() * (exact - coded)).sum(-1).numpy(), (exact[at] - coded[at]).numpy()


def blocks(per_token):
    return per_token.reshape(-1, BLOCK).mean(1)
