"""Codes K and V of a layer by a method of methods.py, and counts what that takes."""
import dataclasses

import numpy as np

import firn_codecs as fc
import importance
from calibration import LayerCalibration
from methods import METHODS, Part, Ranked

KEY_METHODS = {"channel": fc.KEYS_PER_CHANNEL, "rotated": fc.KEYS_ROTATED, "balanced": fc.KEYS_BALANCED_ROTATED}
EXACT = Part(16)


class Coder:
    """One method over all layers. `calibrations` (layer -> LayerCalibration) may be empty: then keys of the ladder are
    coded per channel, and methods that cannot do without fail. `importance` is set before each text, where the method
    goes by attention: what each of its tokens is looked at with; None: what calibration's queries would look at."""

    def __init__(self, method, calibrations):
        self.method = method
        self.importance = None
        self._calibrations = calibrations
        self._best_layers = {}
        self.coded_bytes = self.values = 0

    def __call__(self, layer, k_pre_rope, k, v, positions):
        calibration = self._calibrations.get(layer) or LayerCalibration()
        tokens_important = self._importance(calibration, k)
        size, blocks = self.method.block_tokens or len(k), []
        for first in range(0, len(k), size):
            at = slice(first, first + size)
            important = None if tokens_important is None else tokens_important[at]
            blocks.append(fc.round_trip(self._options(layer, calibration), k[at], v[at], int(positions[first]), important))
            self.coded_bytes += blocks[-1][2]
            self.values += blocks[-1][3]
        return tuple(np.concatenate([block[part] for block in blocks]) for part in range(2))

    @property
    def goes_by_attention(self):
        return self.method.important_fraction > 0 and self.method.important_by == "attention"

    @property
    def bits_per_value(self):
        """Codes and all of their metadata, of the tokens that were coded, and tokens kept exact for their importance."""
        return 8 * self.coded_bytes / self.values

    def _importance(self, calibration, k):
        if self.method.important_fraction == 0:
            return None
        if self.method.important_by == "spacing":
            return importance.spaced(len(k))
        if self.goes_by_attention and self.importance is not None:
            return self.importance
        return importance.estimated(calibration, k)

    def _options(self, layer, calibration):
        m = self.method
        options = fc.Options(keep_first_tokens=m.keep_first_tokens, ladder=m.ladder,
                             important_fraction=m.important_fraction)
        options.k, options.v = (self._part(name, layer, calibration) for name in "kv")
        if m.k.codec == fc.NESTED:
            keys = "channel" if m.keys == "balanced" and calibration.empty else m.keys
            options.key_method = KEY_METHODS[keys]
            options.balance = calibration.artifact("balance") if keys == "balanced" else None
        return options

    def _part(self, name, layer, calibration):
        part = getattr(self.method, name)
        bits = self._bits(part.bits, name, layer)
        if part.codec == fc.NESTED:
            return fc.PartOptions(bits=bits, group=part.group)
        integers = part.codec in (fc.INT_TOKEN, fc.INT_CHANNEL, fc.INT_TENSOR, fc.NUQ_CHANNEL, fc.NUQ_TOKEN)
        artifact = None if part.artifact is None else calibration.artifact(part.artifact)
        return fc.PartOptions(bits=bits, coding=fc.Coding(
            codec=part.codec, code_bits=bits if integers else 0, group=part.group, outliers=part.outliers,
            flags=part.flags, artifact=artifact))

    def _bits(self, bits, name, layer):
        if isinstance(bits, Ranked):
            return bits.best if layer in self._layers_above(bits.share, name) else bits.rest
        return bits[layer] if isinstance(bits, tuple) else bits

    def _layers_above(self, share, name):
        if not self._calibrations:
            raise RuntimeError("a ranking of layers: nothing was calibrated")
        if name not in self._best_layers:
            coarse = METHODS["kivi_2"]
            alone = {"k": dataclasses.replace(coarse, v=EXACT, keys="channel"),
                     "v": dataclasses.replace(coarse, k=EXACT, keys="channel")}
            found = importance.layer_importance(self._calibrations, lambda part: Coder(alone[part], {}))
            self._best_layers = {part: importance.most_important(found, share, part) for part in "kv"}
        return self._best_layers[name]
