"""docs/quality.md, docs/quality/results.json and docs/quality/kl.svg from results.

The page's prose is written by hand; what stands between `<!-- measured NAME -->` and `<!-- end -->` is written here.
"""
import collections
import json
import re

import numpy as np

import builtin
import claims
import firn_codecs as fc
import harness as hs
import plot
from intervals import interval, mean_of_texts
from methods import PRESETS, SWEEP

PAGE = fc.ROOT / "docs" / "quality.md"
RESULTS = fc.ROOT / "docs" / "quality" / "results.json"
PLOT = fc.ROOT / "docs" / "quality" / "kl.svg"
BLOCKS_A_WINDOW = 4


def brief(kind, result):
    texts = result.get("texts", {}).values()
    if kind == "model":
        return f"{result['bits']:.3f} bits, KL " + " / ".join(f"{np.mean(t['kl']):.6f}" for t in texts)
    if kind == "attention":
        return f"error {result['error']:.4f}"
    return "NLL (exact, control) " + " / ".join(
        f"{np.mean(t['coded']):.4f} ({np.mean(t['exact']):.4f}, {np.mean(t['control']):.4f})" for t in texts)


# --- Results ---

def _rounded(x):
    if isinstance(x, dict):
        return {k: _rounded(v) for k, v in x.items()}
    if isinstance(x, list):
        return [_rounded(v) for v in x]
    return float(f"{x:.6g}") if isinstance(x, float) else x


def _row(method, windows, result):
    bits = {"bits": result["bits"]} if "bits" in result else {}
    return {"method": method.name, "family": method.family, "what": method.what, "preset": method in PRESETS,
            "recent": method.recent, "sinks": method.sinks, "windows": windows, **_rounded(result), **bits}


def collect(results, arguments):
    """All results that are there, as docs/quality/results.json has them."""
    data = {"model": {}, "attention": [], "retrieval": []}
    wanted = [("model", v, m, arguments.preset_windows) for v in hs.VARIANTS for m in builtin.BUILTINS + PRESETS]
    wanted += [("model", "plain", m, arguments.sweep_windows) for m in SWEEP]
    wanted += [("attention", "plain", m, 1) for m in PRESETS + SWEEP]
    wanted += [("retrieval", "plain", m, arguments.preset_windows) for m in PRESETS]
    for kind, variant, method, windows in wanted:
        result = results.get(kind, variant, method, windows)
        if result is None:
            continue
        rows = data["model"].setdefault(variant, []) if kind == "model" else data[kind]
        rows.append(_row(method, windows, result))
    return data


def _first_windows(row, windows):
    """What a run of fewer windows of the same texts gives."""
    texts = {name: {"kl": t["kl"][:windows * BLOCKS_A_WINDOW], "dnll": t["dnll"][:windows * BLOCKS_A_WINDOW]}
             for name, t in row["texts"].items()}
    return {**row, "windows": windows, "texts": texts}


# --- Tables ---

def _table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _kl(x):
    return f"{x:.3g}"


def _span(values, show=_kl):
    mean, low, high = values
    return f"{show(mean)} [{show(low)}, {show(high)}]"


def _signed(x):
    return f"{x:+.5f}"


def _ratio(values):
    mean, low, high = values
    return f"{mean:.3g} [{low:.3g}, {high:.3g}]"


def _label(row):
    return f"`{row['method']}`" + (f": {row['what']}" if row["what"] else "")


def _model_table(rows, errors):
    body = []
    for row in rows:
        kl, dnll = [[interval(t[x]) for t in row["texts"].values()] for x in ("kl", "dnll")]
        error = errors.get(row["method"])
        body.append([_label(row), f"{row['bits']:.3f}", *map(_span, kl), *(_span(d, _signed) for d in dnll),
                     "" if error is None else f"{error:.4f}"])
    return _table(["method", "bits", "KL, WikiText-2", "KL, held-out", "dNLL, WikiText-2", "dNLL, held-out",
                   "attention error"], body)


def _stress_table(variants):
    body = []
    for row in variants.get("plain", []):
        cells = []
        for variant in hs.VARIANTS:
            found = [r for r in variants.get(variant, []) if r["method"] == row["method"]]
            cells.append(_span(mean_of_texts(claims.kl_of(found[0]))) if found else "")
        if any(cells[1:]):
            body.append([f"`{row['method']}`", f"{row['bits']:.3f}", *cells])
    return _table(["method", "bits", "plain", "`--key-outliers 8`", "`--key-shift 6`"], body)


