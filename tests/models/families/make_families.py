#!/usr/bin/env python3
"""Makes the folders beside this file: tiny models of published families as transformers saves them, with their results.

  make_families.py [CASE...]     (Python 3.11, torch 2.15.0, transformers 5.24.0, safetensors 0.8.0, numpy 2.4.6)

A folder has config.json, generation_config.json and model.safetensors as save_pretrained() writes them;
config_old.json, the same model in the spelling of transformers 4; and expected.safetensors:

  tokens, positions       I32 [rows, T]; positions are missing where they are 0, 1, 2, ...
  logits                  F32, transformers in float32 with eager attention
  logits_float64          F32, decoder_float64.py, which transformers in float64 agrees with to 1e-9
  logits_float32_tables   F32, the same from the float32 cos and sin of transformers, where positions are given: the
                          rounding of an angle of 9,000 is larger than that of everything else
  loss                    F64 [1], mean cross entropy of the next tokens
  gradient.NAME           F32, of that loss by transformers' autograd in float64, under the names of model.safetensors

  fault.NAME              F32, logits_float64 with a mistake of gemma4_float64.py, of the families of Gemma 4

The file of bert has tokens, types and mask (I32), hidden, embeddings, both again in float64, and the loss, which is the
sum of embeddings * probe, with its gradients.

The float64 runs rename float64 to torch.float32 meanwhile, because norms and softmax cast to that by name.
"""
import contextlib
import json
import pathlib
import sys
import zlib

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import decoder_float64 as formulas
import encoder_float64
import gemma4_float64
from cases import DECODERS

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, ROWS = 37, 2
FAR = [list(range(9000, 9000 + TOKENS)), [251 * t for t in range(TOKENS)]]
FLOAT32 = torch.float32
LARGE = ("q_proj", "k_proj", "query", "key", "gate.weight", "lm_head")
METADATA = {"format": "pt"}  # one key only: the order of several would change from run to run


@contextlib.contextmanager
def float64_for_float32():
    names, method = ("float32", "float"), torch.Tensor.float
    for name in names:
        setattr(torch, name, torch.float64)
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = method
        for name in names:
            setattr(torch, name, FLOAT32)


class Tables(torch.nn.Module):
    """Stands in for a module of rotary embeddings: cos and sin that were computed before, by kind of layer."""

    def __init__(self, tables):
        super().__init__()
        self.tables = tables

    def forward(self, x, position_ids, layer_type=None):
        return self.tables[layer_type]


