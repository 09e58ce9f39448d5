"""What is measured: one row a method, presets and sweep. Adding a method, or a hook, is adding a row here.

A row says how the keys and values of one layer are coded, in the terms of codecs/capi/c_api.h, which artifact of the
layer's calibration each part needs, and what the cache around the codec keeps exact. Presets are those of
client/cpp/api/presets.cc.
"""
import dataclasses
from typing import Optional

import firn_codecs as fc


@dataclasses.dataclass(frozen=True)
class Ranked:
    """`best` bits in the share of the layers that matter most (importance.py), in the others `rest`."""
    best: int
    rest: int
    share: float = 0.2


@dataclasses.dataclass(frozen=True)
class Part:
    """How K or V is coded. `bits` alone is the ladder; bits may be a tuple with one entry a layer, or go by a ranking."""
    bits: object
    codec: int = fc.NESTED
    group: int = 0
    outliers: int = 0  # In thousandths.
    flags: int = 0
    artifact: Optional[str] = None  # A kind that calibration.py makes.


@dataclasses.dataclass(frozen=True)
class Method:
    name: str
    k: Part
    v: Part
    family: str  # What the page and the plot group it by.
    what: str  # In words, for the page.
    ladder: int = fc.LADDER_MIN_MAX
    keys: str = "balanced"  # Of the ladder: "balanced" (per channel where nothing is calibrated), "rotated" or "channel".
    keep_first_tokens: int = 0  # By the codec itself.
    recent: int = 128  # What the cache around the codec keeps exact: the newest tokens, and the first.
    sinks: int = 4
    preset: bool = False
    block_tokens: int = 0  # Tokens that are coded at once; 0: all of them.
    important_fraction: float = 0.0  # Of each block's tokens, those kept exact.
    important_by: str = "attention"  # Or "estimate", by calibration's queries, or "spacing" (importance.py).


def _integers(bits, group, codec=fc.INT_TOKEN, flags=0, artifact=None):
    return Part(bits, codec, group, 0, flags, artifact)


def kivi(bits, group):
    return _integers(bits, group, fc.INT_CHANNEL), _integers(bits, group)


def kvquant(bits, outliers=10, pre_rope=True, suffix="", group=64):
    """Ranges of key channels leave `outliers` thousandths out. They come in heaps, more in some texts than in others: 64
    tokens share what is kept exactly, half as many again; `group` 0 is as many in every token."""
    keys = Part(bits, fc.NUQ_CHANNEL, group, (3 * outliers + 1) // 2 if group else outliers,
                fc.PRE_ROPE if pre_rope else 0, f"nuq_keys_{'pre' if pre_rope else 'post'}_{outliers}{suffix}")
    return keys, Part(bits, fc.NUQ_TOKEN, 0, outliers, 0, f"nuq_values_{outliers}{suffix}")


def _kept(outliers, where, by_token=False):
    """In words, what kvquant() keeps exactly."""
    keys, values = kvquant(4, outliers, group=0 if by_token else 64)
    share = "no outliers" if outliers == 0 else f"outliers {keys.outliers / 10:g} % of K, {values.outliers / 10:g} % of V"
    return f"{share}{', as many in every token' if by_token else ''}, {where} RoPE"


def kvmix(keys=Ranked(3, 2), values=Ranked(4, 2)):
    return _integers(keys, 32, fc.INT_CHANNEL), _integers(values, 32)


def mikv(bits=3, balanced=True):
    values = _integers(bits, 64)
    return _integers(bits, 64, flags=fc.BALANCED, artifact="balance_maximum") if balanced else values, values


def _presets():
    fp8 = Part(8, fc.FP8_E4M3)
    yield Method("fp8", fp8, fp8, "FP8", "E4M3, a scale a head")
    for bits, group in ((8, 128), (4, 64)):
        part = _integers(bits, group)
        yield Method(f"int{bits}", part, part, "integers", f"by token, groups of {group}")
    for bits in (4, 2):
        yield Method(f"kivi_{bits}", *kivi(bits, 32), "KIVI", "groups of 32")
    for bits in (4, 3, 2):
        yield Method(f"kvquant_{bits}", *kvquant(bits), "KVQuant", _kept(10, "before"), keep_first_tokens=1)
    yield Method("kvmix", *kvmix(), "KVmix", "K 3 bits, V 4 bits in the fifth of layers that matters most, 2 in the others")
    yield Method("mikv", *mikv(), "MiKV", "a fifth of each 64 tokens exact by attention, the rest at 3 bits",
                 block_tokens=64, important_fraction=0.2)
    for name, family, ladder in (("firn", "firn", fc.LADDER_TRELLIS), ("firn_fast", "firn-fast", fc.LADDER_MIN_MAX)):
        for bits in (8, 4, 2):
            yield Method(f"{name}_{bits}", Part(bits), Part(bits), family, f"{bits} bits", ladder)


