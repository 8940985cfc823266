#!/usr/bin/env python3
"""What compare.py measured as SVG: steps against the distance of the loss from that of the same program on one rank, with a row for exactly 0.

picture.py LOSSES PICTURE draws the picture of a losses.json again.
"""
import json
import math
import pathlib
import sys
import textwrap

WIDTH, HEIGHT, LEFT, RIGHT, TOP, PLOT, ZERO = 1000, 560, 84, 246, 74, 350, 56
PLANTED = "Tutti, planted bug, 2 ranks"
PEERS = {"PyTorch DDP, 2 ranks": "#d9661f", "PyTorch DDP, 4 ranks": "#b3202c"}
EXACT = {"Tutti, 2 ranks": "#4d8fe8", "Tutti, 4 ranks": "#17479e"}
SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def ranks_text(ranks):
    return f"{ranks} rank{'s' * (ranks > 1)}"


def differences(runs, name):
    """Per step |loss - loss of the same program on one rank|, exact: both are f32."""
    one = runs[f"{name.split(',')[0]}, 1 rank"]
    return [abs(float.fromhex(a) - float.fromhex(b)) for a, b in zip(runs[name], one)]


def band(runs):
    """Per step the largest difference of the peers up to that step."""
    highest, result = 0.0, []
    for step in zip(*(differences(runs, name) for name in PEERS)):
        highest = max(highest, *step)
        result.append(highest)
    return result


def planted_finding(runs):
    difference = differences(runs, PLANTED)
    above = [step for step, (d, b) in enumerate(zip(difference, band(runs)), 1) if d > b]
    changed = next((step for step, d in enumerate(difference, 1) if d > 0), None)
    if changed is None:
        return "The planted bug changes no loss."
    text = f"The planted bug changes the loss from step {changed} on"
    if not above:
        return f"{text} and stays in the band in all {len(difference)} steps."
    times = "once" if len(above) == 1 else f"in {len(above)} of {len(difference)} steps, last at step {above[-1]}"
    return f"{text}. It leaves the band at step {above[0]} and is above it {times}."


def findings(runs):
    """What the picture shows, as sentences."""
    steps = len(runs["Tutti, 1 rank"])
    lines = []
    for name in PEERS:
        d = differences(runs, name)
        first = next((step for step, value in enumerate(d, 1) if value > 0), None)
        told = f"the loss first differs from that of one rank at step {first}, and later by up to {max(d):.2g}" if first else "all losses are those of one rank"
        lines.append(f"{name}: {told}.")
    same = all(runs[name] == runs["Tutti, 1 rank"] for name in EXACT)
    lines.append(f"Tutti on 2 and on 4 ranks: {'all' if same else 'not all'} {steps} losses are those of one rank, to the last bit.")
    if PLANTED in runs:
        lines.append(planted_finding(runs))
    return lines


