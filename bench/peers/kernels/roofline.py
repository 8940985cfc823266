"""A roofline of what compare.py measured, as SVG: arithmetic per byte against arithmetic per second, below what the machine can do."""
import math

WIDTH, HEIGHT, LEFT, TOP, GAP, BELOW = 640, 470, 70, 78, 70, 150
MARKS = {"Tutti": ("circle", "#1f5fbf"), "Tutti, compiled": ("ring", "#1f5fbf"), "oneDNN": ("square", "#d9661f"), "OpenBLAS": ("triangle", "#2e8b57"),
         "PyTorch": ("diamond", "#b3202c"), "libtorch": ("diamond", "#e58a91"), "MLX": ("wedge", "#7a4fb5"), "ggml": ("cross", "#6b6b00")}


def text(x, y, words, size=12, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" {more}>{words}</text>'


def line(x1, y1, x2, y2, color="#000", width=1.0, more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}" {more}/>'


def mark(x, y, name):
    shape, color = MARKS[name]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>'
    if shape == "ring":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#fff" fill-opacity="0.6" stroke="{color}" stroke-width="2"/>'
    corners = {"square": [(-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)], "triangle": [(0, -6), (5.5, 4.5), (-5.5, 4.5)],
               "diamond": [(0, -6), (6, 0), (0, 6), (-6, 0)], "wedge": [(0, 6), (5.5, -4.5), (-5.5, -4.5)],
               "cross": [(-2, -6), (2, -6), (2, -2), (6, -2), (6, 2), (2, 2), (2, 6), (-2, 6), (-2, 2), (-6, 2), (-6, -2), (-2, -2)]}[shape]
    return f'<polygon points="{" ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)}" fill="{color}" fill-opacity="0.85"/>'


def spread(wanted, low, high, distance):
    """Places in the order of `wanted`, near them, at least `distance` apart and within [low, high]."""
    places = list(wanted)
    for _ in range(200):
        for i in range(len(places) - 1):
            short = distance - (places[i + 1] - places[i])
            if short > 0:
                places[i] -= short / 2
                places[i + 1] += short / 2
        places = [min(max(p, low + i * distance), high - (len(places) - 1 - i) * distance) for i, p in enumerate(places)]
    return places


def panel(left, threads, roof, results, x_range, y_range):
    x_of = lambda v: left + WIDTH * math.log(v / x_range[0]) / math.log(x_range[1] / x_range[0])
    y_of = lambda v: TOP + HEIGHT - HEIGHT * math.log(v / y_range[0]) / math.log(y_range[1] / y_range[0])
    out = [f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#444"/>',
           text(left + WIDTH / 2, TOP - 12, f"{threads} thread{'s' * (threads > 1)}", 15, more='font-weight="bold"')]
    for value in (10.0**e for e in range(-3, 5)):
        if x_range[0] <= value <= x_range[1]:
            out += [line(x_of(value), TOP, x_of(value), TOP + HEIGHT, "#ddd"), text(x_of(value), TOP + HEIGHT + 18, f"{value:g}")]
        if y_range[0] <= value <= y_range[1]:
            out += [line(left, y_of(value), left + WIDTH, y_of(value), "#ddd"), text(left - 8, y_of(value) + 4, f"{value:g}", anchor="end")]
    peak = roof["peak_gflops"]
    out.append(text(left + 8, y_of(peak) - 7, f"multiply-adds: {peak:.0f} GFLOP/s", 12, "start", 'fill="#333"'))
    out.append(line(left, y_of(peak), left + WIDTH, y_of(peak), "#333", 1.6))
    memory = max(roof[f"{way}_gbps"] for way in ("read", "copy", "update"))
    for rate, dash, name, below in ((memory, "", "memory", 12), (roof["cache_read_gbps"], 'stroke-dasharray="6 4"', "cache", -9)):
        start = max(x_range[0], y_range[0] / rate)
        out.append(line(x_of(start), y_of(start * rate), x_of(peak / rate), y_of(peak), "#333", 1.6, dash))
        angle = -math.degrees(math.atan2(y_of(1) - y_of(10), x_of(10) - x_of(1)))
        x, y = x_of(peak / rate) - 6 + below * 0.7, y_of(peak) + 8 + below * 0.7
        out.append(text(x, y, f"{name}: {rate:.0f} GB/s", 12, "end", f'fill="#333" transform="rotate({angle:.1f} {x:.1f} {y:.1f})"'))
    cases = sorted(dict.fromkeys(case for case, _ in results if case.short), key=lambda case: case.flops / case.nbytes)
    exact = [x_of(case.flops / case.nbytes) for case in cases]
    for case, x in zip(cases, spread(exact, left + 12, left + WIDTH - 12, 17)):
        points = [(name, y_of(results[case, name]["gflops"])) for name in MARKS if (case, name) in results]
        bottom = max(y for _, y in points)
        out.append(line(x, min(y for _, y in points), x, bottom + 9, "#999", 0.8))
        out += [mark(x, y, name) for name, y in reversed(points)]
        for halo in ('stroke="#fff" stroke-width="3" ', ""):
            out.append(text(x + 4, bottom + 14, case.short, 11, "end", f'{halo}transform="rotate(-90 {x + 4:.1f} {bottom + 14:.1f})"'))
    out += [text(left + WIDTH / 2, TOP + HEIGHT + 40, "arithmetic operations per byte of operands and results", 13),
            text(left - 48, TOP + HEIGHT / 2, "GFLOP/s", 13, more=f'transform="rotate(-90 {left - 48} {TOP + HEIGHT / 2})"')]
    return out


def draw(panels):
    drawn = [r for _, _, results in panels for (case, _), r in results.items() if case.short]
    intensities = [case.flops / case.nbytes for _, _, results in panels for case, _ in results if case.short]
    highest = max([roof["peak_gflops"] for _, roof, _ in panels] + [r["gflops"] for r in drawn])
    x_range = (min(intensities) / 2, max(intensities) * 2)
    y_range = (min(r["gflops"] for r in drawn) / 6, highest * 2)
    width, height = LEFT + len(panels) * (WIDTH + GAP), TOP + HEIGHT + BELOW - 60
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" fill="#111">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>', text(width / 2, 26, "Kernels below the roof of the machine", 19, more='font-weight="bold"')]
    for index, (threads, roof, results) in enumerate(panels):
        out += panel(LEFT + index * (WIDTH + GAP), threads, roof, results, x_range, y_range)
    present = [name for name in MARKS if any(column == name for _, _, results in panels for _, column in results)]
    for index, name in enumerate(present):
        x = width / 2 + (index - (len(present) - 1) / 2) * min(140, (width - 20) / len(present)) - 40
        out += [mark(x, height - 25, name), text(x + 12, height - 21, name, 13, "start")]
    return "\n".join(out) + "\n</svg>\n"
