"""A Llama-like decoder in PyTorch with the weights of a Hugging Face folder in f32, in its two calls, as torch_decoder.py exports them.

Suffixes of names: T tokens of a call, C keys that the cache has room for, H heads, K heads of keys, E numbers of a head. A cache is a list of keys and values by layer, [1, K, C, E] each.
"""
import json
import pathlib

import numpy
import torch
from torch import nn
from torch.nn import functional as F

READ_TOKENS, WRITE_KEYS = 65, 256  # as `tutti bench package --model` has them
CACHE_KEYS = 320  # the room of a cache
CALLS = {"read": (0, READ_TOKENS), "write": (WRITE_KEYS, 1)}  # the first position and the number of tokens


def tokens_of(first, count, vocab):
    """The text of `tutti bench package --model`."""
    return (7 * torch.arange(first, first + count) + 3) % vocab


def weights_in(folder):
    """The tensors of model.safetensors: the length of a header, the header, the numbers."""
    raw = numpy.memmap(pathlib.Path(folder) / "model.safetensors", mode="r")
    begin = 8 + int(raw[:8].view("<u8")[0])
    weights = {}
    for name, told in json.loads(bytes(raw[8:begin])).items():
        if name != "__metadata__":
            assert told["dtype"] == "F32", f"{name} has the dtype {told['dtype']}; tutti convert --dtype f32 writes F32"
            first, end = told["data_offsets"]
            weights[name] = torch.from_numpy(raw[begin + first:begin + end].view("<f4").reshape(told["shape"]).copy())
    return weights


class Decoder(nn.Module):
    """What both calls share. Projections that read the same numbers are one product, which was as fast or faster everywhere."""

    def __init__(self, folder):
        super().__init__()
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        assert config["model_type"] == "llama" and config["hidden_act"] == "silu" and not config.get("rope_scaling"), f"{folder} holds no plain Llama"
        self.layers, self.heads, self.kv_heads = config["num_hidden_layers"], config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim, self.eps, self.vocab = config["head_dim"], config["rms_norm_eps"], config["vocab_size"]
        weights = weights_in(folder)
        self.tensors = nn.ParameterDict()
        self.hold("embedding", weights["model.embed_tokens.weight"])
        self.hold("norm", weights["model.norm.weight"])
        if not config["tie_word_embeddings"]:
            self.hold("head", weights["lm_head.weight"])
        for i in range(self.layers):
            of = lambda *names: torch.cat([weights[f"model.layers.{i}.{name}.weight"] for name in names])
            self.hold(f"norm1_{i}", of("input_layernorm"))
            self.hold(f"qkv_{i}", of("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"))
            self.hold(f"o_{i}", of("self_attn.o_proj"))
            self.hold(f"norm2_{i}", of("post_attention_layernorm"))
            self.hold(f"gate_up_{i}", of("mlp.gate_proj", "mlp.up_proj"))
            self.hold(f"down_{i}", of("mlp.down_proj"))
        rates = config["rope_theta"] ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)
        angles = torch.arange(1024, dtype=torch.float64)[:, None] * rates
        self.register_buffer("cos", angles.cos().float())
        self.register_buffer("sin", angles.sin().float())

    def hold(self, name, tensor):
        self.tensors[name] = nn.Parameter(tensor, requires_grad=False)

    def normed(self, x, name):
        return F.rms_norm(x, (x.shape[-1],), self.tensors[name], self.eps)

    def new_cache(self):
        return [torch.zeros(1, self.kv_heads, CACHE_KEYS, self.head_dim) for _ in range(2 * self.layers)]

    def qkv(self, x_TD, i):
        return F.linear(self.normed(x_TD, f"norm1_{i}"), self.tensors[f"qkv_{i}"])

    def heads_of(self, x_TD, i, cos, sin):
        """q [1, H, T, E], k and v [1, K, T, E] of the tokens of a call."""
        sizes = [count * self.head_dim for count in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (part.view(1, len(x_TD), -1, self.head_dim).transpose(1, 2) for part in self.qkv(x_TD, i).split(sizes, -1))

        def turned(x):
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        return turned(q), turned(k), v

    def after_attention(self, x_TD, attended_TD, i):
        x_TD = x_TD + F.linear(attended_TD, self.tensors[f"o_{i}"])
        gate, up = F.linear(self.normed(x_TD, f"norm2_{i}"), self.tensors[f"gate_up_{i}"]).chunk(2, -1)
        return x_TD + F.linear(F.silu(gate) * up, self.tensors[f"down_{i}"])

    def logits(self, x_TD):
        """Those of the last token."""
        return F.linear(self.normed(x_TD[-1:], "norm"), self.tensors["head" if "head" in self.tensors else "embedding"])


class Read(Decoder):
    """A text's first tokens, which see one another only; their keys and values are written into the cache in place."""

    def forward(self, tokens, cache):
        count, x = len(tokens), self.tensors["embedding"][tokens]
        for i in range(self.layers):
            q, k, v = self.heads_of(x, i, self.cos[:count], self.sin[:count])
            cache[2 * i][:, :, :count], cache[2 * i + 1][:, :, :count] = k, v
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = self.after_attention(x, attended[0].transpose(0, 1).reshape(count, -1), i)
        return self.logits(x)


class Write(Decoder):
    """One token at a position, written into the cache in place; it sees the keys up to its own."""

    def forward(self, token, position, cache):
        x = self.tensors["embedding"][token]
        seen = (torch.arange(CACHE_KEYS) <= position)[None, None, None]
        for i in range(self.layers):
            q, k, v = self.heads_of(x, i, self.cos[position], self.sin[position])
            keys, values = cache[2 * i], cache[2 * i + 1]
            keys.index_copy_(2, position, k), values.index_copy_(2, position, v)
            groups = q.view(1, self.kv_heads, -1, self.head_dim)  # the heads that share keys are rows of one product
            attended = F.scaled_dot_product_attention(groups, keys, values, attn_mask=seen)
            x = self.after_attention(x, attended.reshape(1, -1), i)
        return self.logits(x)


class Grouped(Decoder):
    """Either call with GroupQueryAttention, ONNX Runtime's op that turns, caches and attends; the new caches may lie in the memory of the old ones. last_key and keys are one i32 each."""

    def forward(self, tokens, last_key, keys, cache):
        x, caches = self.tensors["embedding"][tokens], []
        shape, options = cache[0].shape, {"num_heads": self.heads, "kv_num_heads": self.kv_heads, "do_rotary": 1}
        for i in range(self.layers):
            given = [self.qkv(x, i)[None], None, None, cache[2 * i], cache[2 * i + 1], last_key, keys, self.cos, self.sin]
            attended, *new = torch.onnx.ops.symbolic_multi_out("com.microsoft::GroupQueryAttention", given, options, dtypes=[torch.float32] * 3,
                                                               shapes=[[1, len(tokens), self.heads * self.head_dim], shape, shape], version=1)
            caches += new
            x = self.after_attention(x, attended[0], i)
        return (self.logits(x), *caches)
