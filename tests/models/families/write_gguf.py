#!/usr/bin/env python3
"""Writes model.gguf into some of the folders, as llama.cpp's converter makes it of model.safetensors, in float32.

  write_gguf.py LLAMA_CPP      (the folder vendor/llama.cpp in the source of llama_cpp_python 0.3.36; torch, transformers)

In files of `llama` the rows of q and k are in pair layout, and rope_freqs.weight holds what the angles are divided by. The
folders have no tokenizer, so tokenizer.ggml.model is "none". What the file's tensors say is compared with the safetensors.
"""
import json
import pathlib
import sys

import numpy as np
import torch

import decoder_float64 as formulas
import gemma4_float64

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = ("llama-llama3", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "gemma4", "gemma4-experts", "mixtral")
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp"}
GEMMA4 = {"model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
          "model.per_layer_projection_norm": "per_layer_proj_norm", "per_layer_input_gate": "inp_gate",
          "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
          "post_feedforward_layernorm_1": "post_ffw_norm_1", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
          "post_feedforward_layernorm_2": "post_ffw_norm_2", "router.proj": "ffn_gate_inp"}
# Names without ".weight" at their end.
WHOLE = {"layer_scalar": "layer_output_scale.weight", "router.scale": "ffn_gate_inp.scale",
         "router.per_expert_scale": "ffn_down_exps.scale", "experts.gate_up_proj": "ffn_gate_up_exps.weight",
         "experts.down_proj": "ffn_down_exps.weight"}
GEMMA = NAMES | GEMMA4 | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                 "post_feedforward_layernorm": "post_ffw_norm"}


def convert(base, get_model_class, folder):
    keys = base.ModelBase.load_hparams(folder, False)
    model_class = get_model_class(keys["architectures"][0])
    model_class.set_vocab = lambda self: self._set_vocab_none()
    vocabulary = folder / "tokenizer.json"  # the converter of Gemma 3 counts the tokens there
    is_missing = not vocabulary.exists()
    if is_missing:
        tokens = {str(i): i for i in range(keys["vocab_size"])}
        vocabulary.write_text(json.dumps({"model": {"vocab": tokens}, "added_tokens": []}))
    with torch.inference_mode():
        model_class(folder, base.gguf.LlamaFileType.ALL_F32, folder / "model.gguf", model_name=folder.name).write()
    if is_missing:
        vocabulary.unlink()


def pair_layout(matrix, heads):
    """Row 2i + j of a head is row j * D/2 + i of the half layout."""
    return matrix.reshape(heads, 2, -1, matrix.shape[-1]).swapaxes(1, 2).reshape(matrix.shape)


def expected_tensors(folder):
    """{name in GGUF: values}, written from the description of the format."""
    is_gemma4 = json.loads((folder / "config.json").read_text())["model_type"] == "gemma4_text"
    config, tensors = (gemma4_float64 if is_gemma4 else formulas).Config.read(folder / "config.json"), {}
    for name, value in formulas.read_safetensors(folder / "model.safetensors").items():
        part = name.split(".", 3)[-1]
        if is_gemma4 and part in WHOLE:
            tensors[f"blk.{name.split('.')[2]}.{WHOLE[part]}"] = value
            continue
        stem, kind = name.rsplit(".", 1)
        prefix = ""
        if stem.startswith("model.layers."):
            _, _, layer, stem = stem.split(".", 3)
            prefix = f"blk.{layer}."
        stem = stem.replace("block_sparse_moe.", "mlp.")
        if stem.startswith("mlp.experts."):
            _, _, _, part = stem.split(".")
            part = {"w1": "gate", "w2": "down", "w3": "up"}.get(part, part.removesuffix("_proj"))
            tensors.setdefault(f"{prefix}ffn_{part}_exps.weight", []).append(value)
            continue
        if config.family in ("llama", "mixtral") and stem in ("self_attn.q_proj", "self_attn.k_proj"):
            value = pair_layout(value, config.heads if "q_proj" in stem else config.kv_heads)
        if config.is_gemma and not is_gemma4 and stem.endswith("norm"):
            value = (value.astype(np.float32) + np.float32(1)).astype(np.float64)
        tensors[f"{prefix}{(GEMMA if config.is_gemma else NAMES)[stem]}.{kind}"] = value
    tensors = {name: np.stack(value) if isinstance(value, list) else value for name, value in tensors.items()}
    if is_gemma4:
        pairs = config.dim_of("full_attention") // 2
        turning = int(config.rope("full_attention")["partial_rotary_factor"] * pairs)
        tensors["rope_freqs.weight"] = np.array([1.0] * turning + [1e30] * (pairs - turning))
        return tensors
    rope = config.rope()
    if rope["rope_type"] == "llama3":
        plain, _ = formulas.inverse_frequencies(rope | {"rope_type": "default"}, config.head_dim)
        tensors["rope_freqs.weight"] = plain / formulas.inverse_frequencies(rope, config.head_dim)[0]
    return tensors


def check(gguf, folder):
    reader = gguf.GGUFReader(folder / "model.gguf")
    written, expected = {t.name: t.data for t in reader.tensors}, expected_tensors(folder)
    assert set(written) == set(expected), set(written) ^ set(expected)
    for name, value in expected.items():
        assert written[name].dtype == np.float32 and written[name].shape == value.shape, name
        np.testing.assert_allclose(written[name], value, rtol=1e-6 if name == "rope_freqs.weight" else 0, err_msg=name)
    print(folder.name, len(written), "tensors", (folder / "model.gguf").stat().st_size, "bytes")
    for key, field in reader.fields.items():
        print("  ", key, field.contents())


def main():
    sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
    from conversion import base, get_model_class
    for name in FOLDERS:
        convert(base, get_model_class, HERE / name)
        check(base.gguf, HERE / name)


if __name__ == "__main__":
    main()
