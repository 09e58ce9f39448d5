"""FirnKV's codecs through the C interface (codecs/capi/c_api.h), in NumPy arrays.

The library is FIRN_CODECS_LIB or the newest build/*/codecs/libfirn_codecs.so (target firn_codecs_c). Arrays are
float32; K and V of one layer are (tokens, heads, head_dim), as quality harnesses have them.
"""
import ctypes
import glob
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FP16 = 1
# Codecs, flags, key methods and ladders of codecs/types.h, codecs/record.h and codecs/block_codec.h.
FP8_E4M3, FP8_E4M3_TENSOR, NESTED, INT_TOKEN, INT_CHANNEL, INT_TENSOR = 2, 4, 0, 32, 33, 34
NUQ_CHANNEL, NUQ_TOKEN, NVFP4, MXFP4 = 40, 41, 48, 49
ROTATED, CENTRED, BALANCED, PRE_ROPE, SYMMETRIC, CALIBRATED = 1, 2, 4, 8, 16, 32
BALANCE_SPREAD, BALANCE_MAXIMUM = 0, 1
KEYS_PER_CHANNEL, KEYS_BALANCED_ROTATED, KEYS_ROTATED = 0, 1, 2
LADDER_MIN_MAX, LADDER_GAIN, LADDER_TRELLIS = 0, 1, 2

POINTER, U32 = ctypes.c_void_p, ctypes.c_uint32


