"""Codes K and V of a layer by a method of methods.py, and counts what that takes."""
import firn_codecs as fc
from calibration import LayerCalibration

KEY_METHODS = {"channel": fc.KEYS_PER_CHANNEL, "rotated": fc.KEYS_ROTATED, "balanced": fc.KEYS_BALANCED_ROTATED}


class Coder:
    """One method over all layers. `calibrations` (layer -> LayerCalibration) may be empty: then keys of the ladder are
    coded per channel, and methods that cannot do without fail."""

    def __init__(self, method, calibrations):
        self.method = method
        self._calibrations = calibrations
        self.coded_bytes = self.values = 0

    def __call__(self, layer, k_pre_rope, k, v, positions):
        calibration = self._calibrations.get(layer) or LayerCalibration()
        if self.method.code is not None:
            k, v, coded_bytes, values = self.method.code(self.method, layer, k_pre_rope, k, v, positions, calibration)
        else:
            k, v, coded_bytes, values = fc.round_trip(self._options(layer, calibration), k, v, int(positions[0]))
        self.coded_bytes += coded_bytes
        self.values += values
        return k, v

    @property
    def bits_per_value(self):
        """Codes and all of their metadata, of the tokens that were coded."""
        return 8 * self.coded_bytes / self.values

    def _options(self, layer, calibration):
        m = self.method
        options = fc.Options(keep_first_tokens=m.keep_first_tokens, ladder=m.ladder)
        options.k, options.v = self._part(m.k, layer, calibration), self._part(m.v, layer, calibration)
        if m.k.codec == fc.NESTED:
            keys = "channel" if m.keys == "balanced" and calibration.empty else m.keys
            options.key_method = KEY_METHODS[keys]
            options.balance = calibration.artifact("balance") if keys == "balanced" else None
        return options

    @staticmethod
    def _part(part, layer, calibration):
        bits = part.bits[layer] if isinstance(part.bits, tuple) else part.bits
        if part.codec == fc.NESTED:
            return fc.PartOptions(bits=bits, group=part.group)
        integers = part.codec in (fc.INT_TOKEN, fc.INT_CHANNEL, fc.INT_TENSOR, fc.NUQ_CHANNEL, fc.NUQ_TOKEN)
        artifact = None if part.artifact is None else calibration.artifact(part.artifact)
        return fc.PartOptions(bits=bits, coding=fc.Coding(
            codec=part.codec, code_bits=bits if integers else 0, group=part.group, outliers=part.outliers,
            flags=part.flags, artifact=artifact))
