#!/usr/bin/python3
"""docs/reliability/protection.svg and the measured tables of docs/reliability.md, from docs/reliability/*.json.

What stands between `<!-- measured NAME -->` and `<!-- end -->` of the page is written here; the rest is by hand.
"""
import json
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE, FOLDER = ROOT / "docs" / "reliability.md", ROOT / "docs" / "reliability"
PRESET = "firn-fast"
NAMES = {"nothing": "nothing", "checks": "checks", "secded": "SECDED", "graded_secded": "graded, SECDED",
         "rs": "Reed-Solomon", "graded_rs": "graded, Reed-Solomon"}
COLOURS = {"nothing": "#7f8c8d", "checks": "#2471a3", "secded": "#c0392b", "graded_secded": "#e67e22",
           "rs": "#1e8449", "graded_rs": "#6c3483"}
SHOWN = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
PANEL_W, PANEL_H, LEFT, TOP, GAP_X, GAP_Y = 270, 220, 80, 40, 58, 50
RATES = (-9, -3)


def error_of(point):
    """Of K and V, each relative to its own norm: the root of the mean of squares."""
    return math.sqrt((point["served_error_k"] ** 2 + point["served_error_v"] ** 2) / 2)


def _text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{words}</text>'


class _Panel:
    def __init__(self, column, row, low, high):
        self.left, self.top = LEFT + column * (PANEL_W + GAP_X), TOP + row * (PANEL_H + GAP_Y)
        self.low, self.high = low, high

    def x(self, rate):
        return self.left + (math.log10(rate) - RATES[0]) / (RATES[1] - RATES[0]) * PANEL_W

    def y(self, value):
        exponent = min(max(math.log10(max(value, 1e-300)), self.low), self.high)
        return self.top + PANEL_H - (exponent - self.low) / (self.high - self.low) * PANEL_H

    def frame(self, step, title, x_title, y_title):
        bottom, right = self.top + PANEL_H, self.left + PANEL_W
        for exponent in range(self.low, self.high + 1, step):
            y = self.y(10.0 ** exponent)
            yield f'<line x1="{self.left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
            yield _text(self.left - 6, y + 4, f"1e{exponent}", "end")
        for exponent in range(RATES[0], RATES[1] + 1):
            x = self.x(10.0 ** exponent)
            yield f'<line x1="{x:.1f}" y1="{self.top}" x2="{x:.1f}" y2="{bottom}" stroke="#eee"/>'
            yield _text(x, bottom + 16, f"1e{exponent}")
        yield f'<rect x="{self.left}" y="{self.top}" width="{PANEL_W}" height="{PANEL_H}" fill="none" stroke="#000"/>'
        yield _text((self.left + right) / 2, self.top - 10, title, extra='font-weight="bold"') if title else ""
        yield _text((self.left + right) / 2, bottom + 34, x_title) if x_title else ""
        middle = self.top + PANEL_H / 2
        if y_title:
            yield _text(self.left - 52, middle, y_title,
                        extra=f'transform="rotate(-90 {self.left - 52:.1f} {middle:.1f})"')

    def curve(self, points, colour, dash=""):
        where = [(self.x(r), self.y(v)) for r, v in points if v >= 10.0 ** self.low]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        # Uniform broad and graded narrow: they lie on each other where they are alike.
        style = f'stroke-width="1.8" stroke-dasharray="{dash}"' if dash else 'stroke-width="4" stroke-opacity="0.55"'
        return f'<polyline points="{path}" fill="none" stroke="{colour}" {style}/>'

    def dots(self, points, colour, filled):
        return "".join(f'<circle cx="{self.x(r):.1f}" cy="{self.y(v):.1f}" r="2.8" fill="{colour if filled else "#fff"}" '
                       f'stroke="{colour}"/>' for r, v in points if v >= 10.0 ** self.low)


def svg(points):
    width, height = LEFT + 3 * (PANEL_W + GAP_X) + 140, TOP + 3 * (PANEL_H + GAP_Y)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="12">', f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for column, bits in enumerate((8, 4, 2)):
        error, coarser, missed = _Panel(column, 0, -3, 4), _Panel(column, 1, -12, 0), _Panel(column, 2, -12, 0)
        first = column == 0
        parts += error.frame(1, f"INT{bits}", "", "relative error of what is served" if first else "")
        parts += coarser.frame(2, "", "", "share served coarser" if first else "")
        parts += missed.frame(2, "", "flipped bits, share of stored bits", "share missed" if first else "")
        for name, colour in COLOURS.items():
            mine = [p for p in points if (p["preset"], p["bits"], p["protection"]) == (PRESET, bits, name)]
            dash = "5 4" if name.startswith("graded") else ""
            # Where next to nothing is served, its error is that of very few.
            served = [(p["rate"], error_of(p)) for p in mine if p["missed"] < 0.99]
            parts += [error.curve(served, colour, dash), error.dots(served, colour, True)]
            for panel, kind in ((coarser, "coarser"), (missed, "missed")):
                parts.append(panel.curve([(p["rate"], p[f"expected_{kind}"]) for p in mine], colour, dash))
                parts.append(panel.dots([(p["rate"], p[kind]) for p in mine if p[f"tried_{kind}"] > 0], colour, False))
        if not any(p["expected_coarser"] for p in points if p["preset"] == PRESET and p["bits"] == bits):
            parts.append(_text(coarser.left + PANEL_W / 2, coarser.top + PANEL_H / 2, "nothing coarser is left"))
    x = LEFT + 3 * (PANEL_W + GAP_X) - 30
    for i, (name, colour) in enumerate(COLOURS.items()):
        y, dash = TOP + 14 + 20 * i, "5 4" if name.startswith("graded") else ""
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{colour}" stroke-width="2" '
                     f'stroke-dasharray="{dash}"/>')
        parts.append(_text(x + 30, y, NAMES[name], "start"))
    for i, words in enumerate(("lines below: computed,", "circles: drawn")):
        parts.append(_text(x, TOP + PANEL_H + GAP_Y + 14 + 18 * i, words, "start"))
    return "\n".join(parts + ["</svg>"]) + "\n"


