"""Means and 95 % intervals of what was measured: bootstraps over blocks of 128 tokens, as the harness does them."""
import numpy as np

RESAMPLES = 2000


def _resampled(blocks, rng):
    """Means of resamples; `blocks` is (series, blocks) and its series are resampled alike."""
    blocks = np.asarray(blocks)
    picks = rng.integers(blocks.shape[1], size=(RESAMPLES, blocks.shape[1]))
    return blocks[:, picks].mean(-1)


def interval(blocks):
    """Mean, and the ends of its interval."""
    low, high = np.percentile(_resampled([blocks], np.random.default_rng(0))[0], [2.5, 97.5])
    return float(np.mean(blocks)), float(low), float(high)


def ratio(ours, theirs):
    """The mean of the texts' means of `ours` by that of `theirs`, with an interval. Both: text -> blocks of the same
    tokens, which are resampled in pairs."""
    rng, sums = np.random.default_rng(0), np.zeros((2, RESAMPLES))
    for text in ours:
        sums += _resampled([ours[text], theirs[text]], rng)
    low, high = np.percentile(sums[0] / sums[1], [2.5, 97.5])
    means = [sum(np.mean(blocks) for blocks in texts.values()) for texts in (ours, theirs)]
    return float(means[0] / means[1]), float(low), float(high)


def mean_of_texts(texts):
    """The mean of the texts' means, and its interval; text -> blocks."""
    rng = np.random.default_rng(0)
    low, high = np.percentile(sum(_resampled([b], rng)[0] for b in texts.values()) / len(texts), [2.5, 97.5])
    return float(np.mean([np.mean(b) for b in texts.values()])), float(low), float(high)
