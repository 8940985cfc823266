#!/usr/bin/env python3
"""Writes what transformers makes of keys that are missing and of keys that contradict each other in config.json.

  write_config_rules.py      (Python 3.11, torch 2.15.0, transformers 5.24.0)

class_defaults.json: {model_type: {key: the class's default}}, for keys that change sizes or maths. Null means: head_dim
is hidden_size / num_attention_heads, num_key_value_heads is num_attention_heads, rope_parameters has the base 10000.
rope_spellings.json: a list of {"model_type", "config": some keys, "rope": the angles they mean}. Of the angles, "inv_freq"
has the second and the last pair's radians per position in float32 and "attention_factor" the factor of cos and sin;
"error" stands in their place where the class raises one.
"""
import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
KEYS = ("attention_bias", "attention_dropout", "attn_logit_softcapping", "decoder_sparse_step",
        "final_logit_softcapping", "head_dim", "hidden_act", "hidden_activation", "hidden_size", "intermediate_size",
        "layer_norm_eps", "layer_types", "max_position_embeddings", "max_window_layers", "mlp_bias", "mlp_only_layers",
        "moe_intermediate_size", "norm_topk_prob", "num_attention_heads", "num_experts", "num_experts_per_tok",
        "num_hidden_layers", "num_key_value_heads", "num_local_experts", "query_pre_attn_scalar", "rms_norm_eps",
        "rope_parameters", "sliding_window", "tie_word_embeddings", "type_vocab_size", "use_sliding_window",
        "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
TYPES = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "bert")

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32}
SPELLINGS = [
    {},
    {"rope_theta": 500000.0},
    {"rope_theta": 500000},
    {"rope_theta": 500000.0, "rope_scaling": None},
    {"rope_theta": 500000.0, "rope_scaling": {}},
    {"rope_parameters": None, "rope_theta": 500000.0},
    {"rope_parameters": {"rope_theta": 500000.0}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "rope_theta": 70000.0},
    {"rope_parameters": {"rope_type": "linear", "factor": 4.0}, "rope_theta": 500000.0},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 4}},
    {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 4.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0, "rope_theta": 70000.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 4.0},
     "rope_parameters": {"rope_type": "default", "rope_theta": 70000.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"factor": 4.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "linear"}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", **LLAMA3}},
    {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
    {"rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}, "original_max_position_embeddings": 512},
    {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", "factor": 4.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "factor": None}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "truncate": False}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "attention_factor": 1.25}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "attention_factor": 1.25, "mscale": 0.7,
                                              "mscale_all_dim": 1.3}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 1.3}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "mscale": 0.7}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 0}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "factor": 0.5}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "beta_fast": 8, "beta_slow": 2}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", **YARN, "beta_fast": None}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 3]}},
    {"rope_theta": 500000.0, "rope_scaling": {"type": "su"}},
    {"rope_theta": 500000.0, "partial_rotary_factor": 0.5},
    {"rope_theta": 500000.0, "partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 4.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"full_attention": {"type": "linear", "factor": 4.0}}},
]


def defaults(model_type):
    fields = type(transformers.AutoConfig.for_model(model_type)).__dataclass_fields__
    return {key: fields[key].default for key in KEYS if key in fields}


def meaning(model_type, keys):
    sizes = {"hidden_size": 24, "num_attention_heads": 2, "head_dim": 12, "num_hidden_layers": 1, "intermediate_size": 8,
             "num_key_value_heads": 2, "vocab_size": 8, "max_position_embeddings": 256}
    keys = json.loads(json.dumps(keys))  # the class changes the dictionaries that it is given
    try:
        config = transformers.AutoConfig.for_model(model_type, **sizes, **keys)
        rotary = transformers.AutoModel.from_config(config).rotary_emb
    except Exception as error:
        return {"error": type(error).__name__}
    return {"rope": {"rope_type": rotary.rope_type, "pairs": len(rotary.inv_freq),
                     "inv_freq": [float(rotary.inv_freq[i]) for i in (1, -1)],
                     "attention_factor": float(rotary.attention_scaling)}}


def main():
    lines = [f'"{model_type}": {json.dumps(defaults(model_type))}' for model_type in TYPES]
    (HERE / "class_defaults.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    lines = []
    for keys in SPELLINGS:
        of_llama = meaning("llama", keys)
        for model_type in ("llama", "qwen3"):  # the latter, which has layer_types, only where it differs
            found = meaning(model_type, keys)
            if model_type == "llama" or found != of_llama:
                lines.append(json.dumps({"model_type": model_type, "config": keys, **found}))
    (HERE / "rope_spellings.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(lines), "spellings")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    main()
