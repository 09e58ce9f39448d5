"""What the page states beside its tables, each worked out from the results: orders, ratios, the lower envelope."""
from intervals import ratio

BUDGET_MIN, BUDGET_MAX = 2.0, 8.5


def kl_of(row):
    return {text: values["kl"] for text, values in row["texts"].items()}


def mean_kl(row):
    means = [sum(blocks) / len(blocks) for blocks in kl_of(row).values()]
    return sum(means) / len(means)


# What, the one method, the other, and what the ratio of their mean KL should be at most.
ORDERS = (
    ("KIVI-2 against 2 bits by token without window and sinks", "kivi_2", "int2_bare", 0.5),
    ("KIVI-2 against 2 bits by token with window and sinks", "kivi_2", "int2_g32", 1),
    ("KIVI-2 with its window and sinks against the same without", "kivi_2", "kivi2_bare", 1),
    ("2-bit KIVI: keys before RoPE against after", "kivi2_pre_rope", "kivi_2", 1),
    ("KVQuant, 2 bits: before RoPE against after", "kvquant_2", "kvquant2_post_rope", 1),
    ("KVQuant, 3 bits: before RoPE against after", "kvquant_3", "kvquant3_post_rope", 1),
    ("KVQuant, 4 bits: before RoPE against after", "kvquant_4", "kvquant4_post_rope", 1),
    ("KVQuant, 2 bits: outliers of 64 tokens together against of each token", "kvquant_2", "kvquant2_by_token", 1),
    ("KVQuant, 3 bits: outliers of 64 tokens together against of each token", "kvquant_3", "kvquant3_by_token", 1),
    ("KVQuant, 4 bits: outliers of 64 tokens together against of each token", "kvquant_4", "kvquant4_by_token", 1),
    ("KVQuant, 2 bits: calibrated on 16 windows against on 2", "kvquant_2", "kvquant2_few", 1),
    ("KVQuant, 3 bits: calibrated on 16 windows against on 2", "kvquant_3", "kvquant3_few", 1),
    ("KVQuant, 4 bits: calibrated on 16 windows against on 2", "kvquant_4", "kvquant4_few", 1),
    ("KVQuant, 2 bits, outliers of each token: before RoPE against after", "kvquant2_by_token",
     "kvquant2_by_token_post_rope", 1),
    ("KVQuant, 3 bits, outliers of each token: before RoPE against after", "kvquant3_by_token",
     "kvquant3_by_token_post_rope", 1),
    ("KVQuant, 4 bits, outliers of each token: before RoPE against after", "kvquant4_by_token",
     "kvquant4_by_token_post_rope", 1),
    ("KVQuant, 2 bits: outliers against none", "kvquant_2", "kvquant2_o0", 1),
    ("KVQuant, 3 bits: outliers against none", "kvquant_3", "kvquant3_o0", 1),
    ("KVQuant, 4 bits: outliers against none", "kvquant_4", "kvquant4_o0", 1),
    ("KVQuant, 4 bits: codebooks weighted by gradients against unweighted", "kvquant_4", "kvquant4_unweighted", 1),
    ("KVQuant, 4 bits: codebooks weighted by gradients against uniform levels", "kvquant_4", "kvquant4_uniform", 1),
    ("KVQuant, 3 bits: codebooks weighted by gradients against unweighted", "kvquant_3", "kvquant3_unweighted", 1),
    ("KVQuant, 3 bits: codebooks weighted by gradients against uniform levels", "kvquant_3", "kvquant3_uniform", 1),
    ("KVQuant, 2 bits: codebooks weighted by gradients against unweighted", "kvquant_2", "kvquant2_unweighted", 1),
    ("KVQuant, 2 bits: codebooks weighted by gradients against uniform levels", "kvquant_2", "kvquant2_uniform", 1),
    ("nuq4 with outliers (4.49 bits) against INT4 by token (4.5 bits)", "kvquant_4", "int4", 1),
    ("nuq3 with outliers (3.49 bits) against INT4 by token (4.5 bits)", "kvquant_3", "int4", 2),
    ("nuq3 with outliers (3.49 bits) against INT4 by token, a scale a head (4.25 bits)", "kvquant_3", "int4_g128", 2),
    ("nuq3 with outliers (3.49 bits) against INT3 by channel (3.5 bits)", "kvquant_3", "kivi3_g64", 1),
    ("nuq3 with twice the outliers (3.92 bits) against INT4 by token (4.5 bits)", "kvquant3_o20", "int4", 2),
    ("KVmix: 3 and 4 bits in the layers that matter most against the first layer", "kvmix", "kvmix_first", 1),
    ("KVmix (3.19 bits) against KIVI-2, 2 bits in all layers (3 bits)", "kvmix", "kivi_2", 1),
    ("MiKV: a fifth exact by attention against every fifth token", "mikv", "mikv_spacing", 1),
    ("MiKV: a fifth exact by attention against what calibration's queries look at", "mikv", "mikv_estimate", 1),
    ("MiKV: a fifth exact by attention (6.04 bits) against none (3.5 bits)", "mikv", "mikv_none", 1),
    ("MiKV: balanced keys against keys as they are", "mikv", "mikv_unbalanced", 1),
)

# Ratios of the firn preset to the harness's own quantizers, in every variant of the model.
TARGETS = (("firn_2", "builtin_kivi2", 0.38, 2.25), ("firn_4", "builtin_kivi4", 0.95, 4.25))


def orders(rows):
    """(what, ratio, low, high, limit) of those whose methods were both measured, over the same windows."""
    for what, one, other, limit in ORDERS:
        if one in rows and other in rows:
            yield (what, *ratio(kl_of(rows[one]), kl_of(rows[other])), limit)


def targets(variants):
    """(method, reference, bits, bits allowed, variant, ratio, low, high, limit)."""
    for method, reference, limit, bits in TARGETS:
        for variant, rows in variants.items():
            if method in rows and reference in rows:
                yield (method, reference, rows[method]["bits"], bits, variant,
                       *ratio(kl_of(rows[method]), kl_of(rows[reference])), limit)


def _is_preset_firn(row):
    """The preset as it is, at any classes of K and V."""
    return row["family"] == "firn" and "keys" not in row["what"]


def _best(rows, budget):
    fitting = [r for r in rows if r["bits"] <= budget + 1e-3]
    return min(fitting, key=mean_kl) if fitting else None


def envelope(rows):
    """Budgets at which either lower envelope has a step: (budget, best of firn, best of the others, ratio, low, high).
    Rows with another window or other sinks do not take part; the ratio is None where firn has nothing."""
    fair = [r for r in rows.values() if (r["recent"], r["sinks"]) == (128, 4)]
    firn, others = [r for r in fair if _is_preset_firn(r)], [r for r in fair if r["family"] != "firn"]
    steps, before = [], None
    for budget in sorted({max(BUDGET_MIN, r["bits"]) for r in fair if r["bits"] <= BUDGET_MAX + 1e-3}):
        best = _best(firn, budget), _best(others, budget)
        names = [r and r["method"] for r in best]
        if names == before or best[1] is None:
            continue
        before = names
        steps.append((budget, *best, *(ratio(kl_of(best[0]), kl_of(best[1])) if best[0] else (None,) * 3)))
    return steps