def _integer_sweep():
    for bits in (8, 4, 3, 2):
        for group in (32, 64, 128):
            if (bits, group) in ((8, 128), (4, 64)):
                continue  # Presets.
            part = _integers(bits, group)
            yield Method(f"int{bits}_g{group}", part, part, "integers", f"by token, groups of {group}")
    for bits in (4, 2):
        part = _integers(bits, 128, flags=fc.ROTATED)
        yield Method(f"int{bits}_rotated", part, part, "integers", "rotated, groups of 128")
    for group in (32, 64, 128):
        for bits in (3,) if group == 32 else (4, 3, 2):
            yield Method(f"kivi{bits}_g{group}", *kivi(bits, group), "KIVI", f"groups of {group}")
    rope_keys = Part(2, fc.INT_CHANNEL, 32, 0, fc.PRE_ROPE, "rope")
    yield Method("kivi2_pre_rope", rope_keys, kivi(2, 32)[1], "KIVI", "groups of 32, keys before RoPE")
    for name, recent, sinks, what in (("window_only", 128, 0, "no sinks"), ("sinks_only", 0, 4, "no window"),
                                      ("bare", 0, 0, "no window, no sinks")):
        yield Method(f"kivi2_{name}", *kivi(2, 32), "KIVI", f"groups of 32, {what}", recent=recent, sinks=sinks)
        token = _integers(2, 32)
        yield Method(f"int2_{name}", token, token, "integers", f"by token, groups of 32, {what}", recent=recent,
                     sinks=sinks)


def _kvquant_sweep():
    for bits in (4, 3, 2):
        for outliers in (0, 5, 20):
            yield Method(f"kvquant{bits}_o{outliers}", *kvquant(bits, outliers), "KVQuant",
                         _kept(outliers, "before"), keep_first_tokens=1)
        yield Method(f"kvquant{bits}_post_rope", *kvquant(bits, 10, False), "KVQuant", _kept(10, "after"),
                     keep_first_tokens=1)
        for name, where, pre_rope in (("by_token", "before", True), ("by_token_post_rope", "after", False)):
            yield Method(f"kvquant{bits}_{name}", *kvquant(bits, 10, pre_rope, group=0), "KVQuant",
                         _kept(10, where, by_token=True), keep_first_tokens=1)
        for suffix, words in (("_unweighted", "codebooks without gradients"), ("_uniform", "uniform levels"),
                              ("_few", "calibrated on 2 windows")):
            yield Method(f"kvquant{bits}{suffix}", *kvquant(bits, suffix=suffix), "KVQuant",
                         f"{_kept(10, 'before')}, {words}", keep_first_tokens=1)


def _kvmix_sweep():
    """Against bits that are the same in all layers, and against the same bits in the layers that matter least."""
    yield Method("kvmix_first", *kvmix((3,) + (2,) * 7, (4,) + (2,) * 7), "KVmix",
                 "K 3 bits, V 4 bits in the first of 8 layers, 2 in the others")
    yield Method("kvmix_half", *kvmix(Ranked(3, 2, 0.5), Ranked(4, 2, 0.5)), "KVmix",
                 "K 3 bits, V 4 bits in the half of layers that matters most, 2 in the others")


