#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_tokenizer.py - small vocabularies, and ids of texts by the original tokenizers.

    make_tokenizer.py BOOK.txt [MODEL.gguf ...]

Trains one small vocabulary for each pre-tokenizer and two SentencePiece models
on BOOK.txt (Project Gutenberg's book 1342) and the texts below, writes them as
tok-NAME.gguf, and the ids that the original pipelines give as tok-NAME.json.
For the models named, which must carry a vocabulary, it writes the ids only, as
tok-MODEL.json; "file" in it is the model's file name.

The pipelines are those of the models' own tokenizer.json files, run by the
library `tokenizers`; SentencePiece vocabularies are run by `sentencepiece`
itself, and by `tokenizers` where special tokens are parsed. The two are also
compared with each other here.

Needs: tokenizers, sentencepiece, gguf. Same input, same output.
"""

import io
import json
import os
import random
import re
import struct
import sys

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|><|x|>"]
USERS = ["<tool_call>", "<tool_call>x", "</tool_call>", "日本語"]

TEXTS = [
    "", "a", " ", "  ", "Hello world", "Hello, world! It's 2024.",
    "don't DON'T I'll I'LL we've WE'VE he'd HE'D I'm I'M they're THEY'RE it's IT'S 'S 'T",
    "'ſ x'ſt 'K ’s l'été d'août qu'il s'appelle '' 'll'll 'l 'r",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣٤٥٦", "नमस्ते दुनिया १२३ क्षत्रिय", "你好，世界！今天是2024年１２３",
    "こんにちは世界 カタカナ ｶﾞ", "สวัสดีชาวโลก ๑๒๓๔", "한국어 텍스트 한글", "日本語の日本語x",
    "👨‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️", "e\u0301 \u00e9 n\u0303 A\u030a \u00c5 \u212b",
    "\u1e9b\u0323 q\u0307\u0323 \u0344 \u0958 \u2126 \ufb1d", "x²³ ½ Ⅷ ① ৳ ৪৫৬৭ 𝟘𝟙 〇 ㊀ 一二三",
    "'SOME", "'REally", "'VEst", "'Mx", "'LLama", "'Dy", "'Tx", "it'SOME they'REally",
    "x'ſuch 'ſat",
    *[f" {c}!"
      for c in "\t\n\v\f\r \u0085\u00a0\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
      "\u2008\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"],
    "x\rabc\nabc \rabc\r\nabc\u0085abc",
    "tabs\t\tand\t spaces   here    \n\nnew\r\nline\r\n\r\n  end  ", "\n\n\n", "\r\n\r\n",
    "   \n  \n x", "a\u0085b \u0085 c\u0085\u0085", "\u3000全角\u3000 空白", "\x1c \x1d\x1e \x1f",
    "a\u00a0b\u00a0\u00a0c \u2003\u2028x\u2029 \u180e y\u180e \u1680\u202f\u205f\u2007",
    "nul\0\0byte\0", "\u0378 unassigned \U000e0fff \U0003fffd", "\ufeffbom \u200b\u200d zero",
    "def f(x):\n    return x**2 + 1e-5  # comment\n\n\tif (a != b) { c->d[0] += 3; }",
    "1234567890 12 3 4567 1,234,567.89 0x1F", "١٢٣٤ ۱۲۳۴ ๑๒๓ ⑴⑵", "word123word 12a34 a1b2 a  1  2 ",
    "'''''' \"\"\" ... --- === ///", "Ünïcödé straße İstanbul ŒUVRE", "\u0001\u0004\u0006\u007f",
    "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|><|endoftext|> x <|im_start|",
    "<|im_end|><|x|><|im_end|><|x|", "<tool_call>{}</tool_call> <tool_call", "<tool_call>xx y",
    "<s>[INST] hi [/INST] there </s><s>[INST]", "<unk> <0x0A> ▁ ▁▁a a▁b", " leading", "  two",
    "\ta",
    "a\u0300\u0301\u0316\u0327b \u0315\u0300\u05ae\u0062", "\u1100\u1161\u11a8 \uac00\u11a8 \uac01",
    "a" * 300, " " * 300, "é" * 100, "ab" * 100 + " " + "1" * 50, "\U0001f600" * 20,
    "\u0316\u0300" * 50,
    "mixed РУССКИЙ текст Ελληνικά עברית", "!!!\n\n???\r\r", "foo\n bar\n  baz \n", "trailing   ",
    " \t \t", "xyzzy plugh xyzzyx", "it was one of the best in the world to be at the end of a day",
    "a  b   c    d", "x\n\ny\n\n\nz", "\U0010ffff\ue000",
]

POOLS = [list(s) for s in (
    "abcdefghijklmnopqrstuvwxyzABCDEFG", "0123456789", "   \t\n\r",
    "'\".,;:!?-_()[]{}<>|/\\@#$%^&*+=~`",
    "äéñÅßøŁœſ", "абвгд", "مرحبا١٢", "कखगि्९", "你好世界，。１", "한글각",
    "\u0300\u0301\u0316\u0327\u0345\u05b0",
    "\u00a0\u0085\u3000\u2003\u2028\u180e\u200b\u1680\u202f\u205f\ufeff\x1c\x0b\x0c",
    "😀👍🏽\u200d❤\ufe0f", "²½Ⅷ①๑৪௰፩〇㊀𝟘𐄇", "\0\x01\x7f",
)] + [["'s", "'S", "'ll", "'RE", "\r\n", " '", "'ſ", "the ", "and ", "ing", "<|im_end|>",
       "<tool_call>"]]


def random_texts(n, seed=1, most=32):
    r = random.Random(seed)
    for _ in range(n):
        use = r.sample(POOLS, r.randint(1, 5))
        yield "".join(r.choice(r.choice(use)) for _ in range(r.randint(1, most)))


def pre_tokenizer(kind):
    P = pre_tokenizers
    level = P.ByteLevel(add_prefix_space=False, use_regex=kind in ("gpt2", "smollm"))
    if kind == "smollm":
        return P.Sequence([P.Digits(individual_digits=True), level])
    if kind == "gpt2":
        return level
    split = Regex(GPT4 % ("{1,3}" if kind == "llama-bpe" else ""))
    return P.Sequence([P.Split(split, "isolated", invert=False), level])


def add_tokens(t, tokens, types):
    for ty, special in ((CONTROL, True), (UNKNOWN, True), (USER, False)):
        add = [AddedToken(x, normalized=False, special=special)
               for x, y in zip(tokens, types) if y == ty]
        (t.add_special_tokens if special else t.add_tokens)(add)


def bpe(kind, tokens, types, merges):
    """The original pipeline over a vocabulary"""
    vocab = {x: i for i, x in enumerate(tokens)}
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=kind == "llama-bpe"))
    if kind == "qwen2":
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizer(kind)
    t.decoder = decoders.ByteLevel()
    add_tokens(t, tokens, types)
    return t


def spm_merges(tokens, types, scores):
    """All pairs that make a piece, best first, as transformers converts SentencePiece"""
    ids = {x: i for i, x in enumerate(tokens) if types[i] in (NORMAL, UNUSED)}
    found = []
    for piece, i in ids.items():
        for k in range(1, len(piece)):
            a, b = piece[:k], piece[k:]
            if a in ids and b in ids:
                found.append((scores[i], len(a), len(b), a, b))
    found.sort(key=lambda x: x[:3], reverse=True)
    return [(x[3], x[4]) for x in found]


def spm(tokens, types, scores, prefix):
    vocab = {x: i for i, x in enumerate(tokens)}
    merges = spm_merges(tokens, types, scores)
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True,
                             unk_token="<unk>"))
    steps = [normalizers.Prepend("▁")] if prefix else []
    t.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "▁")])
    add_tokens(t, tokens, types)
    return t


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(n, v):
    """One protobuf field"""
    if isinstance(v, float):
        return varint(n << 3 | 5) + struct.pack("<f", v)
    if isinstance(v, int):
        return varint(n << 3) + varint(v)
    v = v.encode() if isinstance(v, str) else v
    return varint(n << 3 | 2) + varint(len(v)) + v


def spm_proto(tokens, types, scores, prefix):
    """A SentencePiece model file from a vocabulary: BPE, byte fallback, nothing normalised"""
    out = b""
    for x, ty, s in zip(tokens, types, scores):
        if ty == USER:
            x = x.replace(" ", "▁")
        out += field(1, field(1, x) + field(2, float(s)) + field(3, ty))
    special = {ty: i for i, ty in enumerate(types) if ty == UNKNOWN}
    out += field(2, field(3, 2) + field(4, len(tokens)) + field(35, 1) +
                 field(40, special.get(UNKNOWN, 0))
                 + field(41, 1) + field(42, 2) + field(45, tokens[special.get(UNKNOWN, 0)]))
    return out + field(3, field(1, "identity") + field(3, int(prefix)) + field(4, 0) + field(5, 1))


def cases(t, extra, sp=None, users=()):
    """Rows of (text, special tokens parsed, ids)

    sp: SentencePiece's own program, for texts without the user-defined tokens
    `users`, behind which only the converted tokenizer puts a space.
    """
    out, apart = [], 0
    for text in TEXTS + list(random_texts(extra)):
        t.encode_special_tokens = True
        plain = t.encode(text, add_special_tokens=False).ids
        if sp and not any(u in text for u in users):
            own = sp.encode(text)
            apart += own != plain
            plain = own
        out.append((text, 0, plain))
        t.encode_special_tokens = False
        special = t.encode(text, add_special_tokens=False).ids
        if sp and not users:  # no space in front: the runs of text stand by themselves
            runs = re.split("(<s>|</s>|<unk>)", text)
            special = [i for x in runs for i in ([sp.piece_to_id(x)] if x in ("<s>", "</s>",
                                                                              "<unk>")
                                                 else sp.encode(x))]
        if special != plain and "<" in text:
            out.append((text, 1, special))
    if sp:
        print("texts on which tokenizers and sentencepiece differ:", apart)
    return out


def write_json(name, file, rows):
    with open(f"tok-{name}.json", "w") as f:
        f.write('{"file": %s, "cases": [\n' % json.dumps(file))
        f.write(",\n".join(json.dumps(r) for r in rows))
        f.write("\n]}\n")
    print(f"tok-{name}.json: {len(rows)} cases")


def write_gguf(name, model, pre, tokens, types, merges=None, scores=None, bos=None, prefix=None):
    w = gguf.GGUFWriter(f"tok-{name}.gguf", "llama")
    w.add_tokenizer_model(model)
    if pre:
        w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if merges is not None:
        w.add_token_merges([" ".join(m) for m in merges])
    if scores is not None:
        w.add_token_scores(scores)
    if prefix is not None:
        w.add_add_space_prefix(prefix)
    w.add_bos_token_id(bos)
    w.add_eos_token_id(tokens.index("</s>" if "</s>" in tokens else "<|im_end|>"))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    print(f"tok-{name}.gguf: {os.path.getsize(f'tok-{name}.gguf')} bytes, {len(tokens)} tokens")


def train_bpe(kind, text, size):
    t = Tokenizer(models.BPE())
    if kind == "qwen2":
        t.normalizer = normalizers.NFC()
    # Not split into words, so that there are merges which a wrong split would let through.
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False, min_frequency=2))
    spec = json.loads(t.to_str())["model"]
    tokens = sorted(spec["vocab"], key=spec["vocab"].get)
    merges = [tuple(m) for m in spec["merges"]]
    if kind == "smollm":  # its original lacks the letters of some bytes; no merge names these
        used = {x for m in merges for x in m}
        tokens = [x for x in tokens if x not in [c for c in "ĄĆþÿ" if c not in used]]
    if kind == "llama-bpe":  # words that no merges make
        tokens += ["xyzzy", "Ġplugh"]
    types = [NORMAL] * len(tokens) + [CONTROL] * len(SPECIAL) + [USER] * len(USERS)
    tokens += SPECIAL + USERS
    write_gguf(kind, "gpt2", kind, tokens, types, merges, bos=tokens.index(SPECIAL[0]))
    write_json(kind, f"tok-{kind}.gguf", cases(bpe(kind, tokens, types, merges), 150))


def train_spm(name, text, size, prefix, users, split=True):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=out, model_type="bpe", vocab_size=size,
        byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=prefix,
        character_coverage=0.9995, user_defined_symbols=users, split_by_whitespace=split,
        num_threads=1, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    ids = range(sp.get_piece_size())
    tokens = [sp.id_to_piece(i) for i in ids]
    scores = [sp.get_score(i) for i in ids]
    types = [UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i)
             else USER if tokens[i] in users else NORMAL for i in ids]
    t = spm(tokens, types, scores, prefix)
    spaced = [x.replace("▁", " ") if y == USER else x for x, y in zip(tokens, types)]
    write_gguf(name, "llama", None, spaced, types, scores=scores, bos=1,
               prefix=None if prefix else False)
    write_json(name, f"tok-{name}.gguf", cases(t, 150, sp, users if prefix else []))


def gemma4():
    """The pieces of spm-plain, merged by a list as Gemma 4 does: no space in front, and line breaks
    are ordinary pieces"""
    f = gguf.GGUFReader("tok-spm-plain.gguf").fields
    tokens = [bytes(f["tokenizer.ggml.tokens"].parts[i]).decode()
              for i in f["tokenizer.ggml.tokens"].data]
    types = list(f["tokenizer.ggml.token_type"].contents())
    scores = list(f["tokenizer.ggml.scores"].contents())
    for i, x in enumerate(tokens):
        if types[i] == USER and not x.startswith("<"):
            tokens[i], types[i], scores[i] = x.replace(" ", "▁"), NORMAL, -1.0 - 1 / len(x)
    if "\n" not in tokens:
        tokens, types, scores = tokens + ["\n"], types + [NORMAL], scores + [-2000.0]
    merges = spm_merges(tokens, types, scores)
    write_gguf("gemma4", "gemma4", None, tokens, types, merges, bos=1)
    write_json("gemma4", "tok-gemma4.gguf", cases(spm(tokens, types, scores, False), 150))


def from_model(path):
    f = gguf.GGUFReader(path).fields
    strings = lambda key: [bytes(f[key].parts[i]).decode() for i in f[key].data]
    tokens, types = strings("tokenizer.ggml.tokens"), f["tokenizer.ggml.token_type"].contents()
    name = os.path.basename(path).split(".Q")[0].lower()
    if "tokenizer.ggml.merges" in f:
        merges = [tuple(m.split(" ")) for m in strings("tokenizer.ggml.merges")]
        t = bpe(f["tokenizer.ggml.pre"].contents(), tokens, types, merges)
        rows = cases(t, 150)
    else:
        scores = f["tokenizer.ggml.scores"].contents()
        key = "tokenizer.ggml.add_space_prefix"
        prefix = key not in f or f[key].contents()
        sp = sentencepiece.SentencePieceProcessor(model_proto=spm_proto(tokens, types, scores,
                                                                        prefix))
        rows = [(x, 0, sp.encode(x)) for x in TEXTS + list(random_texts(150))]
    write_json(name, os.path.basename(path), rows)


def main():
    with open(sys.argv[1], encoding="utf-8-sig") as f:
        book = f.read().splitlines()[:6000]
    text = book + [x for x in TEXTS if "\0" not in x] * 3
    odd = book[:400] + [x for x in TEXTS if not any(u in x for u in SPECIAL + USERS)] * 40
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    for kind in ("gpt2", "llama-bpe", "qwen2", "smollm"):
        train_bpe(kind, odd, 2048)
    train_spm("spm", text, 2048, True, ["<tool_call>", "</tool_call>"])
    train_spm("spm-plain", text, 1024, False, ["\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>"],
              split=False)
    gemma4()
    for path in sys.argv[2:]:
        from_model(path)


if __name__ == "__main__":
    main()