def text(x, y, words, size=13, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" {more}>{words}</text>'


def line(x1, y1, x2, y2, color="#444", width=1.0, more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}" {more}/>'


def draw(settings, runs):
    peers = {name: differences(runs, name) for name in PEERS}
    planted = differences(runs, PLANTED) if PLANTED in runs else []
    positive = [d for row in [*peers.values(), planted] for d in row if d > 0] or [1e-7, 1e-6]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    high += high == low
    steps, bottom, plot_width = settings["steps"], TOP + PLOT, WIDTH - LEFT - RIGHT
    zero = bottom + ZERO / 2 + 6
    x_of = lambda step: LEFT + plot_width * (step - 1) / max(1, steps - 1)
    y_of = lambda d: bottom - PLOT * (math.log10(d) - low) / (high - low) if d > 0 else zero
    points = lambda row: " ".join(f"{x_of(step):.1f},{y_of(d):.1f}" for step, d in enumerate(row, 1))

    told = findings(runs)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" fill="#111" role="img" aria-labelledby="title description">',
           '<title id="title">Difference of the training loss between numbers of ranks, for PyTorch DDP and for Tutti</title>',
           f'<desc id="description">{" ".join(told)}</desc>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fff"/>',
           text(LEFT, 28, "The same run on more ranks: how far is the loss from that of one rank?", 18, "start", 'font-weight="bold"'),
           text(LEFT, 50, f"{steps} steps of the {settings['flavor']} model, f32, {settings['rows']} rows of {settings['sequence_length']} tokens per step, "
                "the rows divided among the ranks; one thread per rank", 13, "start", 'fill="#444"')]
    for exponent in range(low, high + 1):
        y = y_of(10.0**exponent)
        out += [line(LEFT, y, LEFT + plot_width, y, "#ddd"), text(LEFT - 10, y + 4, "10" + str(exponent).translate(SUPERSCRIPTS), 13, "end")]
    tick = max(1, 10 ** math.floor(math.log10(max(1, steps / 4))))
    tick *= next((k for k in (1, 2, 5) if steps / (tick * k) <= 8), 5)
    for step in sorted({1, *range(tick, steps + 1, tick)}):
        out += [line(x_of(step), bottom + 6 + ZERO, x_of(step), bottom + 11 + ZERO), text(x_of(step), bottom + 27 + ZERO, step)]
    out.append(f'<rect x="{LEFT}" y="{bottom + 6}" width="{plot_width}" height="{ZERO}" fill="#e8f0fb"/>')
    out += [f'<rect x="{LEFT}" y="{y}" width="{plot_width}" height="{h}" fill="none" stroke="#444"/>' for y, h in ((TOP, PLOT), (bottom + 6, ZERO))]
    out += [text(LEFT - 10, zero + 4, "exactly 0", 13, "end"), text(LEFT + plot_width / 2, bottom + 48 + ZERO, "step"),
            text(26, TOP + PLOT / 2, "|loss \u2212 loss on one rank|", 13, more=f'transform="rotate(-90 26 {TOP + PLOT / 2})"')]

    envelope = [(x_of(step), y_of(d)) for step, d in enumerate(band(runs), 1) if d > 0]
    if envelope:
        border = [f"{envelope[0][0]:.1f},{bottom:.1f}", *(f"{x:.1f},{y:.1f}" for x, y in envelope), f"{envelope[-1][0]:.1f},{bottom:.1f}"]
        out.append(f'<polygon points="{" ".join(border)}" fill="#d9661f" fill-opacity="0.10"/>')
    for name, color in PEERS.items():
        out.append(f'<polyline points="{points(peers[name])}" fill="none" stroke="{color}" stroke-width="1.3" stroke-linejoin="round"/>')
    if planted:
        out.append(f'<polyline points="{points(planted)}" fill="none" stroke="#1a1a1a" stroke-width="1.8" stroke-dasharray="5 3" stroke-linejoin="round"/>')
    for index, (name, color) in enumerate(EXACT.items()):
        row = differences(runs, name)
        shift = (index - 0.5) * 9  # both lie on 0: one above the other
        out.append(f'<polyline points="{" ".join(f"{x_of(step):.1f},{y_of(d) + shift * (d == 0):.1f}" for step, d in enumerate(row, 1))}" fill="none" stroke="{color}" stroke-width="3"/>')

    x = LEFT + plot_width + 18
    legend = [(name, color, 1.8, "") for name, color in PEERS.items()]
    if planted:
        legend.append(("Tutti with a planted bug,", "#1a1a1a", 1.8, 'stroke-dasharray="5 3"'))
    y = TOP + 12
    for name, color, width, dash in legend:
        out += [line(x, y, x + 24, y, color, width + 0.7, dash), text(x + 32, y + 4, name, 13, "start")]
        y += 24
    if planted:
        for words in ("2 ranks: the gradient of one", "weight is not summed"):
            out.append(text(x + 32, y - 3, words, 12, "start", 'fill="#444"'))
            y += 16
    y += 6
    out.append(f'<rect x="{x}" y="{y - 7}" width="24" height="14" fill="#d9661f" fill-opacity="0.10" stroke="#d9661f" stroke-opacity="0.4"/>')
    for words in ("band: up to the largest", "difference between layouts", "of PyTorch so far"):
        out.append(text(x + 32, y + 4, words, 13 if words.startswith("band") else 12, "start", "" if words.startswith("band") else 'fill="#444"'))
        y += 16
    if planted:
        y += 14
        for words in textwrap.wrap(planted_finding(runs), 33):
            out.append(text(x, y, words, 12, "start", 'font-style="italic"'))
            y += 16
    for shift, (name, color) in zip((-9, 9), EXACT.items()):
        out += [line(x, zero + shift, x + 24, zero + shift, color, 3), text(x + 32, zero + shift + 4, name, 13, "start", 'font-weight="bold"')]
    out.append(text(LEFT, HEIGHT - 14, f"PyTorch {settings['torch'].split()[0]}, deterministic mode, Gloo; {settings['machine']}. A point in the lower row has exactly the loss of one rank.", 11, "start",
                    'fill="#444"'))
    return "\n".join(out) + "\n</svg>\n"


def text_of(document):
    """JSON with one line per setting and few lines per run."""
    settings = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in document["settings"].items())
    runs = ",\n".join(f"  {json.dumps(name)}: [\n" + ",\n".join("    " + ", ".join(map(json.dumps, losses[i:i + 10])) for i in range(0, len(losses), 10)) + "]"
                      for name, losses in document["runs"].items())
    return f'{{"settings": {{\n{settings}\n}}, "runs": {{\n{runs}\n}}}}\n'


def main():
    document = json.loads(pathlib.Path(sys.argv[1]).read_text())
    pathlib.Path(sys.argv[2]).write_text(draw(document["settings"], document["runs"]))


if __name__ == "__main__":
    main()
