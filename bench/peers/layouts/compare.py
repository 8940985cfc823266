#!/usr/bin/env python3
"""One training run on 1, 2 and 4 ranks, by Tutti and by PyTorch DistributedDataParallel: how far the losses are from those of one rank.

compare.py TUTTI --out FOLDER [--python PYTHON] [--steps 200] [--config configs/quickstart.toml] [--text FILE] [--planted TUTTI2] [--add LOSSES]: both programs train the
model of the configuration on the same bytes of one text, in the same order, from the same weights, in f32 with the same global batch, AdamW and schedule; every rank has one
thread. PyTorch runs in its deterministic mode, on 2 ranks twice. TUTTI2 is a build with planted_bug.patch, which trains on 2 ranks. FOLDER gets losses.json, which
--add takes up so that only missing runs are made, and same_bits.svg (picture.py). Prints a Markdown table. Fails when Tutti's losses differ in a bit between numbers of
ranks, or when the two programs do not begin with the same loss.
"""
import argparse
import gzip
import json
import pathlib
import platform
import subprocess
import sys
import tomllib

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]
sys.path.append(str(here.parent))
import picture  # noqa: E402
from models import MODELS  # noqa: E402
from programs import count, environment, headline, hex_of, imports, program, torch_environment  # noqa: E402

DEFAULTS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}  # docs/config.md, where the configuration says nothing


def job_of(args):
    """What both programs do, the text apart."""
    config = tomllib.loads(args.config.read_text())
    model, data, training, schedule = (config[section] for section in ("model", "data", "training", "lr_scheduler"))
    expected = {"model.flavor": model["flavor"] in MODELS, "optimizer.name": config["optimizer"]["name"] == "adamw", "lr_scheduler.decay_type": schedule["decay_type"] == "cosine"}
    for key, is_known in expected.items():
        if not is_known:
            sys.exit(f"compare.py: {args.config}: {key} is something that torch_ddp.py does not do; it takes the flavors {', '.join(MODELS)}, adamw and cosine")
    optimizer = {key: value for key, value in dict(DEFAULTS, **config["optimizer"]).items() if key != "name"}
    return {"flavor": model["flavor"], "model": MODELS[model["flavor"]], "rows": training["global_batch_tokens"] // data["sequence_length"], "sequence_length": data["sequence_length"],
            "steps": args.steps, "seed": training["seed"], "max_norm": training["max_norm"], "optimizer": optimizer,
            "lr_scheduler": {"warmup_steps": min(schedule["warmup_steps"], args.steps), "min_lr_factor": schedule["min_lr_factor"]}}