def _share(value):
    if value == 0:
        return "0"
    percent = value * 100
    if value < 1e-6:
        return f"{percent:.0e} %".replace("e-0", "e-")
    return f"{percent:.3g} %" if percent < 99.95 else "all"


def protection_table(points):
    yield "| codes | stored with | bytes a block | " + " | ".join(f"{r:.0e}".replace("e-0", "e-") for r in SHOWN) + " |"
    yield "|---" * (3 + len(SHOWN)) + "|"
    for bits in (8, 4, 2):
        for name, words in NAMES.items():
            mine = {p["rate"]: p for p in points if (p["preset"], p["bits"], p["protection"]) == (PRESET, bits, name)}
            cells = []
            for rate in SHOWN:
                p = mine[rate]
                if name == "nothing":
                    cells.append(f"{error_of(p):.3g}; {_share(p['damaged'])} wrong")
                elif p["missed"] > 0.999:
                    cells.append("-; 0; all")
                else:
                    cells.append(f"{error_of(p):.3g}; {_share(p['expected_coarser'])}; {_share(p['expected_missed'])}")
            yield f"| INT{bits} | {words} | {mine[SHOWN[0]]['bytes']:,} | " + " | ".join(cells) + " |"


def cost_table(costs):
    yield "| block | codes | header and runs | SECDED | Reed-Solomon | graded, SECDED | graded, Reed-Solomon |"
    yield "|---|---|---|---|---|---|---|"
    rows = {}
    for c in costs:
        if c["preset"] == PRESET:
            rows.setdefault((c["shape"], c["tokens"], c["bits"]), {})[c["protection"]] = c
    for (shape, tokens, bits), row in rows.items():
        base = row["checks"]["header_bytes"] + row["checks"]["run_bytes"]
        more = [f"{100 * row[p]['parity_bytes'] / base:.1f} %" for p in ("secded", "rs", "graded_secded", "graded_rs")]
        yield f"| {shape}, {tokens} tokens | INT{bits} | {base:,} | " + " | ".join(more) + " |"


def _mean_kl(row):
    values = row["kl_wikitext2_test"] + row["kl_eval"]
    return f"{max(sum(values) / len(values), 0):.2g}"  # An exact cache differs from itself by rounding.


def _of(row, name):
    share = row[name] / row["blocks"]
    return f"{100 * share:.3g} %" if 0 < share < 1 else "all" if share == 1 else "0"


def kl_table(rows):
    rates = sorted({r["rate"] for r in rows if r["rate"] > 0})
    clean = {r["bits"]: r for r in rows if r["rate"] == 0}
    yield "| codes | stored with | no flips | " + " | ".join(f"{r:.0e}".replace("e-0", "e-") for r in rates) + " |"
    yield "|---" * (3 + len(rates)) + "|"
    for bits in sorted(clean, reverse=True):
        for name, words in NAMES.items():
            mine = {r["rate"]: r for r in rows if r["bits"] == bits and r["protection"] == name and r["rate"] > 0}
            if not mine:
                continue
            cells = []
            for rate in rates:
                r = mine.get(rate)
                served = "" if r is None or name == "nothing" else f"; {_of(r, 'coarser')}, {_of(r, 'missed')}"
                cells.append("" if r is None else _mean_kl(r) + served)
            yield f"| INT{bits} | {words} | {_mean_kl(clean[bits])} | " + " | ".join(cells) + " |"


def main():
    results = json.loads((FOLDER / "results.json").read_text())
    (FOLDER / "protection.svg").write_text(svg(results["points"]))
    tables = {"protection": protection_table(results["points"]), "cost": cost_table(results["costs"])}
    if (FOLDER / "kl.json").exists():
        tables["kl"] = kl_table(json.loads((FOLDER / "kl.json").read_text()))
    page = PAGE.read_text()
    for name, lines in tables.items():
        page, count = re.subn(rf"(<!-- measured {name} -->\n).*?(<!-- end -->)",
                              lambda m, text="\n".join(lines): f"{m[1]}{text}\n{m[2]}", page, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE} has {count} places for the table '{name}'")
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
