"""The tiny models of make_families.py: {folder: (class of the config, its keys, whether positions are far apart)}.

Sizes are odd, heads * head_dim differs from the hidden size where the class allows it, and no two sizes are equal. The
angles of far positions, to 9,036, differ between the kinds of scaling; they are relative, so one row has gaps.
"""
from transformers import (Gemma2Config, Gemma3TextConfig, Gemma4TextConfig, LlamaConfig, MistralConfig, MixtralConfig, Qwen2Config,
                          Qwen3Config, Qwen3MoeConfig)

WIDE = dict(vocab_size=31, hidden_size=18, intermediate_size=19, num_hidden_layers=3, num_attention_heads=9,
            num_key_value_heads=3, head_dim=6)
NARROW = dict(vocab_size=23, hidden_size=15, intermediate_size=13, num_hidden_layers=3, num_attention_heads=3,
              num_key_value_heads=1, head_dim=8)
ANGLES = {**NARROW, "head_dim": 12, "max_position_embeddings": 16384}
SIX_HEADS = {**ANGLES, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "hidden_size": 18}
QWEN2 = dict(vocab_size=29, hidden_size=24, intermediate_size=17, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2)  # the class has no head_dim
QWEN2_TIED = {**QWEN2, "hidden_size": 18, "num_attention_heads": 3, "num_key_value_heads": 1,
              "tie_word_embeddings": True}
MIXTURE = dict(vocab_size=19, hidden_size=17, intermediate_size=13, num_hidden_layers=3, num_attention_heads=6,
               num_key_value_heads=2, head_dim=4, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=7)
MIXED = {**MIXTURE, "num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3]}  # experts in layer 1 only

# The classes of Gemma want a hidden size that is a multiple of the heads, and compute no gradient for the row of a padding
# token. Caps are small, so that they matter.
GEMMA2 = dict(pad_token_id=None, vocab_size=29, hidden_size=18, intermediate_size=19, num_hidden_layers=3, num_attention_heads=6,
              num_key_value_heads=2, head_dim=8, sliding_window=9, query_pre_attn_scalar=8, attn_logit_softcapping=5.0,
              final_logit_softcapping=4.0)
# The model of 27B divides scores by sqrt(hidden_size / heads), which is not the size of its heads.
GEMMA2_27B = dict(pad_token_id=None, vocab_size=17, hidden_size=9, intermediate_size=7, num_hidden_layers=4, num_attention_heads=3,
                  num_key_value_heads=1, head_dim=4, sliding_window=11, query_pre_attn_scalar=3)
GEMMA3 = dict(pad_token_id=None, vocab_size=31, hidden_size=20, intermediate_size=17, num_hidden_layers=7, num_attention_heads=4,
              num_key_value_heads=2, head_dim=6, sliding_window=8, query_pre_attn_scalar=6)
GEMMA3_WIDE = dict(pad_token_id=None, vocab_size=23, hidden_size=15, intermediate_size=22, num_hidden_layers=4, num_attention_heads=5,
                   num_key_value_heads=1, head_dim=12, sliding_window=7, query_pre_attn_scalar=12,
                   max_position_embeddings=16384, final_logit_softcapping=6.0, attention_bias=True,
                   layer_types=["full_attention", "sliding_attention", "sliding_attention",
                                                     "full_attention"])

# Gemma 4 like its E2B: layers that share keys and values and are twice as wide, inputs of each layer.
SLIDES, FULL = "sliding_attention", "full_attention"
GEMMA4 = dict(pad_token_id=None, vocab_size=31, vocab_size_per_layer_input=31, hidden_size=20, intermediate_size=9,
              num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=1, head_dim=6, global_head_dim=10,
              sliding_window=8, hidden_size_per_layer_input=5, num_kv_shared_layers=2, use_double_wide_mlp=True,
              layer_types=[SLIDES, FULL] * 3, final_logit_softcapping=6.0)
# Like its 31B: keys of full layers are their values, of fewer heads.
GEMMA4_KEYS = dict(pad_token_id=None, vocab_size=29, hidden_size=18, intermediate_size=13, num_hidden_layers=5,
                   num_attention_heads=6, num_key_value_heads=3, head_dim=8, global_head_dim=12,
                   num_global_key_value_heads=2, attention_k_eq_v=True, sliding_window=7, hidden_size_per_layer_input=0,
                   layer_types=[SLIDES, SLIDES, FULL, SLIDES, FULL], final_logit_softcapping=5.0, attention_bias=True,
                   rope_parameters={FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.5,
                                           "rope_theta": 1000000.0},
                                    SLIDES: {"rope_type": "default", "rope_theta": 20000.0}})