def randomise(model, name):
    """Weights that make attention uneven, norms whose weights are not 1, biases that are not 0; all exact in bf16."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            values = random.standard_normal(tuple(parameter.shape))
            if parameter.ndim == 1:
                is_gemma4 = model.config.model_type == "gemma4_text"
                is_factor = key.endswith("weight") and not model.config.model_type.startswith("gemma")  # else 1 is added
                is_factor = is_factor or (is_gemma4 and not key.endswith("bias"))
                values = 0.3 * values + (1 if is_factor else 0)
                if is_gemma4 and ("q_norm" in key or "k_norm" in key):
                    values = 0.6 * values  # scores are not divided by sqrt(D)
            elif "embed" in key:
                values = values * (0.4 if getattr(model.config, "tie_word_embeddings", False) else 0.05)
            else:
                values = values * (2.0 if any(part in key for part in LARGE) else 1.0) / np.sqrt(parameter.shape[-1])
            parameter.copy_(torch.from_numpy(values))
        for key, buffer in sorted(model.named_buffers()):
            if key.endswith("layer_scalar"):
                buffer.copy_(torch.from_numpy(0.6 + 0.8 * random.random(tuple(buffer.shape))))


def published(tensors, is_mixtral):
    """Experts, which transformers 5 holds stacked, under the names that it saves: Mixtral's if `is_mixtral`. Those of
    Gemma 4 are saved as they are."""
    if any(".router.proj." in key for key in tensors):
        return dict(tensors)
    out, names = {}, ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
    for key, value in tensors.items():
        if is_mixtral:
            key = key.replace(".mlp.", ".block_sparse_moe.")
        if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            out[key] = value
            continue
        stem, kind = key.rsplit(".", 1)
        for expert, matrix in enumerate(value):
            if kind == "down_proj":
                out[f"{stem}.{expert}.{names[2]}.weight"] = matrix
            else:
                for part, half in zip(names[:2], matrix.chunk(2)):
                    out[f"{stem}.{expert}.{part}.weight"] = half
    return out


def old_spelling(keys, keeps_types=False):
    """config.json as transformers 4 wrote it."""
    keys = dict(keys)
    keys["transformers_version"], keys["torch_dtype"] = "4.43.0", keys.pop("dtype")
    if keys["model_type"] == "gemma4_text":  # the class is newer than the older spelling of angles
        of_full = list(keys.pop("per_layer_config").values())[-1]
        keys["global_head_dim"] = of_full["head_dim"]
        keys["num_global_key_value_heads"] = of_full.get("num_key_value_heads")
        return keys
    rope = dict(keys.pop("rope_parameters"))
    if "sliding_attention" in rope:  # Gemma 3
        keys["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    kind, keys["rope_theta"] = rope.pop("rope_type"), rope.pop("rope_theta")
    name = "rope_type" if "rope_local_base_freq" in keys else "type"  # Gemma 3 came later
    keys["rope_scaling"] = None if kind == "default" else {name: kind, **rope}
    if not keeps_types:
        keys.pop("layer_types", None)
    if "num_local_experts" in keys and keys["model_type"] != "mixtral":
        keys["num_experts"] = keys.pop("num_local_experts")
    return keys


def write_json(path, keys):
    path.write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")


def relative(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max())


def load(folder, config=None):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")


def run(model, tokens, positions):
    # Without a mask, positions that do not follow each other would mean several documents in a row.
    mask = torch.ones_like(tokens)
    return model(input_ids=tokens, position_ids=positions, attention_mask=mask, use_cache=False).logits


def save_model(name, model):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    randomise(model, name)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    return folder


def check_spellings(name, folder, model, tokens, positions, logits):
    keys = json.loads((folder / "config.json").read_text())
    write_json(folder / "config_old.json", old_spelling(keys, keeps_types=name == "gemma3-linear"))
    old = load(folder, transformers.AutoConfig.from_pretrained(folder / "config_old.json"))
    assert torch.equal(run(old, tokens, positions), logits), "the older spelling means another model"
    if name != "llama":
        return
    write_json(folder / "config_nested.json", {
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": 30,
        "text_config": keys, "torch_dtype": "bfloat16"})
    nested = transformers.AutoConfig.from_pretrained(folder / "config_nested.json").get_text_config()
    assert torch.equal(run(load(folder, nested), tokens, positions), logits), "the nested text model is another"


def maths_of(config):
    return gemma4_float64 if config.family == "gemma4_text" else formulas


def read_config(path):
    is_gemma4 = json.loads(path.read_text())["model_type"] == "gemma4_text"
    return (gemma4_float64 if is_gemma4 else formulas).Config.read(path)


def formulas_of(config, weights, tokens, positions, **options):
    """(logits, the smallest distance between the shares of an expert that is taken and one that is not)."""
    margins = []
    rows = zip(tokens.numpy(), positions.numpy())
    logits = np.stack([maths_of(config).forward(config, weights, row, at, margins=margins, **options)
                       for row, at in rows])
    return logits, min(margins, default=1)


def faulty(name, config, weights, tokens, positions, exact):
    """{fault.NAME: logits} of the mistakes that this model can show."""
    logits = {}
    for fault in gemma4_float64.FAULTS:
        wrong = formulas_of(config, weights, tokens, positions, fault=fault)[0]
        if np.abs(wrong - exact).max() > 0:
            logits["fault." + fault] = torch.from_numpy(wrong).float()
            print(f"{name:24} {fault:28} differs by {relative(wrong, exact):.1e}")
    return logits


def make_decoder(name, config_class, keys, far):
    folder = save_model(name, transformers.AutoModelForCausalLM.from_config(config_class(**keys)))
    positions = torch.tensor(FAR if far else [list(range(TOKENS))] * ROWS)
    config = read_config(folder / "config.json")
    weights = formulas.read_safetensors(folder / "model.safetensors")
    random = np.random.default_rng(zlib.crc32(("tokens " + name).encode()))
    margin = 0
    while margin < 1e-3:  # no token may stand so near between two experts that float32 takes the other one
        tokens = torch.from_numpy(random.integers(0, config["vocab_size"], (ROWS, TOKENS)))
        exact, margin = formulas_of(config, weights, tokens, positions)
    model = load(folder)
    with torch.no_grad():
        logits = run(model, tokens, positions)
    check_spellings(name, folder, model, tokens, positions, logits)

    older = read_config(folder / "config_old.json")
    assert all(config.rope(kind).items() <= older.rope(kind).items() for kind in config.kinds())

    rotary = model.model.rotary_emb
    kinds = config.kinds() if config.family in ("gemma3_text", "gemma4_text") else [None]
    tables = {kind: [table.double() for table in rotary(torch.empty(0), positions, *([kind] if kind else []))]
              for kind in kinds}
    double = load(folder).double()
    with float64_for_float32():
        double.model.rotary_emb = type(rotary)(double.config)
        if config.is_gemma:
            double.model.embed_tokens.embed_scale = torch.tensor(config["hidden_size"] ** 0.5, dtype=torch.float64)
        if config.family == "gemma4_text" and config["hidden_size_per_layer_input"]:
            scale = torch.tensor(config["hidden_size_per_layer_input"] ** 0.5, dtype=torch.float64)
            double.model.embed_tokens_per_layer.embed_scale = scale
        exact_logits = run(double, tokens, positions)
        worst = relative(exact_logits.detach(), exact)
        assert worst < 1e-9, f"{name}: the formulas differ by {worst}"
        loss = torch.nn.functional.cross_entropy(exact_logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        double.model.rotary_emb = Tables(tables)
        with torch.no_grad():
            double_logits = run(double, tokens, positions)
    dim_of = getattr(config, "dim_of", lambda kind: config.head_dim)
    halves = {kind: list(zip(*(table.numpy()[..., :dim_of(kind) // 2] for table in of_kind)))
              for kind, of_kind in tables.items()}
    of_row = lambda i: {kind: halves[kind if kind in halves else None][i] for kind in config.kinds()}
    from_tables = lambda weights: np.stack([maths_of(config).forward(config, weights, row, tables=of_row(i))
                                            for i, row in enumerate(tokens.numpy())])
    assert relative(double_logits, from_tables(weights)) < 1e-9
    from_positions = lambda weights: formulas_of(config, weights, tokens, positions)[0]

    gradients = published({key: p.grad for key, p in double.named_parameters()}, config.family == "mixtral")
    trained = {key for key in weights if not key.endswith("layer_scalar")}
    assert set(gradients) == trained, set(gradients) ^ trained
    step = 1e-8 if config.family == "gemma4_text" else 1e-7  # scores as they are make it steep
    slope, finite = directional(from_positions, weights, gradients, tokens.numpy(), random, step)
    assert abs(slope - finite) < 1e-6 * abs(slope) + 1e-9, f"{name}: slope {slope}, finite differences {finite}"

    expected = {"tokens": tokens.int(), "logits": logits, "logits_float64": torch.from_numpy(exact).float(),
                "loss": loss.detach()[None]}
    if far:
        expected |= {"positions": positions.int(), "logits_float32_tables": double_logits.float()}
    expected |= {"gradient." + key: g.float().contiguous() for key, g in gradients.items()}
    if config.family == "gemma4_text":
        expected |= faulty(name, config, weights, tokens, positions, exact)
    save_file(expected, folder / "expected.safetensors", METADATA)
    print(f"{name:24} loss {loss.item():.4f}  float32 differs by {relative(logits, exact):.1e}, from float32 tables by "
          f"{relative(logits, double_logits):.1e}  margin {margin:.1e}  {size_of(folder):,} bytes")


def directional(logits_of, weights, gradients, tokens, random, step):
    """The loss's slope along a random direction, by the gradients and by finite differences of the formulas."""
    direction = {key: random.standard_normal(value.shape) if key in gradients else 0 for key, value in weights.items()}

    def moved(by):
        return formulas.loss(logits_of({key: value + by * direction[key] for key, value in weights.items()}), tokens)

    slope = sum(float((gradients[key].numpy() * direction[key]).sum()) for key in gradients)
    return slope, (moved(step) - moved(-step)) / (2 * step)


