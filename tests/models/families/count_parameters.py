#!/usr/bin/env python3
"""Writes parameter_counts.json: the keys of published config.json files that decide sizes and maths, and how many
parameters the classes of transformers make of them (on the device "meta", which holds no memory).

  count_parameters.py      (Python 3.11, torch 2.15.0, transformers 5.24.0)

Each entry says where its keys come from: "file", a copy of the published config.json; "package", a model that a package
ships; "known", general knowledge, of which the number of parameters confirms the sizes but not rope, eps and lengths.
Keys are in the older spelling, as in the files. active_parameters leaves out idle experts and BERT's pooler.
"""
import json
import pathlib

import torch
import transformers

LLAMA = dict(model_type="llama", head_dim=128, vocab_size=128256, rms_norm_eps=1e-5, rope_theta=500000.0,
             max_position_embeddings=131072, tie_word_embeddings=False, attention_bias=False, mlp_bias=False)
SMOLLM = dict(model_type="llama", head_dim=64, vocab_size=49152, rms_norm_eps=1e-5, rope_theta=100000,
              rope_scaling=None, max_position_embeddings=8192, tie_word_embeddings=True)
MISTRAL = dict(model_type="mistral", vocab_size=32768, rms_norm_eps=1e-5, rope_theta=1e6, max_position_embeddings=32768,
               tie_word_embeddings=False, sliding_window=None)
MIXTRAL = dict(model_type="mixtral", vocab_size=32000, rms_norm_eps=1e-5, rope_theta=1e6, max_position_embeddings=32768,
               tie_word_embeddings=False, sliding_window=None, num_local_experts=8, num_experts_per_tok=2)
QWEN2 = dict(model_type="qwen2", vocab_size=152064, rms_norm_eps=1e-6, rope_theta=1e6, max_position_embeddings=131072,
             tie_word_embeddings=False, use_sliding_window=False)
QWEN3 = dict(model_type="qwen3", head_dim=128, vocab_size=151936, rms_norm_eps=1e-6, rope_theta=1000000,
             rope_scaling=None, max_position_embeddings=40960, tie_word_embeddings=False, attention_bias=False,
             use_sliding_window=False, sliding_window=None)