def write_text(args, job):
    """The text as one document of one line of JSON for Tutti, whose rows are then cut from it in order, and as its bytes for PyTorch."""
    needed = job["steps"] * job["rows"] * job["sequence_length"]
    raw = args.text.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    text = raw[:needed + needed // 8 + 64].decode(errors="ignore")
    if len(text.encode()) < needed:
        sys.exit(f"compare.py: {args.text} has {len(text.encode())} bytes of text, and {args.steps} steps read {needed}; name a longer one with --text")
    (args.out / "text.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (args.out / "text").write_bytes(text.encode())


def losses_of(metrics, steps, name):
    losses = [json.loads(line)["loss_hex"] for line in metrics.read_text().splitlines()]
    if len(losses) != steps:
        sys.exit(f"compare.py: {name} wrote {len(losses)} of {steps} steps to {metrics}")
    return [hex_of(float.fromhex(loss)) for loss in losses]


def run(name, command, make_environment=environment):
    print(f"- {name}", file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, env=make_environment(1))
    if done.returncode != 0:
        sys.exit(f"compare.py: {name}: '{' '.join(map(str, command))}' failed: {(done.stderr or done.stdout).strip()[-1500:]}")


def run_peer(args, job, ranks, name):
    metrics = args.out / f"{name.replace(', ', '-').replace(' ', '-')}.jsonl"
    run(name, [args.python, str(here / "torch_ddp.py"), str(args.out / "job.json"), "--ranks", str(ranks), "--metrics", str(metrics)], torch_environment)
    return losses_of(metrics, job["steps"], name)


def run_tutti(args, job, tutti, ranks, name):
    folder = name.replace(", ", "-").replace(" ", "-")
    flags = {"data.paths": json.dumps([str(args.out / "text.jsonl")]), "data.tokenizer": "byte", "data.validation_fraction": 0, "training.steps": job["steps"],
             "lr_scheduler.warmup_steps": job["lr_scheduler"]["warmup_steps"], "validation.every": 0, "validation.sample_tokens": 0, "checkpoint.every": 0,
             "runtime.threads": 1, "metrics.tensorboard": "false", "metrics.report": "false", "run.dir": args.out, "run.name": folder}
    if (args.out / "initial.safetensors").exists():
        flags["checkpoint.initial_load_path"] = args.out / "initial.safetensors"
    run(name, [tutti, "train", str(args.config), "-n", str(ranks), "--quiet", "--fresh", *(f"--{key}={value}" for key, value in flags.items())])
    return losses_of(args.out / folder / "metrics.jsonl", job["steps"], name)


def machine():
    models = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return models[0] if models else platform.machine()


def about_torch(python):
    asked = subprocess.run([python, "-c", "import torch; print(torch.__version__, torch.backends.cpu.get_cpu_capability())"], capture_output=True, text=True)
    return asked.stdout.strip()


def taken_up(args, settings):
    """The runs of --add, which must be of the same settings."""
    if not args.add:
        return {}
    old = json.loads(args.add.read_text())
    other = [key for key in settings if key != "machine" and old["settings"].get(key) != settings[key]]
    if other:
        differing = ", ".join(f"{key} = {old['settings'].get(key)}, now {settings[key]}" for key in other)
        sys.exit(f"compare.py: {args.add} was made with other settings: {differing}")
    return old["runs"]


def check(runs):
    """What must hold whatever the machine."""
    one = runs["Tutti, 1 rank"]
    for name in picture.EXACT:
        wrong = [step for step, (a, b) in enumerate(zip(one, runs[name]), 1) if a != b]
        if wrong:
            sys.exit(f"compare.py: {name} differs from one rank at step {wrong[0]}: {runs[name][wrong[0] - 1]} instead of {one[wrong[0] - 1]}")
    if picture.PLANTED in runs and runs[picture.PLANTED][0] != one[0]:
        sys.exit(f"compare.py: {picture.PLANTED}: the first loss, before any gradient counts, is {runs[picture.PLANTED][0]} instead of {one[0]}: it began with other weights")
    firsts = {name: float.fromhex(losses[0]) for name, losses in runs.items()}
    if max(firsts.values()) - min(firsts.values()) > 1e-4:
        sys.exit(f"compare.py: the first losses should agree to four digits, since all programs begin with the same weights: {firsts}")


def print_table(runs):
    print("| run | last loss | steps with exactly the loss of one rank | largest difference |\n|---|---|---|---|")
    for name, losses in runs.items():
        differences = picture.differences(runs, name)
        equal = sum(d == 0 for d in differences)
        print(f"| {name} | {float.fromhex(losses[-1]):.6f} | {equal} of {len(losses)} | {max(differences):.2g} |")


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("tutti", type=program)
    flags.add_argument("--out", type=pathlib.Path, required=True)
    flags.add_argument("--python", default=sys.executable)
    flags.add_argument("--steps", type=count, default=200)
    flags.add_argument("--config", type=pathlib.Path, default=root / "configs/quickstart.toml")
    flags.add_argument("--text", type=pathlib.Path, default=pathlib.Path("/usr/share/dictd/gcide.dict.dz"))
    flags.add_argument("--planted", type=program)
    flags.add_argument("--add", type=pathlib.Path)
    args = flags.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    has_peer = imports(args.python, "torch")
    job = job_of(args)
    settings = dict(job, text=args.text.name, torch=about_torch(args.python) if has_peer else None, machine=machine())
    runs = taken_up(args, settings)
    write_text(args, job)
    (args.out / "job.json").write_text(json.dumps(dict(job, text=str(args.out / "text"))))
    if has_peer:
        run("initial weights", [args.python, str(here / "torch_ddp.py"), str(args.out / "job.json"), "--initial", str(args.out / "initial.safetensors")], torch_environment)
    else:
        print(f"- PyTorch is missing: '{args.python}' cannot import torch; --python names an interpreter that can")

    def make(name, how, *more):
        if name not in runs:
            runs[name] = how(args, job, *more, name)
            (args.out / "losses.json").write_text(picture.text_of({"settings": settings, "runs": runs}))  # --add takes up what is there after an interruption

    for ranks in (1, 2, 4):
        make(f"Tutti, {picture.ranks_text(ranks)}", run_tutti, args.tutti, ranks)
    for ranks in (1, 2, 4) if has_peer else ():
        make(f"PyTorch DDP, {picture.ranks_text(ranks)}", run_peer, ranks)
    if has_peer:
        make("PyTorch DDP, 2 ranks again", run_peer, 2)
    if args.planted:
        make(picture.PLANTED, run_tutti, args.planted, 2)
    check(runs)
    print(f"{headline()}\n")
    print_table(runs)
    if has_peer:
        if runs["PyTorch DDP, 2 ranks again"] != runs["PyTorch DDP, 2 ranks"]:
            print("- PyTorch on 2 ranks gave other losses when it ran again")
        (args.out / "same_bits.svg").write_text(picture.draw(settings, runs))
        print("\n".join(picture.findings(runs)))


if __name__ == "__main__":
    main()