def size_of(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


def make_encoder(name):
    """Three rows of 17, 11 and 5 tokens. Row 1 has two parts. The loss is the sum of embeddings * probe."""
    config = transformers.BertConfig(vocab_size=31, hidden_size=18, num_hidden_layers=3, num_attention_heads=3,
                                     intermediate_size=29, max_position_embeddings=24, type_vocab_size=2)
    model = transformers.BertModel(config)
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    randomise(model, name)
    model.to(torch.bfloat16).float().save_pretrained(folder)
    random = np.random.default_rng(zlib.crc32(("tokens " + name).encode()))
    mask = torch.tensor([[int(t < length) for t in range(17)] for length in (17, 11, 5)])
    tokens = torch.from_numpy(random.integers(1, 31, (3, 17))) * mask
    types = torch.tensor([[int(row == 1 and 6 <= t < 11) for t in range(17)] for row in range(3)])
    probe = torch.from_numpy(random.standard_normal((3, 18))).float()

    def outputs(dtype):
        module = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval().to(dtype)
        hidden = module(input_ids=tokens, token_type_ids=types, attention_mask=mask).last_hidden_state
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return module, hidden, torch.nn.functional.normalize(mean, dim=1)

    with torch.no_grad():
        _, hidden, embeddings = outputs(torch.float32)
    module, hidden64, embeddings64 = outputs(torch.float64)
    loss = (embeddings64 * probe).sum()
    loss.backward()
    keys = json.loads((folder / "config.json").read_text())
    weights = formulas.read_safetensors(folder / "model.safetensors")
    rows = zip(tokens.numpy(), types.numpy(), mask.numpy())
    exact = np.stack([encoder_float64.hidden_states(keys, weights, *row) for row in rows])
    means = np.stack([encoder_float64.embedding(*row) for row in zip(exact, mask.numpy())])
    assert relative(hidden64.detach(), exact) < 1e-9 and relative(embeddings64.detach(), means) < 1e-9
    expected = {"tokens": tokens.int(), "types": types.int(), "mask": mask.int(), "hidden": hidden,
                "hidden_float64": torch.from_numpy(exact).float(), "embeddings": embeddings,
                "embeddings_float64": torch.from_numpy(means).float(), "probe": probe, "loss": loss.detach()[None]}
    expected |= {"gradient." + key: p.grad.float() for key, p in module.named_parameters() if p.grad is not None}
    save_file(expected, folder / "expected.safetensors", METADATA)
    print(f"{name:24} float32 differs by {relative(hidden, exact):.1e}, embeddings by {relative(embeddings, means):.1e}  "
          f"{size_of(folder):,} bytes")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    chosen = sys.argv[1:] or [*DECODERS, "bert"]
    for name in chosen:
        if name == "bert":
            make_encoder(name)
        else:
            make_decoder(name, *DECODERS[name])
    print(f"{sum(size_of(HERE / name) for name in chosen):,} bytes in all")


if __name__ == "__main__":
    main()