GEMMA2 = dict(model_type="gemma2", vocab_size=256000, head_dim=256, rms_norm_eps=1e-6, rope_theta=10000.0,
              max_position_embeddings=8192, sliding_window=4096, query_pre_attn_scalar=256, attn_logit_softcapping=50.0,
              final_logit_softcapping=30.0, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh")
GEMMA3 = dict(model_type="gemma3_text", vocab_size=262144, head_dim=256, rms_norm_eps=1e-6, rope_theta=1000000,
              rope_local_base_freq=10000, rope_scaling=None, max_position_embeddings=32768, sliding_window=512,
              sliding_window_pattern=6, query_pre_attn_scalar=256, hidden_activation="gelu_pytorch_tanh")
GEMMA3_LARGE = GEMMA3 | dict(vocab_size=262208, rope_scaling=dict(factor=8.0, rope_type="linear"),
                             max_position_embeddings=131072, sliding_window=1024)
GEMMA4 = dict(model_type="gemma4_text", vocab_size=262144, head_dim=256, global_head_dim=512, rms_norm_eps=1e-6,
              max_position_embeddings=131072, sliding_window=512, hidden_activation="gelu_pytorch_tanh",
              final_logit_softcapping=30.0, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144)
GEMMA4_LARGE = GEMMA4 | dict(sliding_window=1024, hidden_size_per_layer_input=0, attention_k_eq_v=True)
MIXTURE = QWEN3 | dict(model_type="qwen3_moe", num_experts=128, num_experts_per_tok=8, norm_topk_prob=True,
                       decoder_sparse_step=1, mlp_only_layers=[])


def sizes(hidden, ffn, layers, heads, kv_heads):
    return dict(hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads)


def llama3(factor):
    return dict(rope_scaling=dict(rope_type="llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=8192))


def window(layers, length=131072):  # keys that change nothing while use_sliding_window is false
    return dict(max_window_layers=layers, sliding_window=length)


def kinds(periods, period):
    return (["sliding_attention"] * (period - 1) + ["full_attention"]) * periods


SMALL = dict(vocab_size=151936, tie_word_embeddings=True)
TIED = dict(tie_word_embeddings=True)
MODELS = [  # name, source, parameters that were expected, keys
    ("Llama-3.1-8B", "file", 8030261248, LLAMA | sizes(4096, 14336, 32, 32, 8) | llama3(8.0)),
    ("Llama-3.1-70B", "known", 70553706496, LLAMA | sizes(8192, 28672, 80, 64, 8) | llama3(8.0)),
    ("Llama-3.1-405B", "known", 405853388800, LLAMA | sizes(16384, 53248, 126, 128, 8) | llama3(8.0)),
    ("Llama-3.2-1B", "known", 1235814400, LLAMA | TIED | sizes(2048, 8192, 16, 32, 8) | llama3(32.0)
     | dict(head_dim=64)),
    ("Llama-3.2-3B", "file", 3212749824, LLAMA | TIED | sizes(3072, 8192, 28, 24, 8) | llama3(32.0)),
    ("SmolLM2-135M", "package", 134515008, SMOLLM | sizes(576, 1536, 30, 9, 3)),
    ("SmolLM2-360M", "known", 361821120, SMOLLM | sizes(960, 2560, 32, 15, 5)),
    ("SmolLM2-1.7B", "file", 1711376384, SMOLLM | sizes(2048, 8192, 24, 32, 32) | dict(rope_theta=130000)),
    ("Mistral-7B-v0.1", "file", 7241732096, MISTRAL | sizes(4096, 14336, 32, 32, 8)
     | dict(vocab_size=32000, rope_theta=10000.0, sliding_window=4096)),
    ("Mistral-7B-v0.3", "file", 7248023552, MISTRAL | sizes(4096, 14336, 32, 32, 8)),
    ("Mixtral-8x7B", "known", 46702792704, MIXTRAL | sizes(4096, 14336, 32, 32, 8)),
    ("Mixtral-8x22B", "known", 140630071296, MIXTRAL | sizes(6144, 16384, 56, 48, 8)
     | dict(vocab_size=32768, max_position_embeddings=65536)),
    ("Qwen2.5-0.5B", "file", 494032768, QWEN2 | SMALL | sizes(896, 4864, 24, 14, 2) | window(24, 32768)
     | dict(max_position_embeddings=32768)),
    ("Qwen2.5-1.5B", "known", 1543714304, QWEN2 | SMALL | sizes(1536, 8960, 28, 12, 2) | window(28)),
    ("Qwen2.5-3B", "file", 3085938688, QWEN2 | SMALL | sizes(2048, 11008, 36, 16, 2) | window(36, 32768)
     | dict(max_position_embeddings=32768)),
    ("Qwen2.5-7B", "file", 7615616512, QWEN2 | sizes(3584, 18944, 28, 28, 4) | window(28)),
    ("Qwen2.5-14B", "file", 14770033664, QWEN2 | sizes(5120, 13824, 48, 40, 8) | window(48) | dict(rms_norm_eps=1e-5)),
    ("Qwen2.5-32B", "file", 32763876352, QWEN2 | sizes(5120, 27648, 64, 40, 8) | window(64) | dict(rms_norm_eps=1e-5)),
    ("Qwen2.5-72B", "known", 72706203648, QWEN2 | sizes(8192, 29568, 80, 64, 8) | window(80) | dict(rms_norm_eps=1e-5)),
    ("Qwen3-0.6B", "known", 596049920, QWEN3 | TIED | sizes(1024, 3072, 28, 16, 8)),
    ("Qwen3-1.7B", "known", 1720574976, QWEN3 | TIED | sizes(2048, 6144, 28, 16, 8)),
    ("Qwen3-4B", "file", 4022468096, QWEN3 | TIED | sizes(2560, 9728, 36, 32, 8)),
    ("Qwen3-8B", "file", 8190735360, QWEN3 | sizes(4096, 12288, 36, 32, 8)),
    ("Qwen3-14B", "file", 14768307200, QWEN3 | sizes(5120, 17408, 40, 40, 8)),
    ("Qwen3-32B", "file", 32762123264, QWEN3 | sizes(5120, 25600, 64, 64, 8)),
    ("Qwen3-30B-A3B", "file", 30532122624, MIXTURE | sizes(2048, 6144, 48, 32, 4) | dict(moe_intermediate_size=768)),
    ("Qwen3-235B-A22B", "known", 235093634560, MIXTURE | sizes(4096, 12288, 94, 64, 4)
     | dict(moe_intermediate_size=1536)),
    ("Gemma-2-2B", "known", 2614341888, GEMMA2 | sizes(2304, 9216, 26, 8, 4)),
    ("Gemma-2-9B", "known", 9241705984, GEMMA2 | sizes(3584, 14336, 42, 16, 8)),
    ("Gemma-2-27B", "known", 27227128320, GEMMA2 | sizes(4608, 36864, 46, 32, 16)
     | dict(head_dim=128, query_pre_attn_scalar=144)),
    ("Gemma-3-270M", "known", 268098176, GEMMA3 | sizes(640, 2048, 18, 4, 1)),
    ("Gemma-3-1B", "known", 999885952, GEMMA3 | sizes(1152, 6912, 26, 4, 1)),
    ("Gemma-3-4B", "known", 3880263168, GEMMA3_LARGE | sizes(2560, 10240, 34, 8, 4)),
    ("Gemma-3-12B", "known", 11766034176, GEMMA3_LARGE | sizes(3840, 15360, 48, 16, 8)),
    ("Gemma-3-27B", "known", 27009346304, GEMMA3_LARGE | sizes(5376, 21504, 62, 32, 16)
     | dict(head_dim=128, query_pre_attn_scalar=168)),
    ("Gemma-4-E2B", "known", 4628569344, GEMMA4 | sizes(1536, 6144, 35, 8, 1)
     | dict(num_kv_shared_layers=20, use_double_wide_mlp=True, layer_types=kinds(7, 5))),
    ("Gemma-4-E4B", "known", 7463013376, GEMMA4 | sizes(2560, 10240, 42, 8, 2) | dict(num_kv_shared_layers=18)),
    ("Gemma-4-31B", "known", 30697345280, GEMMA4_LARGE | sizes(5376, 21504, 60, 32, 16)
     | dict(num_global_key_value_heads=4)),
    ("Gemma-4-26B-A4B", "known", 25233141760, GEMMA4_LARGE | sizes(2816, 2112, 30, 16, 8)
     | dict(num_global_key_value_heads=2, enable_moe_block=True, num_experts=128, top_k_experts=8,
            moe_intermediate_size=704)),
    ("all-MiniLM-L6-v2", "package", 22713216, dict(
        model_type="bert", hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=12,
        vocab_size=30522, max_position_embeddings=512, type_vocab_size=2, layer_norm_eps=1e-12, hidden_act="gelu")),
]


def count(keys):
    """(all parameters, without idle experts and without BERT's pooler, which embeddings of sentences do not use)."""
    keys = dict(keys)
    config = transformers.AutoConfig.for_model(keys.pop("model_type"), **keys)
    with torch.device("meta"):
        is_encoder = config.model_type == "bert"
        model = (transformers.AutoModel if is_encoder else transformers.AutoModelForCausalLM).from_config(config)
    parameters = dict(model.named_parameters())  # a tied head appears once
    every = sum(p.numel() for p in parameters.values())
    experts = sum(p.numel() for name, p in parameters.items() if ".experts." in name)
    pooler = sum(p.numel() for name, p in parameters.items() if name.startswith("pooler."))
    active = getattr(config, "num_experts_per_tok", None) or getattr(config, "top_k_experts", None)
    used = experts * active // config.num_experts if experts else 0
    return every, every - experts + used - pooler


def main():
    lines = []
    for name, source, expected, keys in MODELS:
        every, active = count(keys)
        assert every == expected, f"{name}: {every}, expected {expected}"
        entry = {"name": name, "source": source, "parameters": every, "active_parameters": active, "config": keys}
        lines.append(json.dumps(entry))
        print(f"{name:18} {every:>15,} {active:>15,} {source}")
    pathlib.Path(__file__).with_name("parameter_counts.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
