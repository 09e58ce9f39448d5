"""Relative error of attention's output on the real Q, K and V of $FIRN_SHARED/data/kv, for one method.

The first three quarters of the tokens are stored through the codec, with the method's window and sinks exact; the
queries of the last quarter attend to them and, causally, to the exact tokens after them. ||o - o^|| / ||o|| over all
query heads of a layer, mean of the layers.
"""
import math

import numpy as np

LAYERS = (0, 2, 4, 7)


def load(harness):
    tensors = harness.evaluate.read_safetensors(harness.evaluate.DATA / "kv" / "wikitext2_1024tok.safetensors")
    return {l: [tensors[f"layer{l}.{name}"].astype(np.float32) for name in ("q", "k_pre_rope", "k", "v")]
            for l in LAYERS}


def _output(q, k, v, first):
    """q (queries, heads, width) of tokens first, first + 1, ...: (queries, heads, width)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[2])
    scores[:, np.arange(k.shape[0])[None] > first + np.arange(q.shape[0])[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)


def relative_error(data, coder):
    method, errors = coder.method, []
    for layer, (q, k_pre_rope, k, v) in data.items():
        first = len(k) * 3 // 4
        coded = coder(layer, k_pre_rope[:first], k[:first], v[:first], np.arange(first))
        stored = []
        for exact, code in zip((k, v), coded):
            x = exact.copy()
            x[method.sinks:first - method.recent] = code[method.sinks:first - method.recent]
            stored.append(x)
        exact_output = _output(q[first:], k, v, first)
        difference = _output(q[first:], *stored, first) - exact_output
        errors.append(np.linalg.norm(difference) / np.linalg.norm(exact_output))
    return float(np.mean(errors))