def _structure(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": [(n, kind) for kind, names in fields for n in names.split()]})


Coding = _structure("Coding", (U32, "codec code_bits group outliers flags"), (POINTER, "artifact"))
PartOptions = _structure("PartOptions", (U32, "bits group"), (POINTER, "head_bits"), (Coding, "coding"))
Options = _structure(
    "Options", (U32, "heads tokens k_width v_width dtype first_token keep_first_tokens use_fp8 key_method ladder"),
    (POINTER, "balance"), (PartOptions, "k v"), (ctypes.c_float, "important_fraction"), (POINTER, "importance"))
Sizes = _structure("Sizes", (ctypes.c_uint64, "k_coded_bytes v_coded_bytes exact_bytes"))
NuqOptions = _structure("NuqOptions", (U32, "layers heads width values outliers q_norm tokens_max"))
Codebook = _structure("Codebook", (U32, "bits"), (POINTER, "levels decoded"))
Sections = _structure(
    "Sections", (U32, "layers heads width"), (POINTER, "mean weight centre reach scales codebooks rope_frequencies"),
    (U32, "codebook_count rope_pairs rope_interleaved"))


def library_path():
    path = os.environ.get("FIRN_CODECS_LIB")
    if path:
        return path
    built = glob.glob(str(ROOT / "build" / "*" / "codecs" / "libfirn_codecs.so"))
    if not built:
        sys.exit(f"no libfirn_codecs.so under {ROOT}/build: build the target firn_codecs_c or set FIRN_CODECS_LIB")
    return max(built, key=os.path.getmtime)


def _load():
    library = ctypes.CDLL(library_path())
    library.firn_last_error.restype = ctypes.c_char_p
    for name, arguments in {
            "firn_calibrator_create": [U32] * 4, "firn_calibrator_finish": [POINTER, U32],
            "firn_nuq_calibrator_create": [POINTER], "firn_nuq_calibrator_finish": [POINTER],
            "firn_scale_calibrator_create": [U32] * 3 + [ctypes.c_float], "firn_scale_calibrator_finish": [POINTER],
            "firn_artifact_create": [POINTER], "firn_artifact_merge": [POINTER, U32]}.items():
        function = getattr(library, name)
        function.restype, function.argtypes = POINTER, arguments
    library.firn_calibrator_add.argtypes = [POINTER, U32, U32, POINTER, POINTER]
    library.firn_nuq_calibrator_add.argtypes = [POINTER, U32, U32, POINTER, POINTER]
    library.firn_scale_calibrator_add.argtypes = [POINTER, U32, U32, POINTER]
    for name in ("firn_calibrator_free", "firn_nuq_calibrator_free", "firn_scale_calibrator_free"):
        getattr(library, name).argtypes = [POINTER]
    library.firn_round_trip.argtypes = [POINTER] * 6
    return library


LIBRARY = _load()


def checked(good):
    """What a call returned, unless that says that it failed."""
    if not good:
        raise RuntimeError(LIBRARY.firn_last_error().decode())
    return good


def contiguous(array):
    return np.ascontiguousarray(array, dtype=np.float32)


def address(array):
    return array.ctypes.data_as(POINTER)


def _measured(kind, create_arguments, layer_arrays, *finish_arguments):
    """The artifact of one calibrator that sees one layer."""
    calibrator = checked(getattr(LIBRARY, f"firn_{kind}_create")(*create_arguments))
    try:
        arrays = [None if a is None else contiguous(a) for a in layer_arrays]
        checked(getattr(LIBRARY, f"firn_{kind}_add")(
            calibrator, 0, len(arrays[0]), *(None if a is None else address(a) for a in arrays)) == 0)
        return checked(getattr(LIBRARY, f"firn_{kind}_finish")(calibrator, *finish_arguments))
    finally:
        getattr(LIBRARY, f"firn_{kind}_free")(calibrator)


def balance_artifact(k, q, balancing=BALANCE_SPREAD):
    """Means and balance weights of keys; q (tokens, query heads, head_dim) after RoPE."""
    return _measured("calibrator", (1, k.shape[1], q.shape[1], k.shape[2]), (k, q), balancing)


def nuq_artifact(values, weights, is_values, outliers, q_norm=False):
    """Codebooks, and ranges of key channels; values before the rotary embedding where the coding takes it back, and
    their weights, or None."""
    options = NuqOptions(layers=1, heads=values.shape[1], width=values.shape[2], values=int(is_values),
                         outliers=outliers, q_norm=int(q_norm), tokens_max=16384)
    return _measured("nuq_calibrator", (ctypes.byref(options),), (values, weights))


def uniform_artifact(values, is_values, outliers):
    """What nuq_artifact() gives, with levels that are a uniform grid over [-1, 1] in place of measured ones."""
    levels = [np.linspace(-1, 1, 2 ** bits, dtype=np.float32) for bits in (2, 3, 4)]
    books = (Codebook * 3)(*(Codebook(bits=2 + i, levels=address(x)) for i, x in enumerate(levels)))
    sections = Sections(layers=1, heads=values.shape[1], width=values.shape[2], codebooks=ctypes.addressof(books),
                        codebook_count=len(books))
    if not is_values:
        low, high = np.quantile(values, [outliers / 2000, 1 - outliers / 2000], axis=0)
        centre, reach = contiguous((high + low) / 2), contiguous(np.maximum((high - low) / 2, 1e-6))
        sections.centre, sections.reach = address(centre), address(reach)
    return checked(LIBRARY.firn_artifact_create(ctypes.byref(sections)))


def scale_artifact(values, largest_code):
    return _measured("scale_calibrator", (1, values.shape[1], values.shape[2], largest_code), (values,))


def rope_artifact(heads, width, frequencies):
    """The rotary embedding of pairs (i, i + pairs)."""
    frequencies = np.ascontiguousarray(frequencies, dtype=np.float64)
    sections = Sections(layers=1, heads=heads, width=width, rope_frequencies=address(frequencies),
                        rope_pairs=len(frequencies))
    return checked(LIBRARY.firn_artifact_create(ctypes.byref(sections)))


def merged(*artifacts):
    return checked(LIBRARY.firn_artifact_merge((POINTER * len(artifacts))(*artifacts), len(artifacts)))


def round_trip(options, k, v, first_token, importance=None):
    """Encodes and decodes one layer. Returns K and V again, bytes of codes with their metadata, and values coded; tokens
    kept exact by their importance are what a method costs, too, and count as coded."""
    ours = [contiguous(x.transpose(1, 0, 2)) for x in (k, v)]  # The codec's order is (head, token, channel).
    out = [np.empty_like(x) for x in ours]
    options.heads, options.tokens, options.k_width = ours[0].shape
    options.v_width, options.dtype, options.first_token = ours[1].shape[2], FP16, first_token
    if importance is not None:
        importance = contiguous(importance)
        options.importance = address(importance)
    sizes = Sizes()
    checked(LIBRARY.firn_round_trip(ctypes.byref(options), *map(address, ours + out), ctypes.byref(sizes)) == 0)
    coded_bytes, values = sizes.k_coded_bytes + sizes.v_coded_bytes, ours[0].size + ours[1].size
    if importance is None:
        values -= sizes.exact_bytes // 2
    else:
        coded_bytes += sizes.exact_bytes
    return (*(x.transpose(1, 0, 2) for x in out), coded_bytes, values)
