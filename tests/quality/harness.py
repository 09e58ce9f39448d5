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

import attention
import firn_codecs as fc
from calibration import LayerCalibration

SHARED = pathlib.Path(os.environ.get("FIRN_SHARED", fc.ROOT.parent / "shared")).resolve()
BUILD = fc.ROOT / "build" / "quality"
TEXTS = {"wikitext2_test": 4096, "eval": 40000}  # Tokens to pass over, as the harness does.
VARIANTS = {"plain": (1.0, 0.0), "outliers8": (8.0, 0.0), "shift6": (1.0, 6.0)}  # --key-outliers, --key-shift
CALIBRATION_WINDOWS = 2
CODEBOOK_WINDOWS = 16  # As in KVQuant's paper; the first of them are those above.
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

    def stored(self, coder, name, ids):
        """The prefix of a text as it comes back from the codec, and log probabilities on an exact cache. `name` is the
        text's among what is kept."""
        e = self.evaluate
        arrays = self.kept(name, lambda: self.prefill(ids, e.PREFIX))
        if coder.goes_by_attention:
            coder.importance = self.kept(f"attention.{name}", lambda: self._attention(ids[:e.PREFIX]))["received"]
        cache = [[torch.from_numpy(arrays[f"{l}.{x}"]) for x in ("k0", "k", "v")] for l in range(e.L)]
        past = e.stored_prefix(cache, coder, coder.method.recent, coder.method.sinks)
        return past, torch.from_numpy(arrays["log_p"])

    def _attention(self, ids):
        """How much each token is looked at while they are read, in all layers and heads."""
        received = np.zeros(len(ids), np.float32)

        def add(l, q, k0, k, v, pos):
            received[:] += attention.received(q.numpy(), k.numpy(), 0)
        self.evaluate.forward(ids, visit=add)
        return {"received": received}

    def calibrations(self):
        """Layer -> LayerCalibration, over the windows that the harness calibrates on."""
        if self._calibrations is None:
            self._calibrations = {
                l: LayerCalibration(lambda l=l: self._more_windows(l)) for l in range(self.evaluate.L)}
            for i in range(CALIBRATION_WINDOWS):
                arrays = self.kept(f"calibration.{i}", lambda: self._calibration_window(i))
                for l, calibration in self._calibrations.items():
                    q, k, v, *gradients = (arrays[f"{l}.{x}"] for x in ("q", "k", "v", "k_gradient", "v_gradient"))
                    calibration.add(q, k, v, np.arange(self.evaluate.T), gradients)
                    calibration.weight_gradients.append([float(arrays[f"{l}.{x}_norm"]) for x in "kv"])
        return self._calibrations

    def _more_windows(self, layer):
        for i in range(CALIBRATION_WINDOWS, CODEBOOK_WINDOWS):
            arrays = self.kept(f"calibration.{i}", lambda: self._calibration_window(i))
            k, v, *gradients = (arrays[f"{layer}.{x}"] for x in ("k", "v", "k_gradient", "v_gradient"))
            yield None, k, v, np.arange(self.evaluate.T), gradients

    def _calibration_window(self, i):
        """Q, K and V of every layer, and the gradients of the summed negative log likelihood by K and V; of those by W_k
        and W_v the norms."""
        e, seen = self.evaluate, {}
        ids = torch.from_numpy(self.tokens("eval")[i * e.T:(i + 1) * e.T])

        def keep(l, q, k0, k, v, pos):
            seen.update({f"{l}.q": q, f"{l}.k": k, f"{l}.v": v})
            k.retain_grad(), v.retain_grad()
        weights = {f"{l}.{x}": e.W[f"model.layers.{l}.self_attn.{x}_proj.weight"] for l in range(e.L) for x in "kv"}
        # With the embedding so that all that follows has gradients.
        watched = [e.W["model.embed_tokens.weight"], *weights.values()]
        for weight in watched:
            weight.requires_grad_(True)
        with torch.enable_grad():
            log_p = e.forward(ids, visit=keep)
            (-log_p[torch.arange(len(ids) - 1), ids[1:]]).sum().backward()
        arrays = {name: x.detach().numpy() for name, x in seen.items()}
        arrays.update({f"{name}_norm": weight.grad.norm().numpy() for name, weight in weights.items()})
        arrays.update({f"{name}_gradient": x.grad.numpy() for name, x in seen.items() if not name.endswith("q")})
        for weight in watched:
            weight.requires_grad_(False).grad = None
        return arrays

    def measure(self, coder, text, i):
        """KL and change of the negative log likelihood of a window, token by token."""
        e, ids = self.evaluate, self.window(text, i)
        past, exact = self.stored(coder, f"{text}.{i}", ids[:-1])
        coded = e.forward(ids[:-1], e.PREFIX, past)
        at = (torch.arange(e.T - e.PREFIX), ids[e.PREFIX + 1:])
        return (exact.exp() * (exact - coded)).sum(-1).numpy(), (exact[at] - coded[at]).numpy()


def blocks(per_token):
    return per_token.reshape(-1, BLOCK).mean(1)
