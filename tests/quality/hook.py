"""Hooks for a quality harness that calls `hook(layer, k_pre_rope, k, v, positions)`, and its `calibrate`.

One function a method of methods.py: hook_fp8, hook_int4, hook_kivi_2, hook_kvquant_3, hook_firn_4, hook_firn_fast_2, ...
Calibration feeds every artifact; without it (`--no-calibrate`) keys of the ladder are coded per channel over 64 tokens,
and KVQuant, KVmix and MiKV fail. The harness gives a hook neither queries nor gradients: MiKV's important tokens are
those that calibration's queries look at, and KVmix ranks layers by the errors of attention's output that 2 bits leave.
tests/quality/run has both, and more windows for KVQuant's codebooks. The codecs get FP16. At exit the exact bits per value are printed: codes and all of their
metadata, of the tokens that were coded, and for MiKV of those that stay exact.
"""
import atexit

from calibration import LayerCalibration
from coder import Coder
from methods import METHODS

_calibrations = {}
_coders = {}


def calibrate(layer, q, k_pre_rope, k, v, positions):
    """Adds a window of text that is not evaluated; q and k are after RoPE, (tokens, heads, head_dim)."""
    _calibrations.setdefault(layer, LayerCalibration()).add(q, k, v, positions)


def _hook(method):
    def hook(*layer):
        return _coders.setdefault(method.name, Coder(method, _calibrations))(*layer)
    return hook


globals().update({f"hook_{name}": _hook(method) for name, method in METHODS.items()})


@atexit.register
def _report():
    for name, coder in _coders.items():
        print(f"{name}: {coder.bits_per_value:.4f} bits per value")
