#!/usr/bin/env python3
"""Writes the small tokenizer.json files in this folder and the ids that HuggingFace tokenizers gives with them.

Run as: make_cases.py (needs the package tokenizers; the files say with which version they were made)

Each file has the structure of a published family and a vocabulary learned here. FAMILY.ids.json holds, for the texts
of texts.json, the ids without any special tokens ("plain"), and those of the texts that differ with the names of special
tokens read as these tokens ("special"), one text with the tokens that the post-processor adds ("framed"), and what the plain
ids decode to where that is not the text ("decoded").
"""
import json
import pathlib
import random

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from mixed_text import mixed_text

FOLDER = pathlib.Path(__file__).parent
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
FLAGS = ["<left>", "<right>", "<both>", "solo", "caf\u00e9", "\u212b", "<a>", "<a>b", "<|x|>", "  "]
VOCABULARY = 450


def token(content, special=True, **flags):
    return AddedToken(content, special=special, **{"normalized": False, **flags})


def byte_level(pre_tokenizer, added, normalizer=None, ignore_merges=False, post=None):
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.ByteLevel()
    made.post_processor = post or processors.ByteLevel(trim_offsets=False)
    if normalizer:
        made.normalizer = normalizer
    made.train_from_iterator([mixed_text(seed, 400) for seed in range(20)], trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    made.add_tokens(added)
    return made


def split(pattern):
    return pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")


def without_some_merges(made):
    """Every seventh merge is dropped, so that tokens remain which only ignore_merges finds."""
    content = json.loads(made.to_str())
    content["model"]["merges"] = [m for i, m in enumerate(content["model"]["merges"]) if i % 7]
    return Tokenizer.from_str(json.dumps(content))


def with_frame(made, before):
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{before} $A", pair=f"{before} $A {before} $B",
                                      special_tokens=[(before, made.token_to_id(before))])])
    return made


def word_piece(**normalization):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(**normalization)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator([mixed_text(seed, 400) for seed in range(20)], trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, limit_alphabet=250, show_progress=False,
        special_tokens=[token(name) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")])
    made.enable_truncation(16)
    made.enable_padding(length=32, pad_id=0, pad_token="[PAD]")
    return made


def sentence_piece(normalizer, pre_tokenizer, strips, added=(), has_all_bytes=True):
    """Characters with byte fallback: <unk>, <s>, </s>, the bytes, then what is learned from text without rare characters."""
    learned = Tokenizer(models.BPE())
    learned.normalizer = normalizers.Sequence([normalizers.Replace(" ", "\u2581")])
    learned.train_from_iterator([mixed_text(seed, 400) for seed in range(20)], trainers.BpeTrainer(
        vocab_size=VOCABULARY, limit_alphabet=120, max_token_length=12, show_progress=False))
    content = json.loads(learned.to_str())
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256) if has_all_bytes or byte != 0xCC]
    tokens += [text for text in content["model"]["vocab"] if text not in tokens]
    content["model"] |= {"vocab": {text: i for i, text in enumerate(tokens)}, "unk_token": "<unk>", "fuse_unk": True,
                         "byte_fallback": True}
    made = Tokenizer.from_str(json.dumps(content))
    made.normalizer = normalizer
    if pre_tokenizer:
        made.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strips else []))
    made.add_special_tokens([token("<unk>"), token("<s>"), token("</s>")])
    made.add_tokens(list(added))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                        special_tokens=[("<s>", 1)])
    return made


def families():
    escape, prepend = normalizers.Replace(" ", "\u2581"), normalizers.Prepend("\u2581")
    chat_tokens = [token("<|im_start|>"), token("<think>", special=False), token("[SEP]", normalized=True)]
    yield "llama2", sentence_piece(normalizers.Sequence([prepend, escape]), None, True)
    yield "mistral", sentence_piece(None, pre_tokenizers.Metaspace("\u2581", "first", split=False), True, chat_tokens)
    yield "metaspace", sentence_piece(None, pre_tokenizers.Metaspace("\u2581", "always", split=True), True, chat_tokens,
                                      has_all_bytes=False)
    yield "gemma", sentence_piece(escape, pre_tokenizers.Split(" ", "merged_with_previous"), False,
                                  [*chat_tokens, token("\n\n", special=False)])
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    regex = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    chat = [token("<|endoftext|>"), token("<|im_start|>"), token("<|im_end|>"), token("<think>", special=False)]
    yield "gpt2", byte_level(regex, [token("<|endoftext|>", normalized=True)])
    yield "smollm2", byte_level(pre_tokenizers.Sequence([digits, regex]), chat[:3])
    yield "qwen2", byte_level(pre_tokenizers.Sequence([split(QWEN), plain]), chat, normalizers.NFC())
    yield "llama3", with_frame(without_some_merges(byte_level(
        pre_tokenizers.Sequence([split(LLAMA3), plain]), chat, ignore_merges=True)), "<|im_start|>")
    spaced = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False),
                                      pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)])
    yield "prefix_space", byte_level(spaced, chat)
    yield "flags", byte_level(regex, [
        token("<left>", lstrip=True), token("<right>", rstrip=True), token("<both>", lstrip=True, rstrip=True),
        token("solo", special=False, single_word=True), token("caf\u00e9", special=False, normalized=True),
        token("\u212b", special=False, normalized=True), token("<a>", special=False), token("<a>b", special=False),
        token("<|x|>", normalized=True), token("  ", special=False, normalized=True, single_word=True)],
        normalizers.Sequence([normalizers.NFC()]))
    yield "bert", word_piece()
    yield "bert_cased", word_piece(lowercase=False, clean_text=False, handle_chinese_chars=False)


def flag_text(seed):
    rng = random.Random(seed)
    between = ["", "", " ", "  ", "\n", "\u00a0", "\u3000", "a", "9", "_", ".", "\u0301", "\u24b6", "cafe\u0301", "\u00c5"]
    return "".join(rng.choice(FLAGS) + "".join(rng.choice(between) for _ in range(rng.randrange(3))) for _ in range(8))


def main():
    texts = ["", " ", "  leading and trailing  ", "x" * 101, "y" * 100 + " z"]
    texts += [mixed_text(1000 + seed, 14, SPECIAL) for seed in range(44)] + [flag_text(seed) for seed in range(12)]
    (FOLDER / "texts.json").write_text(json.dumps(texts, ensure_ascii=False) + "\n")
    for name, made in families():
        (FOLDER / f"{name}.json").write_text(made.to_str(pretty=False) + "\n")
        made.no_truncation()
        made.no_padding()
        made.encode_special_tokens = True
        plain = [made.encode(text, add_special_tokens=False).ids for text in texts]
        framed = made.encode(texts[2]).ids
        made.encode_special_tokens = False
        special = [made.encode(text, add_special_tokens=False).ids for text in texts]
        result = {"made_with": f"tokenizers {tokenizers.__version__}", "plain": plain,
                  "special": {str(i): ids for i, ids in enumerate(special) if ids != plain[i]}, "framed": framed}
        # The decoder of the library takes "\u00e9" of an added token for a byte.
        decoded = {} if name == "flags" else {i: made.decode(ids, skip_special_tokens=False) for i, ids in enumerate(plain)}
        result["decoded"] = {i: text for i, text in decoded.items() if text != texts[i]}
        (FOLDER / f"{name}.ids.json").write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
