"""The plot of the page as SVG: mean KL, on a logarithmic axis, against bits a value."""
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 560, 80, 190, 30, 60
BITS = (2.0, 9.2)
COLOURS = {"firn": "#c0392b", "firn-fast": "#e67e22", "gain": "#b7950b", "KVmix": "#d35400", "MiKV": "#7f8c8d", "KIVI": "#2471a3", "KVQuant": "#1e8449",
           "integers": "#6c3483", "FP8": "#117a65", "FP4": "#566573", "reference": "#17202a"}


def _line(x1, y1, x2, y2, colour="#000", width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def _text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{words}</text>'


class _Axes:
    def __init__(self, kls):
        self._low, self._high = math.floor(math.log10(min(kls))), math.ceil(math.log10(max(kls)))

    def x(self, bits):
        return LEFT + (bits - BITS[0]) / (BITS[1] - BITS[0]) * (WIDTH - LEFT - RIGHT)

    def y(self, kl):
        share = (math.log10(max(kl, 10.0 ** self._low)) - self._low) / (self._high - self._low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def drawn(self):
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        for exponent in range(self._low, self._high + 1):
            y = self.y(10.0 ** exponent)
            yield _line(LEFT, y, right, y, "#ddd")
            yield _text(LEFT - 8, y + 4, f"1e{exponent}", "end")
        for bits in range(2, 10):
            yield _line(self.x(bits), TOP, self.x(bits), bottom, "#eee")
            yield _text(self.x(bits), bottom + 18, str(bits))
        yield _line(LEFT, bottom, right, bottom) + _line(LEFT, TOP, LEFT, bottom)
        yield _text((LEFT + right) / 2, HEIGHT - 18, "bits a value, metadata included")
        middle = (TOP + bottom) / 2
        yield _text(22, middle, "mean KL of two texts, nats a token", extra=f'transform="rotate(-90 22 {middle:.1f})"')


def _point(x, y, low, high, colour, title, preset):
    size = 5 if preset else 3
    return (_line(x, low, x, high, colour, 0.8) + f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="'
            f'{colour if preset else "#fff"}" stroke="{colour}" stroke-width="1.5"><title>{title}</title></circle>')


def _envelope(axes, points, colour):
    """The lower envelope as a staircase."""
    path, best = [], None
    for bits, kl, *_ in sorted(points):
        if best is None or kl < best:
            path += [] if best is None else [(axes.x(bits), axes.y(best))]
            path.append((axes.x(bits), axes.y(kl)))
            best = kl
    path.append((axes.x(BITS[1]), axes.y(best)))
    return (f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in path)}" fill="none" stroke="{colour}" '
            'stroke-width="1" stroke-dasharray="4 3"/>')


def svg(points):
    """points: family -> [(bits, kl, low, high, name, is a preset)]."""
    axes = _Axes([p[1] for family in points.values() for p in family])
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             'font-size="13">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *axes.drawn()]
    for i, (family, members) in enumerate(sorted(points.items())):
        colour = COLOURS.get(family, "#888")
        if family == "firn":
            parts.append(_envelope(axes, members, colour))
        for bits, kl, low, high, name, preset in members:
            title = f"{name}: {bits:.3f} bits, {kl:.3g}"
            parts.append(_point(axes.x(bits), axes.y(kl), axes.y(low), axes.y(high), colour, title, preset))
        y = TOP + 20 + 22 * i
        parts.append(f'<circle cx="{WIDTH - RIGHT + 30}" cy="{y - 4}" r="5" fill="{colour}"/>')
        parts.append(_text(WIDTH - RIGHT + 42, y, family, "start"))
    parts.append(_text(WIDTH - RIGHT + 24, HEIGHT - BOTTOM - 30, "filled: presets", "start"))
    parts.append(_text(WIDTH - RIGHT + 24, HEIGHT - BOTTOM - 10, "bars: 95 % intervals", "start"))
    return "\n".join(parts + ["</svg>"]) + "\n"