def _mikv_sweep():
    for name, what, coded, more in (
            ("whole", "a fifth of the prefix exact by attention, the rest at 3 bits", mikv(), {"block_tokens": 0}),
            ("estimate", "a fifth of each 64 tokens exact by what calibration's queries look at, the rest at 3 bits",
             mikv(), {"important_by": "estimate"}),
            ("spacing", "every fifth token exact, the rest at 3 bits", mikv(), {"important_by": "spacing"}),
            ("unbalanced", "a fifth of each 64 tokens exact by attention, the rest at 3 bits, keys as they are",
             mikv(balanced=False), {}),
            ("none", "no token exact, all at 3 bits", mikv(), {"important_fraction": 0.0}),
            ("10", "a tenth of each 64 tokens exact by attention, the rest at 3 bits", mikv(), {"important_fraction": 0.1}),
            ("2", "a fifth of each 64 tokens exact by attention, the rest at 2 bits", mikv(2), {}),
            ("4", "a fifth of each 64 tokens exact by attention, the rest at 4 bits", mikv(4), {})):
        yield Method(f"mikv_{name}", *coded, "MiKV", what, **{"block_tokens": 64, "important_fraction": 0.2, **more})


def _firn_sweep():
    for ladder, family in ((fc.LADDER_TRELLIS, "firn"), (fc.LADDER_MIN_MAX, "firn-fast"), (fc.LADDER_GAIN, "gain")):
        name = family.replace("-", "_")
        for k, v in ((8, 8), (8, 4), (8, 2), (4, 4), (4, 2), (2, 4), (2, 2)):
            if k == v and family != "gain":
                continue  # The preset's own.
            yield Method(f"{name}_k{k}v{v}", Part(k), Part(v), family, f"K {k} bits, V {v} bits", ladder)
    # What a plan of firn takes where nothing may be below 8 bits (docs/calibration.md): a ladder for few bits is not needed.
    for name, group, ladder, words in (
            ("gain", 0, fc.LADDER_GAIN, "signs and magnitudes"), ("min_max", 0, fc.LADDER_MIN_MAX, "minimum and step"),
            ("min_max_g64", 64, fc.LADDER_MIN_MAX, "minimum and step, groups of 64")):
        part = Part(8, group=group)
        yield Method(f"firn_8_only_{name}", part, part, "firn", f"8 bits and never fewer: {words}", ladder)
    for layers in (2, 4, 6):
        yield Method(f"firn_k4_v4last{layers}", Part(4), Part((2,) * (8 - layers) + (4,) * layers), "firn",
                     f"K 4 bits, V 4 bits in the last {layers} of 8 layers and 2 in the others", fc.LADDER_TRELLIS)
    yield Method("firn_k4_v4first4", Part(4), Part((4,) * 4 + (2,) * 4), "firn",
                 "K 4 bits, V 4 bits in the first 4 of 8 layers and 2 in the others", fc.LADDER_TRELLIS)
    for bits in (8, 4, 2):
        for keys, words in (("channel", "keys per channel over 64 tokens"), ("rotated", "keys only rotated")):
            yield Method(f"firn_{keys}_{bits}", Part(bits), Part(bits), "firn", f"{bits} bits, {words}",
                         fc.LADDER_TRELLIS, keys)
        yield Method(f"firn_fast_g64_{bits}", Part(bits, group=64), Part(bits, group=64), "firn-fast",
                     f"{bits} bits, groups of 64")


def _other_formats():
    for name, codec in (("nvfp4", fc.NVFP4), ("mxfp4", fc.MXFP4)):
        for suffix, flags, words in (("", 0, "as they are"), ("_rotated", fc.ROTATED, "rotated")):
            part = Part(4, codec, flags=flags)
            yield Method(name + suffix, part, part, "FP4", f"{name.upper()}, {words}")
    calibrated = [Part(8, fc.FP8_E4M3, flags=fc.CALIBRATED, artifact=f"fp8_scales_{part}") for part in "kv"]
    yield Method("fp8_calibrated", *calibrated, "FP8", "E4M3, calibrated scales")
    tensor = Part(8, fc.FP8_E4M3_TENSOR)
    yield Method("fp8_tensor", tensor, tensor, "FP8", "E4M3, a scale a layer")


PRESETS = [dataclasses.replace(m, preset=True) for m in _presets()]
SWEEP = [*_integer_sweep(), *_kvquant_sweep(), *_kvmix_sweep(), *_mikv_sweep(), *_firn_sweep(), *_other_formats()]
METHODS = {m.name: m for m in PRESETS + SWEEP}
if len(METHODS) != len(PRESETS) + len(SWEEP):
    raise ValueError("two methods have one name")
