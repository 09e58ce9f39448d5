"""How much tokens matter (MiKV), and how much layers do (KVmix)."""
import numpy as np

import attention

SPACING = 5  # Of tokens that are taken whatever they are: a fifth.


def estimated(calibration, k):
    """How much each key is looked at where its own queries are not to be had: by those that calibration saw behind so
    many tokens, or the last quarter that it saw."""
    if calibration.empty:
        raise RuntimeError("importance of tokens: nothing was calibrated")
    queries = [q[min(len(k), len(q) * 3 // 4):] for q, *_ in calibration.windows]
    return attention.received(np.concatenate(queries), k, len(k))


def spaced(tokens):
    """Tokens at even distances: what a choice that knows nothing takes."""
    return (np.arange(tokens) % SPACING == 0).astype(np.float32)


def layer_importance(calibrations, coder_of):
    """Layer -> (of K, of V). As the paper has it, the norm of the loss's gradients by W_k and W_v, mean of the windows;
    where calibration has none, the error of attention's output with this layer's K, or V, at 2 bits: of coder_of(part)."""
    if all(c.weight_gradients for c in calibrations.values()):
        return {l: tuple(np.mean(c.weight_gradients, axis=0)) for l, c in calibrations.items()}
    found = {}
    for layer, calibration in calibrations.items():
        windows = [(q, k, k, v) for q, k, v, *_ in calibration.windows]
        found[layer] = tuple(np.mean([attention.relative_error({layer: w}, coder_of(part)) for w in windows])
                             for part in "kv")
    return found


def most_important(importance, share, part):
    """Of layers: a share of them, rounded down, at least one; of equals the first (docs/plan.md)."""
    order = sorted(importance, key=lambda layer: (-importance[layer]["kv".index(part)], layer))
    return set(order[:max(int(share * len(order) + 1e-9), 1)])
