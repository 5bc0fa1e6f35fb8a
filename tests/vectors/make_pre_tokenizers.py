#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_pre_tokenizers.py - ids of 1,000 texts in 30 scripts under each pre-tokenizer

    make_pre_tokenizers.py [MODEL.gguf ...]

The pipelines are those of the models' own tokenizer.json files, run by the library `tokenizers`
over the vocabulary of tok-llama-bpe.gguf, which was trained on text that was not split into words:
a wrong split lets other merges through. For the models named, their own vocabulary and
pre-tokenizer, or SentencePiece itself. Writes tok-pre.json: the texts, and a hash of the ids of
each (64-bit FNV-1a over the ids as four bytes, the lowest first; its halves xored).

Needs: tokenizers, sentencepiece, gguf. Same input, same output.
"""

import json
import os
import random
import sys

import gguf
import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as P

from make_tokenizer import CONTROL, GPT4, TEXTS, USER, add_tokens, bpe, spm_proto

SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CAPITAL, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def gpt4o(suffix, digits):
    first = r"[^\r\n\p{L}\p{N}]?"
    return (first + CAPITAL + "*" + SMALL + "+" + suffix + "|" + first + CAPITAL + "+" + SMALL +
            "*" + suffix + r"|\p{N}" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END)


# DeepSeek's alphabets with capitals: first and last code points of the ranges
RANGES = """41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f
386 388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba
1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b
1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4
1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f
2145-2149 214e 2183-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b a722-a76f
a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3
104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943"""
ALPHABETS = "".join("-".join(chr(int(x, 16)) for x in r.split("-")) for r in RANGES.split())
HAN = "[一-龥ࠀ-一가-퟿]+"


def split(*patterns):
    return [P.Split(Regex(p), "isolated", invert=False) for p in patterns]


BYTES, GPT2 = (P.ByteLevel(add_prefix_space=False, use_regex=x) for x in (False, True))
DIGITS = P.Digits(individual_digits=True)
SENTENCE = r" ?[^(\s|.,!?…。，、।۔،)]+"

# name: steps, NFC, words that are tokens are not merged
KINDS = {
    "gpt-2": ([GPT2], 0, 0),
    "olmo": ([GPT2], 1, 0),
    "llama-bpe": (split(GPT4 % "{1,3}") + [BYTES], 0, 1),
    "dbrx": (split(GPT4 % "{1,3}") + [BYTES], 0, 0),
    "qwen2": (split(GPT4 % "") + [BYTES], 1, 0),
    "hunyuan": (split(GPT4 % "") + [BYTES], 0, 0),
    "qwen35": (split(SUFFIX + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                     r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + END) + [BYTES], 1, 0),
    "starcoder": ([DIGITS, GPT2], 0, 0),
    "command-r": ([DIGITS, GPT2], 1, 0),
    "falcon": ([P.Punctuation("contiguous"), GPT2, *split("[0-9][0-9][0-9]")], 0, 0),
    "deepseek-llm": (split(r"[\r\n]", r"\s?[" + ALPHABETS + "]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
                           r"\s+$", HAN) + [P.Digits(individual_digits=False), BYTES], 0, 0),
    "deepseek-coder": (split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN) + [DIGITS, BYTES], 0, 0),
    "deepseek-v3": (split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                          r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
                          r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + END) +
                    [BYTES], 0, 0),
    "tekken": (split(gpt4o("", "")) + [BYTES], 0, 1),
    "gpt-4o": (split(gpt4o(SUFFIX + "?", "{1,3}")) + [BYTES], 0, 0),
    "bloom": (split(SENTENCE) + [BYTES], 0, 0),
    "viking": (split(SENTENCE) + [DIGITS, BYTES], 0, 0),
    "bailingmoe": (split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|"
                         r" ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+") + [BYTES], 0, 0),
    "seed-coder": (split(SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+"
                         + END) + [BYTES], 0, 0),
}

# Thirty scripts: first and last letter of a part of each, and where it has them its digits
SCRIPTS = {
    "Latin": "0041-005a 0061-007a 00c0-00ff 0100-017f 1e00-1eff 0030-0039",
    "Greek": "0391-03c9 1f00-1f15",
    "Cyrillic": "0410-044f 0400-040f 0490-04cf", "Armenian": "0531-0556 0561-0587",
    "Georgian": "10d0-10f0 1c90-1cb0", "Hebrew": "05d0-05ea 05b0-05bd",
    "Arabic": "0621-064a 064b-0652 0660-0669 06f0-06f9", "Syriac": "0710-072c 0730-0740",
    "Thaana": "0780-07b0", "Devanagari": "0905-0939 093e-094d 0966-096f",
    "Bengali": "0985-098c 09be-09c4 09e6-09ef", "Gurmukhi": "0a05-0a0a 0a3e-0a42 0a66-0a6f",
    "Gujarati": "0a85-0a8d 0abe-0ac5 0ae6-0aef", "Tamil": "0b85-0b8a 0bbe-0bc2 0be6-0bef",
    "Telugu": "0c05-0c0c 0c3e-0c44 0c66-0c6f", "Kannada": "0c85-0c8c 0cbe-0cc4 0ce6-0cef",
    "Malayalam": "0d05-0d0c 0d3e-0d44 0d66-0d6f", "Sinhala": "0d85-0d96 0dcf-0dd4",
    "Thai": "0e01-0e30 0e31-0e3a 0e50-0e59", "Lao": "0e94-0e97 0eb1-0eb9 0ed0-0ed9",
    "Tibetan": "0f40-0f47 0f71-0f7d 0f20-0f29", "Myanmar": "1000-1021 102b-1032 1040-1049",
    "Ethiopic": "1200-1248 1369-1371", "Cherokee": "13a0-13f4 ab70-ab90",
    "Khmer": "1780-17b3 17b6-17c5",
    "Mongolian": "1820-1842 1810-1819", "Hiragana": "3041-3096", "Katakana": "30a1-30fa ff66-ff9d",
    "Han": "4e00-4e80 9f00-9fa5 3400-3420", "Hangul": "ac00-ac40 1100-1112 1161-1175",
    "Deseret": "10400-1044f", "Emoji": "1f600-1f64f 1f1e6-1f1ff 1f3fb-1f3ff 200d fe0f",
}
COMMON = [" ", " ", " ", "  ", "\n", "\r\n", "\t", "   ", "\u00a0", "\u3000", "\u2028",
          ".", ",", "!", "?", "'s", "'LL", "'re", "...", "-", "(", ")", "$", "+", "=", "<",
          "^", "`", "|", "/", "//", "123", "4567", "8", "1,000.5", "²", "Ⅷ", "।", "。", "，",
          "、", "…", "“", "”", "–", "§", "€", "́", "\u200b", "word", "Word", "WORD",
          "camelCase", "HTTPServer", "don't", "#tag", "@me", "x_y", "{", "}", "[0]", ";\n",
          "://", "\u0085", "\u001c", "ß", "ǅ", "ʰ"]


def letters(script):
    out = []
    for r in SCRIPTS[script].split():
        ends = [int(x, 16) for x in r.split("-")]
        out.append([chr(c) for c in range(ends[0], ends[-1] + 1)])
    return out


def texts(n):
    r = random.Random(7)
    names = list(SCRIPTS)
    out = [t for t in TEXTS if "\0" not in t]
    while len(out) < n:
        pools = letters(names[len(out) % len(names)])
        if r.random() < 0.3:
            pools += letters(r.choice(names))
        t = ""
        for _ in range(r.randint(1, 8)):
            pool = r.choice(pools)
            t += "".join(r.choice(pool) for _ in range(r.randint(1, 6)))
            t += "".join(r.choice(COMMON) for _ in range(r.randint(0, 3)))
        out.append(t)
    return out


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for b in i.to_bytes(4, "little"):
            h = (h ^ b) * 0x100000001B3 & (1 << 64) - 1
    return "%08x" % (h >> 32 ^ h & 0xFFFFFFFF)


def vocabulary(path):
    f = gguf.GGUFReader(path).fields
    return f, [bytes(f["tokenizer.ggml.tokens"].parts[i]).decode()
               for i in f["tokenizer.ggml.tokens"].data], f["tokenizer.ggml.token_type"].contents()


def merges_of(f):
    return [tuple(bytes(f["tokenizer.ggml.merges"].parts[i]).decode().split(" "))
            for i in f["tokenizer.ggml.merges"].data]


def pipeline(kind, tokens, types, merges):
    steps, nfc, whole = KINDS[kind]
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=merges,
                             ignore_merges=bool(whole)))
    if nfc:
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = P.Sequence(steps)
    t.decoder = decoders.ByteLevel()
    add_tokens(t, tokens, types)
    return t


def of_model(path):
    """A function from text to ids: the model's own tokenizer"""
    f, tokens, types = vocabulary(path)
    if "tokenizer.ggml.merges" in f:
        t = bpe(f["tokenizer.ggml.pre"].contents(), tokens, types, merges_of(f))
        t.encode_special_tokens = True
        return lambda x: t.encode(x, add_special_tokens=False).ids
    key = "tokenizer.ggml.add_space_prefix"
    proto = spm_proto(tokens, types, f["tokenizer.ggml.scores"].contents(),
                      key not in f or f[key].contents())
    return sentencepiece.SentencePieceProcessor(model_proto=proto).encode


def main():
    paths = [os.path.abspath(p) for p in sys.argv[1:]]
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    f, tokens, types = vocabulary("tok-llama-bpe.gguf")
    all_texts, rows = texts(1000), []
    for kind in KINDS:
        t = pipeline(kind, tokens, types, merges_of(f))
        t.encode_special_tokens = True
        rows.append({"pre": kind, "file": "tok-llama-bpe.gguf", "hashes": [
            fnv(t.encode(x, add_special_tokens=False).ids) for x in all_texts]})
    for path in paths:
        encode = of_model(path)
        rows.append({"pre": None, "file": os.path.basename(path),
                     "hashes": [fnv(encode(x)) for x in all_texts]})
    with open("tok-pre.json", "w") as out:
        out.write('{"texts": %s,\n"rows": [\n' % json.dumps(all_texts, indent=0))
        out.write(",\n".join(json.dumps(r) for r in rows) + "\n]}\n")
    for r in rows:
        same = sum(a == b for a, b in zip(r["hashes"], rows[0]["hashes"]))
        print(r["pre"] or r["file"], f"{same} texts as {rows[0]['pre']}")


main()