# Like its 26B-A4B: experts beside the feed-forward.
GEMMA4_EXPERTS = dict(pad_token_id=None, vocab_size=23, hidden_size=15, intermediate_size=11, num_hidden_layers=3,
                      num_attention_heads=3, num_key_value_heads=3, head_dim=6, global_head_dim=8,
                      num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=9,
                      hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=5, top_k_experts=2,
                      moe_intermediate_size=7, layer_types=[SLIDES, SLIDES, FULL], final_logit_softcapping=4.0)


def angles(kind, theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


LLAMA3 = angles("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128)
YARN = angles("yarn", factor=4.0, original_max_position_embeddings=32)
YARN_MSCALE = angles("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=0.5, mscale=0.7,
                     mscale_all_dim=1.3, truncate=False)

DECODERS = {
    "llama": (LlamaConfig, WIDE, False),
    "llama-bias": (LlamaConfig, NARROW | {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-5}, False),
    "llama-tied": (LlamaConfig, WIDE | {"num_hidden_layers": 2, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}
                   | angles("default", 100000.0), False),
    "llama-llama3": (LlamaConfig, SIX_HEADS | {"eos_token_id": [2, 5, 7]} | LLAMA3, True),
    "llama-linear": (LlamaConfig, ANGLES | angles("linear", factor=4.0), True),
    "llama-yarn-mscale": (LlamaConfig, ANGLES | YARN_MSCALE, True),
    "mistral": (MistralConfig, NARROW | {"sliding_window": None, "rms_norm_eps": 1e-5}, False),
    "mistral-window": (MistralConfig, NARROW | {"sliding_window": 11}, False),
    "mixtral": (MixtralConfig, dict(vocab_size=21, hidden_size=18, intermediate_size=11, num_hidden_layers=3,
                                    num_attention_heads=6, num_key_value_heads=2, head_dim=4, num_local_experts=5,
                                    sliding_window=None), False),
    "mixtral-window": (MixtralConfig, dict(vocab_size=23, hidden_size=15, intermediate_size=7, num_hidden_layers=2,
                                           num_attention_heads=3, num_key_value_heads=3, head_dim=6,
                                           num_local_experts=3, sliding_window=10), False),
    "qwen2": (Qwen2Config, QWEN2, False),
    "qwen2-window": (Qwen2Config, QWEN2_TIED | {"use_sliding_window": True, "sliding_window": 9,
                                                "max_window_layers": 1}, False),
    "qwen3": (Qwen3Config, WIDE | {"hidden_size": 17, "tie_word_embeddings": True}, False),
    "qwen3-window": (Qwen3Config, NARROW | {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2},
                     False),
    "qwen3-yarn": (Qwen3Config, ANGLES | YARN, True),
    "gemma2": (Gemma2Config, GEMMA2, False),
    "gemma2-27b": (Gemma2Config, GEMMA2_27B, False),
    "gemma3": (Gemma3TextConfig, GEMMA3, False),
    "gemma3-linear": (Gemma3TextConfig, GEMMA3_WIDE | {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}}, True),
    "gemma4": (Gemma4TextConfig, GEMMA4, False),
    "gemma4-keys": (Gemma4TextConfig, GEMMA4_KEYS, True),
    "gemma4-experts": (Gemma4TextConfig, GEMMA4_EXPERTS, False),
    "qwen3_moe": (Qwen3MoeConfig, MIXTURE | {"norm_topk_prob": True}, False),
    "qwen3_moe-mixed": (Qwen3MoeConfig, MIXED | {"norm_topk_prob": False}, False),
}
