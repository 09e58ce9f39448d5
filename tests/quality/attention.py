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


def _by_head(x, heads):
    """(tokens, heads, width) as (heads, tokens, width), those of keys or values for so many query heads."""
    return x.repeat(heads // x.shape[1], 1).transpose(1, 0, 2)


def _weights(q, k, first):
    """q (queries, heads, width) of tokens first, first + 1, ...: (heads, queries, tokens)."""
    scores = _by_head(q, q.shape[1]) @ _by_head(k, q.shape[1]).transpose(0, 2, 1) / math.sqrt(q.shape[2])
    scores[:, np.arange(k.shape[0])[None] > first + np.arange(q.shape[0])[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _output(q, k, v, first):
    return (_weights(q, k, first) @ _by_head(v, q.shape[1])).transpose(1, 0, 2)


def received(q, k, first):
    """How much each key is looked at in all by queries of tokens first, first + 1, ...: (tokens,)."""
    return _weights(q, k, first).sum((0, 1))


def relative_error(data, coder):
    method, errors = coder.method, []
    if coder.goes_by_attention:  # Of the coded tokens' own queries, as a worker has seen them when it stores a prefix.
        coder.importance = sum(received(q[:len(k) * 3 // 4], k[:len(k) * 3 // 4], 0) for q, _, k, _ in data.values())
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
