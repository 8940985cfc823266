"""Seeded text in which tokenizers differ: code, scripts, marks, joiners, digits, white space, names of special tokens."""
import random

WORDS = """the of and to in is that it was for on are with as his they be at one have this from or had by hot word but some
there we can out other were all your when up use how said each she which their time if will way about many then them Über
naïve façade Ångström coöperate jalapeño don't I'M you'LL WE'VE it'ſ he'd O'Reilly 'tis McDonald iPhone HTTPServer
нещо Бълга́рия Москва ёлка Ελλάδα ΟΔΥΣΣΕΥΣ İstanbul ırmak straße ŠKODA ﬁnance ǅungla عربي مَرْحَبًا עִבְרִית हिन्दी नमस्ते ไทย ภาษา தமிழ்
中文 漢字かな交じり カタカナ 한국어 각 豈 𠀀 𫠠 你好，世界。""".split()
CODE = ["for (int i = 0; i < n; ++i) {\n\treturn x[i]->y * 0x1F;\n}\n", "def f(self, *args):\n    return f\"{self.x!r}\"\n\n",
        "<div class=\"a b\">&amp;</div>\r\n", "#include <vector>\n\n\n", "SELECT * FROM t WHERE a >= 10 AND b != 'x';",
        "$ ls -la ~/.cache 2>&1 | grep '^d'", "https://example.org/a?b=c&d=%20#e", "{\"k\": [1, 2.5e-3, null]}"]
MARKS = ["e\u0301", "a\u0323\u0302", "q\u0307\u0323", "o\u0308\u0304", "\u1100\u1161\u11a8", "\u0915\u093c", "\u212b", "n\u0303\u0331", "\u0301", "\u0345"]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "🦙", "1️⃣"]
DIGITS = ["0", "7", "42", "365", "1984", "65536", "3.14159", "1,000,000", "٣٤٥", "१२३", "Ⅷ", "½", "²", "①"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", " \n", "\r\n", "\n ", "\u00a0", "\u3000", "\u2003", "\u0085", "\u2028", "\u200b", "\x0b", "\x1c"]
SIGNS = list(".,;:!?-–—_()[]{}\"'`~@#$%^&*+=|\\/<>«»“”…€£¥©™§¶†") + ["...", "!!!", "--", "::", "=>", "\u0000", "\u007f", "\ufffd", "\ufeff", "\u00ad", "\u200d"]
LOOK_ALIKES = ["<|endoftext|", "<|endoftext |>", "|endoftext|>", "<| im_start |>", "[ CLS ]", "[cls]", "<|", "|>", "[MASK"]


def mixed_text(seed, parts, special=()):
    """`parts` random parts; names of `special` tokens are among them."""
    rng = random.Random(seed)
    kinds = [(WORDS, 12), (CODE, 1), (MARKS, 1), (EMOJI, 1), (DIGITS, 2), (SPACES, 2), (SIGNS, 4), (LOOK_ALIKES, 1)]
    if special:
        kinds.append((list(special), 1))
    text = []
    for _ in range(parts):
        text.append(rng.choice(rng.choices([k for k, _ in kinds], [w for _, w in kinds])[0]))
        if rng.random() < 0.6:
            text.append(" ")
    return "".join(text)