def _retrieval_table(rows):
    body = []
    for row in rows:
        cells = []
        for t in row["texts"].values():
            exact, control, coded = (np.array(t[x]) for x in ("exact", "control", "coded"))
            worse = _span(interval(coded - exact), _signed)
            kept = (control - coded).mean() / (control - exact).mean()
            cells += [f"{coded.mean():.4f} ({exact.mean():.4f}, {control.mean():.4f})", worse, f"{100 * kept:.1f} %"]
        body.append([f"`{row['method']}`", *cells])
    heads = [f"{x}, {text}" for text in ("WikiText-2", "held-out")
             for x in ("NLL (exact, control)", "more than exact", "gain kept")]
    return _table(["method", *heads], body)


def _orders_table(rows):
    return _table(["what", "mean KL, ratio", "as the papers say?"], [
        [what, _ratio(values), f"yes, at most {limit:g}" if values[0] <= limit else f"no, above {limit:g}"]
        for what, *values, limit in claims.orders(rows)])


def _targets_table(variants):
    return _table(["preset", "bits (allowed)", "model", "mean KL, ratio", "target", "met?"], [
        [f"`{m}` to `{reference}`", f"{bits:.4f} ({allowed:g})", variant, _ratio(values), f"{limit:g}",
         "yes" if values[0] <= limit and bits <= allowed else "no"]
        for m, reference, bits, allowed, variant, *values, limit in claims.targets(variants)])


def _envelope_table(rows):
    body = []
    for budget, firn, other, *values in claims.envelope(rows):
        name = lambda r: f"`{r['method']}` ({r['bits']:.3f}) {_kl(claims.mean_kl(r))}"  # noqa: E731
        verdict = "firn has nothing" if firn is None else "below" if values[0] < 1 else "on it" if values[0] == 1 else \
            "above, within the interval" if values[1] <= 1 else "above"
        body.append([f"{budget:.3f}", name(firn) if firn else "", name(other), _ratio(values) if firn else "", verdict])
    return _table(["from bits", "best of `firn`", "best of all others", "ratio", "firn is"], body)


def _machines(data):
    rows = [r for v in data["model"].values() for r in v] + data["attention"] + data["retrieval"]
    counts = collections.Counter(r.get("machine", "2 or 16 CPUs x86_64, which of them was not recorded") for r in rows)
    return "Measured on: " + "; ".join(f"{machine} ({n} results)" for machine, n in counts.most_common()) + "."


# --- The page ---

def _sections(data):
    variants = {v: {r["method"]: r for r in rows} for v, rows in data["model"].items()}
    plain = variants.get("plain", {})
    errors = {r["method"]: r["error"] for r in data["attention"]}
    presets = [r for r in plain.values() if r["preset"] or r["family"] == "reference"]
    sweep = [r for r in plain.values() if r not in presets]
    few = min((r["windows"] for r in plain.values()), default=0)
    even = {name: _first_windows(r, few) for name, r in plain.items()}
    return {"machines": _machines(data), "presets": _model_table(presets, errors), "stress": _stress_table(data["model"]),
            "retrieval": _retrieval_table(data["retrieval"]), "sweep": _model_table(sweep, errors),
            "orders": _orders_table(even), "targets": _targets_table(variants), "envelope": _envelope_table(even)}, even


def _points(rows):
    points = {}
    for row in rows.values():
        if (row["recent"], row["sinks"]) == (128, 4):
            points.setdefault(row["family"], []).append(
                (row["bits"], *mean_of_texts(claims.kl_of(row)), row["method"], row["preset"]))
    return points


def write(data):
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(data, separators=(",", ":")).replace('{"method"', '\n{"method"') + "\n")
    sections, even = _sections(data)
    text = PAGE.read_text()
    for name, table in sections.items():
        pattern = re.compile(rf"(<!-- measured {name} -->\n).*?(<!-- end -->)", re.S)
        text, found = pattern.subn(lambda m: f"{m[1]}{table}\n{m[2]}", text)
        if found != 1:
            raise SystemExit(f"{PAGE}: {found} places for what was measured of {name}, 1 expected")
    PAGE.write_text(text)
    PLOT.write_text(plot.svg(_points(even)))
    print(f"wrote {PAGE}, {RESULTS} and {PLOT}")
