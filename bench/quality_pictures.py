# SPDX-License-Identifier: MIT
"""quality_pictures - the pictures of QUALITY.md, as SVG: curves in panels beside each other, and
maps."""
import math
import os
from xml.sax.saxutils import escape

INK = ("#1b6ca8", "#c0392b", "#27853c", "#8e44ad", "#d68910", "#16808a", "#7f6a4a", "#b03a7c",
       "#4a5a6a", "#202020", "#6aa84f", "#a61c00", "#3d85c6", "#e69138")
WIDE, HIGH, MARGIN, TOP, NAMES = 420, 320, 62, 40, 300


def text(x, y, s, anchor="middle", extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>'
            f'{escape(str(s))}</text>')


def save(path, parts, wide, high):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" '
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>')
    with open(path + ".part", "w", encoding="utf-8") as f:
        f.write("\n".join((*head, *parts, "</svg>")) + "\n")
    os.replace(path + ".part", path)


def step_of(span):
    """A round distance of about five lines in the span"""
    size = 10.0 ** math.floor(math.log10(span / 5))
    return next(m * size for m in (1, 2, 5, 10) if m * size >= span / 5 * 0.999)


def ticks(low, high, log):
    """Where the grid is, and what stands there."""
    if log:
        first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
        return [(2.0 ** i, f"{100 * 2.0 ** i:.3g}") for i in range(first, last + 1)]
    step = step_of(high - low)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(i * step, f"{i * step:.6g}") for i in range(first, last + 1)]


def panel(left, p, inks):
    """The parts of one panel: p has x_name, y_name, lines {name: [(x, y)]}, log (of x), and may
    have y_range."""
    at = [q for line in p["lines"].values() for q in line]
    xs, ys = [x for x, _ in at], [y for _, y in at]
    x0, x1 = min(xs), max(xs)
    y0, y1 = p.get("y_range") or (min(ys), max(ys))
    x1, y1 = x1 if x1 > x0 else x0 + 1, y1 if y1 > y0 else y0 + 1
    step = step_of(y1 - y0)
    y0, y1 = step * math.floor(y0 / step + 1e-3), step * math.ceil(y1 / step - 1e-3)
    scale = math.log2 if p["log"] else float

    def place(x, y):
        return (left + WIDE * (scale(x) - scale(x0)) / (scale(x1) - scale(x0)),
                TOP + HIGH * (y1 - y) / (y1 - y0))

    out = []
    for x, name in ticks(x0, x1, p["log"]):
        px = place(x, y0)[0]
        out += [f'<path d="M{px:.1f} {TOP} v{HIGH}" stroke="#ddd"/>',
                text(px, TOP + HIGH + 16, name)]
    for y, name in ticks(y0, y1, False):
        py = place(x0, y)[1]
        out += [f'<path d="M{left} {py:.1f} h{WIDE}" stroke="#ddd"/>',
                text(left - 6, py + 4, name, "end")]
    out += [text(left + WIDE / 2, TOP + HIGH + 36, p["x_name"]),
            text(left - 44, TOP + HIGH / 2, p["y_name"],
                 extra=f' transform="rotate(-90 {left - 44:.1f} {TOP + HIGH / 2:.1f})"'),
            f'<rect x="{left}" y="{TOP}" width="{WIDE}" height="{HIGH}" fill="none" '
            'stroke="#888"/>']
    for name, line in p["lines"].items():
        points = [place(*q) for q in sorted(line)]
        out.append('<polyline points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) +
                   f'" fill="none" {inks[name]}/>')
        if len(points) <= 16:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="none" {inks[name]}/>'
                    for x, y in points]
    return out


def curves(path, title, panels):
    """Panels beside each other, with one legend; a name has the same colour in all."""
    names = list(dict.fromkeys(n for p in panels for n in p["lines"]))
    inks = {n: f'stroke="{INK[i % len(INK)]}" stroke-width="2"' +
            (' stroke-dasharray="6 3"' if i >= len(INK) else "") for i, n in enumerate(names)}
    parts = [text(MARGIN, 22, title, "start", ' font-size="16"')]
    for i, p in enumerate(panels):
        parts += panel(MARGIN + i * (WIDE + MARGIN + 16), p, inks)
    x = MARGIN + len(panels) * (WIDE + MARGIN + 16) - 40
    for i, n in enumerate(names):
        y = TOP + 10 + 18 * i
        parts += [f'<path d="M{x} {y} h24" {inks[n]}/>',
                  text(x + 32, y + 4, n, "start")]
    save(path, parts, x + NAMES, TOP + max(HIGH, 18 * len(names)) + 56)


def runs(row, shades):
    """(first, end, shade) of adjacent values with the same shade"""
    out = []
    for i, v in enumerate(row):
        shade = round(min(1, max(0, v)) * shades)
        if out and out[-1][2] == shade:
            out[-1][1] = i + 1
        else:
            out.append([i, i + 1, shade])
    return out


def layer_map(path, title, rows, first):
    """A row for each layer of rows[layer][token], 0 white, 1 red."""
    n, cell, shades = len(rows[0]), 12, 32
    wide = max(1, 640 // n)
    areas = [[] for _ in range(shades + 1)]
    parts = [text(MARGIN, 22, title, "start", ' font-size="16"')]
    for l, row in enumerate(rows):
        if l % 4 == 0:
            parts.append(text(MARGIN - 6, TOP + l * cell + 10, l, "end"))
        for start, end, shade in runs(row, shades):
            areas[shade].append(f"M{MARGIN + start * wide} {TOP + l * cell}h{(end - start) * wide}"
                                f"v{cell}h-{(end - start) * wide}z")
    for shade, area in enumerate(areas):
        rgb = "".join(f"{round(255 + (full - 255) * shade / shades):02x}" for full in (192, 57, 43))
        if area:
            parts.append(f'<path fill="#{rgb}" d="{"".join(area)}"/>')
    bottom = TOP + len(rows) * cell
    for i in range(0, n, max(1, n // 8)):
        parts.append(text(MARGIN + i * wide, bottom + 16, first + i))
    parts.append(text(MARGIN + n * wide / 2, bottom + 34, "token; colour: 0 white, 1 red"))
    parts.append(text(MARGIN - 40, (TOP + bottom) / 2, "layer",
                      extra=f' transform="rotate(-90 {MARGIN - 40} {(TOP + bottom) / 2:.1f})"'))
    save(path, parts, MARGIN + n * wide + MARGIN, bottom + 50)
