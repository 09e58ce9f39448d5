"""Artifacts of one layer, measured on text that is not evaluated, each made when a method first asks for it."""
import numpy as np

import firn_codecs as fc

E4M3_LARGEST = 448.0
ROPE_BASE = 10000.0


def rope_frequencies(width):
    return ROPE_BASE ** (-np.arange(0, width, 2) / width)


def before_rope(k, positions):
    """Keys as a codec sees them that takes the rotary embedding back: what was added after it is turned with them."""
    half = k.shape[-1] // 2
    angles = positions[:, None].astype(np.float64) * rope_frequencies(k.shape[-1])[None]
    c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = k[..., :half], k[..., half:]
    return np.concatenate([a * c + b * s, b * c - a * s], -1).astype(np.float32)


class LayerCalibration:
    """Windows of one layer, and the artifacts made of them. Not thread-safe."""

    def __init__(self, more_windows=lambda: []):
        """`more_windows()` gives further windows (q None), which codebooks alone are fitted to."""
        self._windows = []
        self._more_windows = more_windows
        self._artifacts = {}
        self.weight_gradients = []  # Of each window: norms of the loss's gradients by W_k and by W_v; or none.

    def add(self, q, k, v, positions, gradients=None):
        """(tokens, heads, head_dim), q and k after RoPE; gradients of a loss by k and v, of all windows or of none."""
        self._windows.append((q, k, v, positions, gradients))
        self._artifacts.clear()

    @property
    def empty(self):
        return not self._windows

    @property
    def windows(self):
        """(q, k, v, positions, gradients) of each."""
        return self._windows

    def artifact(self, kind):
        """balance, balance_maximum (MiKV's), rope, fp8_scales_{k,v}, nuq_values_N, or nuq_keys_{pre,post}_N with N outliers in thousand. Codebooks
        are weighted by squared gradients where there are any, unless the kind ends in _unweighted; one that ends in _uniform has
        uniform levels, and one that ends in _few is of the windows alone that everything else is measured on."""
        if kind not in self._artifacts:
            if self.empty:
                raise RuntimeError(f"artifact {kind}: nothing was calibrated")
            self._artifacts[kind] = self._make(kind)
        return self._artifacts[kind]

    def _make(self, kind):
        q, k, v = (np.concatenate(arrays) for arrays in list(zip(*self._windows))[:3])
        name, *rest = kind.split("_")
        if name == "balance":
            return fc.balance_artifact(k, q, fc.BALANCE_MAXIMUM if rest == ["maximum"] else fc.BALANCE_SPREAD)
        if name == "rope":
            return fc.rope_artifact(k.shape[1], k.shape[2], rope_frequencies(k.shape[2]))
        if name == "fp8":
            return fc.scale_artifact(k if rest[1] == "k" else v, E4M3_LARGEST)
        if name == "nuq":
            return self._nuq(rest)
        raise ValueError(f"no artifact of kind {kind}")

    def _nuq(self, words):
        windows = self._windows + ([] if words[-1] == "few" else list(self._more_windows()))
        weighted = words[-1] not in ("unweighted", "uniform") and all(w[4] is not None for w in windows)
        outliers, is_values = next(int(w) for w in words if w.isdigit()), words[0] == "values"
        taken_back = not is_values and words[1] == "pre"
        values, weights = self._values_and_weights(windows, 2 if is_values else 1, weighted, taken_back)
        if words[-1] == "uniform":
            artifact = fc.uniform_artifact(values, is_values, outliers)
        else:
            artifact = fc.nuq_artifact(values, weights, is_values, outliers)
        return fc.merged(artifact, self.artifact("rope")) if taken_back else artifact

    @staticmethod
    def _values_and_weights(windows, which, weighted, taken_back):
        """Of these windows; the rotary embedding of values and of their gradients is taken back alike."""
        def seen(x, positions):
            return before_rope(x, positions) if taken_back else x
        values = np.concatenate([seen(w[which], w[3]) for w in windows])
        if not weighted:
            return values, None
        return values, np.concatenate([seen(w[4][which - 1], w[3]) for w in windows]) ** 2
