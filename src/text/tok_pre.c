/* SPDX-License-Identifier: MIT */
/* tok_pre.c - how byte-level BPE tokenizers split a text into words, by the names that GGUF files
 * have for it. */
#include "tok_pre.h"
#include "base/words.h"

#include <string.h>

/* The expressions are those of the original tokenizers. Where an alternative cannot match less and
 * still succeed it is possessive, so that no text makes matching slow. */

/* Unicode White_Space, inside a class. PCRE2's own \s has U+180E too. */
#define WS                                                                                         \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define DIGIT   "\\p{N}"
#define SUFFIX  "'(?:s|t|re|ve|m|ll|d)"
#define PREFIX  "[^\\r\\n\\p{L}\\p{N}]"
#define OTHER   " ?[^" WS "\\p{L}\\p{N}]++"
#define NEWLINE "[" WS "]*[\\r\\n]++|"
#define SPACE   "[" WS "]+(?![^" WS "])|[" WS "]++"
#define GPT2    SUFFIX "| ?\\p{L}++| ?\\p{N}++|" OTHER "|" SPACE
/* GPT-4's expression, with the most digits that a word may have */
#define GPT4(digits)                                                                               \
    "(?i:" SUFFIX ")|" PREFIX "?+\\p{L}++|\\p{N}" digits "|" OTHER "[\\r\\n]*+|" NEWLINE SPACE
/* GPT-4o's words: letters that change from capitals to small ones at most once */
#define CAPITAL "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT4O(suffix, digits)                                                                      \
    PREFIX "?" CAPITAL "*" SMALL "++" suffix "|" PREFIX "?" CAPITAL "++" SMALL "*+" suffix         \
           "|\\p{N}" digits "|" OTHER "[\\r\\n/]*+|" NEWLINE SPACE
#define SENTENCE " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]++"

/* Alphabets with capitals, as DeepSeek lists them */
#define ALPHABETS                                                                                  \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}-\\x{377}\\x{37b}-\\x{37d}"        \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                  \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"    \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}"                 \
    "\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                 \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}"         \
    "\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}"        \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                 \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}"         \
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}"         \
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}-\\x{2184}"                  \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}-\\x{2cf3}"                 \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"                 \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"                 \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"             \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"         \
    "\\x{1e900}-\\x{1e943}"
#define WIDE_PUNCTUATION                                                                           \
    "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"
#define HAN_TO_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]++"
#define HAN_AND_KANA  "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]++"

/* clang-format off */
static const struct tok_pre rows[] = {
    { "gpt2 gpt-2 default phi-2 jais exaone4 trillion", { GPT2 }, 0, 0, 0 },
    { "olmo mpt", { GPT2 }, 1, 0, 0 },
    { "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2", { GPT4("{1,3}+") }, 0, 1, 1 },
    { "dbrx smaug-bpe glm4 chatglm-bpe", { GPT4("{1,3}+") }, 0, 0, 0 },
    { "qwen2 deepseek-r1-qwen stablelm2", { GPT4("") }, 1, 0, 0 },
    { "hunyuan solar-open", { GPT4("") }, 0, 0, 0 },
    { "qwen35", { "(?i:" SUFFIX ")|" PREFIX "?[\\p{L}\\p{M}]++|\\p{N}| ?[^" WS
                  "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+|" NEWLINE SPACE }, 1, 0, 0 },
    { "smollm starcoder refact codeshell exaone minerva-7b", { DIGIT, GPT2 }, 0, 0, 0 },
    { "command-r", { DIGIT, GPT2 }, 1, 0, 0 },
    { "falcon", { "[\\p{P}$+<=>^`|~]++", GPT2, "[0-9][0-9][0-9]" }, 0, 0, 0 },
    { "deepseek-llm", { "[\\r\\n]", "[" WS "]?[" ALPHABETS "]++",
                        "[" WS "]?[" WIDE_PUNCTUATION "]++",
                        /* blanks that do not end the text are not tried from each of them */
                        "[" WS "]++(*SKIP)$", HAN_TO_HANGUL, "\\p{N}++" }, 0, 0, 0 },
    { "deepseek-coder", { "[\\r\\n]", "[" WS "]?\\p{L}++", "[" WS "]?\\p{P}++", HAN_TO_HANGUL,
                          DIGIT }, 0, 0, 0 },
    { "deepseek-v3 hunyuan-dense joyai-llm", { "\\p{N}{1,3}+", HAN_AND_KANA,
                       "[!-/:-@\\[-`{-~][A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++|"
                       " ?[\\p{P}\\p{S}]++[\\r\\n]*+|" NEWLINE SPACE }, 0, 0, 0 },
    { "tekken", { GPT4O("", "") }, 0, 1, 1 },
    { "gpt-4o llama4 minimax-m2", { GPT4O("(?i:" SUFFIX ")?+", "{1,3}+") }, 0, 0, 0 },
    { "bloom poro-chat gpt3-finnish", { SENTENCE }, 0, 0, 0 },
    { "viking", { SENTENCE, DIGIT }, 0, 0, 0 },
    { "bailingmoe bailingmoe2 llada-moe",
      { "'(?i:[sdmt]|ll|ve|re)|" PREFIX "?+\\p{L}++|\\p{N}|" OTHER "[\\r\\n]*+|[" WS "]*[\\r\\n]|"
        SPACE }, 0, 0, 0 },
    { "seed-coder", { "(?i:" SUFFIX ")|" PREFIX "?+\\p{L}++|\\p{N}|" OTHER "|" NEWLINE SPACE },
      0, 0, 0 },
};
/* clang-format on */

enum { N_ROW = sizeof rows / sizeof *rows };

const struct tok_pre *cb_tok_pre(const char *name, size_t n)
{
    for (int i = 0; i < N_ROW; i++)
        if (cb_word_index(rows[i].names, ' ', name, n) >= 0)
            return &rows[i];
    return NULL;
}

const struct tok_pre *cb_tok_pre_row(int i)
{
    return i >= 0 && i < N_ROW ? &rows[i] : NULL;
}
