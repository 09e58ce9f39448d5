"""Copying from a long context, for one method: a passage that stands early in the stored prefix is repeated after it.

The negative log likelihood of the repeated passage says how well the model finds the first occurrence. Exact: the same
on an exact cache. Control: on an exact cache without the first occurrence (other text is in its place). The first
CUE tokens of the passage are not counted: nothing announces them.
"""
import numpy as np
import torch

PASSAGE, AT, CUE = 256, 256, 8  # Tokens; where the passage begins in the prefix.


def windows(harness, text, count):
    """Token ids of windows and of their controls: a prefix, then the passage once more."""
    e = harness.evaluate
    for i in range(count):
        ids = harness.window(text, i)
        prefix, other = ids[:e.PREFIX], ids[e.PREFIX:e.PREFIX + PASSAGE]
        passage = prefix[AT:AT + PASSAGE]
        control = torch.cat([prefix[:AT], other, prefix[AT + PASSAGE:]])
        yield torch.cat([prefix, passage]), torch.cat([control, passage])


def _nll(log_p, ids, start):
    """Of the repeated passage behind its cue; log_p of tokens from `start`."""
    targets = ids[start + CUE:]
    return -log_p[CUE - 1:-1][torch.arange(len(targets)), targets].numpy()


def references(harness, text, count):
    """Mean likelihoods of each window, exact and control."""
    e, exact, control = harness.evaluate, [], []
    for i, (ids, without) in enumerate(windows(harness, text, count)):
        arrays = harness.kept(f"retrieval.{text}.{i}", lambda: harness.prefill(ids, e.PREFIX))
        exact.append(_nll(torch.from_numpy(arrays["log_p"]), ids, e.PREFIX).mean())
        kept = harness.kept(f"control.{text}.{i}", lambda: {"nll": _nll(e.forward(without)[e.PREFIX:], without, e.PREFIX)})
        control.append(kept["nll"].mean())
    return np.array(exact), np.array(control)


def measure(harness, coder, text, count):
    """Mean negative log likelihood of the repeated passage of each window, on the coded cache."""
    e, found = harness.evaluate, []
    for i, (ids, _) in enumerate(windows(harness, text, count)):
        past, _ = harness.stored(coder, f"retrieval.{text}.{i}", ids)
        found.append(_nll(e.forward(ids, e.PREFIX, past), ids, e.PREFIX).mean())
    return np.array(found)
