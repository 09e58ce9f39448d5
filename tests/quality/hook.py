"""Passes K and V of a language model through FirnKV's own codecs, for a quality harness that calls `hook(layer, ...)`.

Functions hook_fp8, hook_int8, hook_int4, hook_int2, hook_gain8, hook_gain4, hook_gain2, hook_trellis8, hook_trellis4,
hook_trellis2, and `calibrate`. After calibration keys are centred, balanced and rotated per
token; without it they are grouped per channel over 64 tokens. Values are always rotated, per token. The codecs get FP16. At exit
the exact bits per value are printed: codes, scales and minima of all coded tokens.

The library is FIRN_CODECS_LIB or the newest build/*/codecs/libfirn_codecs.so (target firn_codecs_c). FIRN_KEEP_FIRST_TOKENS (default
0) makes the codec itself keep so many first tokens exact; the harness does that anyway.
"""
import atexit
import ctypes
import glob
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FP16, PER_CHANNEL, BALANCED_ROTATED = 1, 0, 1
MIN_MAX, GAIN, TRELLIS = 0, 1, 2


class Options(ctypes.Structure):
    """firn_round_trip_options of codecs/c_api.h."""
    _fields_ = [(name, ctypes.c_uint32) for name in (
        "heads", "tokens", "k_width", "v_width", "dtype", "k_bits", "v_bits", "use_fp8", "key_method", "key_group",
        "value_group", "first_token", "keep_first_tokens")] + [("artifact", ctypes.c_void_p), ("ladder", ctypes.c_uint32)]


def load_library():
    path = os.environ.get("FIRN_CODECS_LIB")
    if not path:
        built = glob.glob(str(ROOT / "build" / "*" / "codecs" / "libfirn_codecs.so"))
        if not built:
            sys.exit(f"no libfirn_codecs.so under {ROOT}/build: build the target firn_codecs_c or set FIRN_CODECS_LIB")
        path = max(built, key=os.path.getmtime)
    library = ctypes.CDLL(path)
    pointer, u32 = ctypes.c_void_p, ctypes.c_uint32
    library.firn_last_error.restype = ctypes.c_char_p
    library.firn_calibrator_create.restype = pointer
    library.firn_calibrator_create.argtypes = [u32] * 4
    library.firn_calibrator_add.argtypes = [pointer, u32, u32, pointer, pointer]
    library.firn_calibrator_finish.restype = pointer
    library.firn_calibrator_finish.argtypes = [pointer]
    library.firn_round_trip.argtypes = [ctypes.POINTER(Options)] + [pointer] * 4 + [ctypes.POINTER(ctypes.c_uint64)] * 2
    return library


LIBRARY = load_library()
CALIBRATORS, ARTIFACTS = {}, {}
COUNTS = {"values": 0, "coded_bytes": 0}


def check(good):
    if not good:
        raise RuntimeError(LIBRARY.firn_last_error().decode())


def address(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def calibrate(layer, q, k_pre_rope, k, v, positions):
    """Adds a window of text that is not evaluated; q and k are after RoPE, (tokens, heads, head_dim)."""
    q, k = (np.ascontiguousarray(x, dtype=np.float32) for x in (q, k))
    if layer not in CALIBRATORS:
        CALIBRATORS[layer] = LIBRARY.firn_calibrator_create(1, k.shape[1], q.shape[1], k.shape[2])
        check(CALIBRATORS[layer])
    check(LIBRARY.firn_calibrator_add(CALIBRATORS[layer], 0, k.shape[0], address(k), address(q)) == 0)
    ARTIFACTS.pop(layer, None)


def artifact_of(layer):
    if layer not in CALIBRATORS:
        return None
    if layer not in ARTIFACTS:
        ARTIFACTS[layer] = LIBRARY.firn_calibrator_finish(CALIBRATORS[layer])
        check(ARTIFACTS[layer])
    return ARTIFACTS[layer]


def round_trip(layer, k, v, positions, bits, use_fp8=False, ladder=MIN_MAX):
    # The codec's order is (head, token, channel).
    ours = [np.ascontiguousarray(x.transpose(1, 0, 2), dtype=np.float32) for x in (k, v)]
    out = [np.empty_like(x) for x in ours]
    heads, tokens, width = ours[0].shape
    artifact = artifact_of(layer)
    options = Options(
        heads=heads, tokens=tokens, k_width=width, v_width=ours[1].shape[2], dtype=FP16, k_bits=bits, v_bits=bits,
        use_fp8=int(use_fp8), key_method=PER_CHANNEL if artifact is None else BALANCED_ROTATED,
        first_token=int(positions[0]), keep_first_tokens=int(os.environ.get("FIRN_KEEP_FIRST_TOKENS", "0")),
        artifact=artifact, ladder=ladder)
    coded, exact = ctypes.c_uint64(), ctypes.c_uint64()
    check(LIBRARY.firn_round_trip(ctypes.byref(options), *map(address, ours + out), ctypes.byref(coded),
                                  ctypes.byref(exact)) == 0)
    COUNTS["values"] += ours[0].size + ours[1].size - exact.value // 2
    COUNTS["coded_bytes"] += coded.value
    return tuple(x.transpose(1, 0, 2) for x in out)


def hook_fp8(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 8, use_fp8=True)


def hook_int8(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 8)


def hook_int4(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 4)


def hook_int2(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 2)


def hook_gain8(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 8, ladder=GAIN)


def hook_gain4(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 4, ladder=GAIN)


def hook_gain2(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 2, ladder=GAIN)


def hook_trellis8(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 8, ladder=TRELLIS)


def hook_trellis4(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 4, ladder=TRELLIS)


def hook_trellis2(layer, k_pre_rope, k, v, positions):
    return round_trip(layer, k, v, positions, 2, ladder=TRELLIS)


@atexit.register
def report():
    if COUNTS["values"]:
        print(f"bits per value {8 * COUNTS['coded_bytes'] / COUNTS['values']:.4f}")
