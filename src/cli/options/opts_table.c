/* SPDX-License-Identifier: MIT */
/* opts_table.c - every option of every command: a row each. */
#include "opts.h"

#define MAX_TOKENS (1 << 30)

/* clang-format off */
#define TITLE(set) [__builtin_ctzll(set)]

const char *const cb_opt_set_title[SET_COUNT] = {
    TITLE(SET_OWN_RUN) = "Completion",
    TITLE(SET_OWN_TOKENIZE) = "Tokens",
    TITLE(SET_OWN_INFO) = "What to show",
    TITLE(SET_OWN_BENCH) = "Tests",
    TITLE(SET_OWN_PERPLEXITY) = "Perplexity",
    TITLE(SET_OWN_CONTINUATION) = "Output of each token",
    TITLE(SET_PAIR) = "Texts",
    TITLE(SET_OWN_KLD) = "Comparison",
    TITLE(SET_OWN_NEEDLE) = "Items",
    TITLE(SET_OWN_RULER) = "Items",
    TITLE(SET_OWN_2STAGE) = "Items",
    TITLE(SET_PICK) = "Items",
    TITLE(SET_MADE) = "Items",
    TITLE(SET_TASKS) = "Items",
    TITLE(SET_CALIBRATE) = "Analysis",
    TITLE(SET_TRIAL) = "Trials",
    TITLE(SET_OWN_SIMILARITY) = "Blocks",
    TITLE(SET_PROMPT) = "Prompt",
    TITLE(SET_CHAT) = "Chat",
    TITLE(SET_GENERATE) = "Generation",
    TITLE(SET_SAMPLE) = "Sampling",
    TITLE(SET_MODEL) = "Model",
    TITLE(SET_THREADS) = "Engine",
    TITLE(SET_ENGINE) = "Engine",
    TITLE(SET_CTX) = "Context",
    TITLE(SET_POLICY) = "Context",
    TITLE(SET_POLICIES) = "Context",
    TITLE(SET_PLAN) = "Memory plan",
    TITLE(SET_JSON) = "Output",
    TITLE(SET_PROGRESS) = "Output",
    TITLE(SET_GENERAL) = "General",
    TITLE(SET_OWN_BANK) = "Bank",
    TITLE(SET_OWN_SERVE) = "Server",
    TITLE(SET_OWN_CHAT) = "Conversation",
    TITLE(SET_OWN_EMBED) = "Embedding",
    TITLE(SET_REPETITIONS) = "Sampling",
    TITLE(SET_BANK_FILE) = "Saved contexts",
    TITLE(SET_BANK_DIR) = "Saved contexts",
    TITLE(SET_OWN_QUANTIZE) = "Quantisation",
    TITLE(SET_OWN_MEASURE) = "Measurement",
    TITLE(SET_OWN_LAZY) = "Measurement",
    TITLE(SET_OWN_ATTENTION) = "Measurement",
};


const struct opt_row cb_opt_table[ARG_COUNT] = {
    [ARG_CHAT] = { "chat", .sets = SET_OWN_RUN,
        .text = "put the prompt into the model's chat template as the user's message" },

    [ARG_BANK] = { "bank", .takes = TAKES_FILE, .unit = "FILE", .sets = SET_BANK_FILE,
        .text = "begin with the context that 'ctxbank bank save' wrote to FILE; of a prompt that "
                "begins with the saved text, only the rest is computed" },
    [ARG_BANK_DIR] = { "bank-dir", .takes = TAKES_FILE, .env = 1, .unit = "FOLDER",
        .sets = SET_BANK_DIR,
        .text = "remember prompts in files of this folder, and compute only what the folder does "
                "not have of a prompt" },
    [ARG_BANK_DIR_SIZE] = { "bank-dir-size", .takes = TAKES_INT, .env = 1, .unit = "BYTES",
        .min = 0, .max = 9e15, .def = "10G", .sets = SET_BANK_DIR,
        .text = "limit of the folder's files in bytes (K, M, G: powers of 1024); the files that "
                "are worth least are removed; 0: no limit" },
    [ARG_BANK_OUTPUT] = { "output", .letter = 'o', .takes = TAKES_NEW_FILE, .unit = "FILE",
        .sets = SET_OWN_BANK,
        .text = "the file to write" },
    [ARG_QUANTIZE_INPUT] = { "model", .letter = 'm', .takes = TAKES_FILE, .unit = "INPUT.gguf",
        .sets = SET_OWN_QUANTIZE,
        .text = "the model to read, in place of the first argument" },
    [ARG_IMATRIX] = { "imatrix", .takes = TAKES_FILE, .unit = "FILE", .sets = SET_OWN_QUANTIZE,
        .text = "importance matrix, as llama.cpp writes it (GGUF or .dat): errors count more in "
                "columns whose inputs are large; for Q4_0, Q5_0, Q4_K, Q5_K and Q6_K" },

    [ARG_POOLING] = { "pooling", .takes = TAKES_CHOICE, .env = 1, .unit = "STATES",
        .choices = "mean cls last", .sets = SET_OWN_EMBED | SET_OWN_SERVE,
        .text = "which states make an embedding: the mean of all tokens', the first token's or the "
                "last token's (default: as the model file says, else last)" },
    [ARG_NORMALIZE] = { "embd-normalize", .takes = TAKES_CHOICE, .unit = "N", .def = "2",
        .choices = "2 -1", .sets = SET_OWN_EMBED,
        .text = "2: scale embeddings to length 1; -1: leave them as they are" },
    [ARG_LINES] = { "lines", .sets = SET_OWN_EMBED,
        .text = "each line of a text is a text of its own" },
    [ARG_EMBED_FORMAT] = { "output", .alias = "--embd-output-format", .letter = 'o',
        .takes = TAKES_CHOICE, .unit = "FORMAT", .def = "plain", .choices = "plain csv json jsonl",
        .sets = SET_OWN_EMBED,
        .text = "plain: a line of numbers a text; json: one object; jsonl: an object a text" },
    [ARG_HOST] = { "host", .takes = TAKES_TEXT, .env = 1, .unit = "ADDRESS", .def = "127.0.0.1",
        .sets = SET_OWN_SERVE,
        .text = "address to listen on; with 0.0.0.0 or ::, other machines can reach the server" },
    [ARG_PORT] = { "port", .takes = TAKES_INT, .env = 1, .unit = "N", .min = 0, .max = 65535,
        .def = "8080", .sets = SET_OWN_SERVE,
        .text = "port to listen on; 0: a free one" },
    [ARG_PARALLEL] = { "parallel", .alias = "-np", .takes = TAKES_INT, .env = 1, .unit = "N",
        .min = 1, .max = 1024, .def = "4", .sets = SET_OWN_SERVE,
        .text = "number of answers that are computed at the same time, and of contexts that are "
                "kept for prompts that begin alike" },
    [ARG_QUEUE] = { "queue", .takes = TAKES_INT, .env = 1, .unit = "N", .min = 0, .max = 1 << 20,
        .def = "64", .sets = SET_OWN_SERVE,
        .text = "number of answers that may wait for their turn; further requests are refused "
                "with status 429" },
    [ARG_DECODE_LATENCY] = { "decode-latency", .takes = TAKES_INT, .env = 1, .unit = "MS",
        .min = 1, .max = 60000, .def = "100", .sets = SET_OWN_SERVE,
        .text = "longest time between two tokens of an answer while other prompts are computed; "
                "one step of a prompt is taken in any case" },
    [ARG_BANK_MEMORY] = { "bank-memory", .old = "bank-limit", .takes = TAKES_INT, .env = 1,
        .unit = "BYTES", .min = 0, .max = 9e15, .def = "0", .sets = SET_OWN_SERVE,
        .text = "limit of the keys and values of all contexts in bytes (K, M, G: powers of "
                "1024); 0: no limit" },
    [ARG_REQUEST_MEMORY] = { "request-memory", .takes = TAKES_INT, .env = 1, .unit = "BYTES",
        .min = 1 << 16, .max = 9e15, .def = "512M", .sets = SET_OWN_SERVE,
        .text = "memory for all requests that are read or answered: their texts, and what is made "
                "of them; beyond it, requests are refused with status 503" },
    [ARG_API_KEY] = { "api-key", .takes = TAKES_TEXT, .many = 1, .env = 1, .unit = "KEY",
        .sets = SET_OWN_SERVE,
        .text = "key that requests must bring; may be given many times; other users of the "
                "machine can see it, so a file is safer" },
    [ARG_API_KEY_FILE] = { "api-key-file", .takes = TAKES_FILE, .env = 1, .unit = "FILE",
        .sets = SET_OWN_SERVE,
        .text = "file of keys, one a line; requests must bring one of them" },
    [ARG_CORS] = { "cors", .takes = TAKES_TEXT, .env = 1, .unit = "ORIGIN", .sets = SET_OWN_SERVE,
        .text = "let web pages of this origin use the server; *: of any origin (default: none)" },
    [ARG_ALIAS] = { "alias", .takes = TAKES_TEXT, .many = 1, .env = 1, .unit = "NAME",
        .sets = SET_OWN_SERVE,
        .text = "name of the model in answers (default: the file's name without .gguf); given "
                "again: a further name; with --models, NAME=MODEL: a further name of that model" },
    [ARG_MODELS] = { "models", .takes = TAKES_FILE, .env = 1, .unit = "DIR",
        .sets = SET_OWN_SERVE,
        .text = "offer all models of a folder in place of one: a request names one by the file's "
                "name without .gguf, and it is loaded when it is wanted" },
    [ARG_MODELS_MEMORY] = { "models-memory", .takes = TAKES_INT, .env = 1, .unit = "BYTES",
        .min = 0, .max = 9e15, .def = "0", .sets = SET_OWN_SERVE,
        .text = "memory for models that are loaded: weights, work space, and keys and values, or "
                "--bank-memory for each; where it is too little, the model used least recently is "
                "unloaded; 0: three quarters of what is free at the start" },
    [ARG_UNLOAD_AFTER] = { "unload-after", .takes = TAKES_INT, .env = 1, .unit = "SECONDS",
        .min = 0, .max = 1e9, .def = "0", .sets = SET_OWN_SERVE,
        .text = "unload a model that no request has used for so long; the next one loads it again; "
                "0: never" },

    [ARG_IDS] = { "ids", .sets = SET_OWN_TOKENIZE,
        .text = "print the token ids on one line (the default)" },
    [ARG_PIECES] = { "pieces", .sets = SET_OWN_TOKENIZE,
        .text = "print one token per line: its id and its text in quotes" },
    [ARG_NO_BOS] = { "no-bos", .sets = SET_OWN_TOKENIZE,
        .text = "add no beginning-of-sequence token, even if the model asks for one" },
    [ARG_SPECIAL] = { "special", .sets = SET_OWN_TOKENIZE,
        .text = "parse special tokens such as <|im_start|> in the text; with --decode, print "
                "them" },
    [ARG_DECODE] = { "decode", .sets = SET_OWN_TOKENIZE,
        .text = "read token ids from the prompt and print their text" },

    [ARG_BACKENDS] = { "backends", .sets = SET_OWN_INFO,
        .text = "list the devices" },
    [ARG_FAMILIES] = { "families", .sets = SET_OWN_INFO,
        .text = "list the model families" },
    [ARG_POLICY_LIST] = { "policies", .sets = SET_OWN_INFO,
        .text = "list the policies with their options, ranges and papers" },
    [ARG_PREFILL_LIST] = { "prefills", .sets = SET_OWN_INFO,
        .text = "list the prefill methods with their options, ranges and papers" },
    [ARG_CPU] = { "cpu", .sets = SET_OWN_INFO,
        .text = "show the processor: cores, caches, memory, and the instruction set of the "
                "kernels" },
    [ARG_MEASURE] = { "measure", .sets = SET_OWN_INFO,
        .text = "with --cpu or --backends: also measure how fast memory is read, numbers are "
                "multiplied, and data is copied to a device and back, which takes some seconds" },
    [ARG_PLANS] = { "plans", .sets = SET_OWN_INFO,
        .text = "compare the memory that the context takes under each policy, with its default "
                "options, and each type of keys and values; with --policy or -ctk, only those" },
    [ARG_PLANS_FIT] = { "fit", .takes = TAKES_INT, .unit = "BYTES", .min = 1, .max = 9e15,
        .sets = SET_OWN_INFO,
        .text = "with --plans (which it implies): show the longest context that fits into BYTES "
                "(K, M, G: powers of 1024)" },

    [ARG_BENCH_PROMPT] = { "n-prompt", .letter = 'p', .takes = TAKES_INTS, .many = 1,
        .unit = "N,...", .max = MAX_TOKENS, .def = "512", .sets = SET_OWN_BENCH,
        .text = "prompt lengths in tokens, one test each; 0: no prompt test" },
    [ARG_BENCH_GEN] = { "n-gen", .letter = 'n', .takes = TAKES_INTS, .many = 1, .unit = "N,...",
        .max = MAX_TOKENS, .def = "128", .sets = SET_OWN_BENCH,
        .text = "numbers of tokens to generate, one test each; 0: no generation test" },
    [ARG_BENCH_DEPTH] = { "n-depth", .letter = 'd', .takes = TAKES_INTS, .many = 1,
        .unit = "N,...", .max = MAX_TOKENS, .def = "0", .sets = SET_OWN_BENCH,
        .text = "tokens already in the context when a test starts; every test runs at every "
                "depth" },
    [ARG_BENCH_THREADS] = { "threads", .letter = 't', .takes = TAKES_INTS, .env = 1,
        .unit = "N,...", .min = 1, .max = 4096, .sets = SET_OWN_BENCH,
        .text = "numbers of threads, all tests with each; several ones print the efficiency as "
                "well (default: physical cores that affinity and cgroup allow)" },
    [ARG_FIT] = { "fit", .takes = TAKES_INT, .unit = "BYTES", .min = 1, .max = 9e15,
        .sets = SET_OWN_BENCH,
        .text = "decode as many contexts of --n-depth tokens together as have keys and values in "
                "this many bytes: one row for each policy and depth, no prompt tests" },
    [ARG_REPEATS] = { "repetitions", .letter = 'r', .takes = TAKES_INT, .unit = "N", .min = 1,
        .max = 1000, .def = "5", .sets = SET_OWN_BENCH,
        .text = "number of times to run each test" },
    [ARG_FORMAT] = { "output", .letter = 'o', .takes = TAKES_CHOICE, .unit = "FORMAT", .def = "md",
        .choices = "md csv json jsonl", .sets = SET_OWN_BENCH,
        .text = "output format of the table" },
    [ARG_BENCH_RANKS] = { "ranks", .takes = TAKES_INTS, .unit = "N,...", .min = 1, .max = 100000,
        .sets = SET_OWN_BENCH,
        .text = "under mpirun, with --split context: measure messages and tokens of this job, and "
                "print what a token would take over N processes with 128K to 4M tokens of "
                "context" },
    [ARG_OPS] = { "ops", .sets = SET_OWN_BENCH,
        .text = "time single operations instead of a model, and show the limits of this machine "
                "or of --device beside them; needs no model" },
    [ARG_ONLY] = { "only", .takes = TAKES_TEXT, .unit = "NAME,...", .sets = SET_OWN_BENCH,
        .text = "with --ops: run only the named operations (limit, matmul, matmul_glu, "
                "matmul_rows, decode, prompt, gather, prepacked, rows, embed, norm, rope, glu, "
                "add, store, prepack, score, join, topk, best_head, nearest, sketch, "
                "sketch_topk, bounds, page_scores, page_topk, found, decode_long, prompt_long, "
                "prompt_blocks, block_mass, index_scan, index_topk, block_topk, conv, state), "
                "types, models, instruction sets and matrix libraries; a kind that is not named "
                "is not restricted" },

    [ARG_PPL_FILE] = { "file", .letter = 'f', .takes = TAKES_FILE, .unit = "FILE",
        .sets = SET_OWN_PERPLEXITY | SET_OWN_MEASURE,
        .text = "the text; -: standard input" },
    [ARG_PPL_WINDOW] = { "ctx-size", .letter = 'c', .takes = TAKES_INT, .unit = "TOKENS", .min = 4,
        .max = MAX_TOKENS, .def = "512", .sets = SET_OWN_PERPLEXITY,
        .text = "window length in tokens; with --stream, the number of tokens to read (default "
                "with --stream: the whole text)" },
    [ARG_CHUNKS] = { "chunks", .takes = TAKES_INT, .unit = "N", .min = -1, .max = MAX_TOKENS,
        .def = "-1", .sets = SET_OWN_PERPLEXITY,
        .text = "number of windows to score; -1: all" },
    [ARG_STRIDE] = { "stride", .takes = TAKES_INT, .unit = "TOKENS", .min = 0, .max = MAX_TOKENS,
        .def = "0", .sets = SET_OWN_PERPLEXITY,
        .text = "use sliding windows that start this many tokens apart, and score only the tokens "
                "that the previous window did not score; 0: windows do not overlap, and the second "
                "half of each is scored" },
    [ARG_STREAM] = { "stream", .sets = SET_OWN_PERPLEXITY,
        .text = "feed the text token by token through the policy's cache and score every token" },
    [ARG_POSITIONS] = { "positions", .takes = TAKES_INT, .unit = "TOKENS", .min = 0,
        .max = MAX_TOKENS, .def = "0", .sets = SET_OWN_PERPLEXITY,
        .text = "score apart the tokens with 0 to TOKENS - 1 tokens before them, with as many "
                "more, and so on; 0: together only" },
    [ARG_MEASURE_CTX] = { "ctx-size", .letter = 'c', .takes = TAKES_INT, .unit = "TOKENS",
        .min = 2, .max = MAX_TOKENS, .def = "4096", .sets = SET_OWN_MEASURE,
        .text = "the number of tokens to read" },
    [ARG_MEASURE_STEPS] = { "last", .letter = 'n', .takes = TAKES_INT, .unit = "TOKENS", .min = 1,
        .max = MAX_TOKENS, .def = "64", .sets = SET_OWN_MEASURE,
        .text = "feed the last of them one by one and measure these; the others are their "
                "prompt" },
    [ARG_PASSAGE] = { "passage", .takes = TAKES_TEXT, .unit = "TEXT", .sets = SET_OWN_ATTENTION,
        .text = "a passage of the text, such as the answer to its last question: tell also how "
                "much of it is read, and how much of the read part lies in it" },
    [ARG_LAZY_SINK] = { "sink", .takes = TAKES_INT, .unit = "TOKENS", .min = 0, .max = MAX_TOKENS,
        .def = "4", .sets = SET_OWN_LAZY,
        .text = "first tokens that count as ends of the text" },
    [ARG_LAZY_RECENT] = { "recent", .takes = TAKES_INT, .unit = "TOKENS", .min = 1,
        .max = MAX_TOKENS, .def = "1024", .sets = SET_OWN_LAZY,
        .text = "last tokens that do" },
    [ARG_PER_TOKEN] = { "per-token", .sets = SET_OWN_CONTINUATION,
        .text = "print one line per token: position, id, negative log-likelihood, predicted id" },
    [ARG_CONTEXT] = { "context", .takes = TAKES_FILE, .unit = "FILE", .sets = SET_PAIR,
        .text = "text to prefill under the policy" },
    [ARG_TARGET] = { "target", .takes = TAKES_FILE, .unit = "FILE", .sets = SET_PAIR,
        .text = "text that follows the context and is scored token by token" },
    [ARG_ALSO] = { "also", .takes = TAKES_TEXT, .many = 1, .unit = "NAME[:KEY=VALUE,...]",
        .sets = SET_OWN_KLD,
        .text = "compare this policy too; may be given many times, one result each; those that "
                "read the context densely share the full cache's reading; not with --bank" },

    [ARG_LENGTH] = { "length", .takes = TAKES_INTS, .many = 1, .unit = "TOKENS,...", .min = 16,
        .max = MAX_TOKENS, .def = "4096", .sets = SET_MADE,
        .text = "lengths of prompt and answer together, in tokens; each length gets its own "
                "items" },
    [ARG_DEPTH] = { "depth", .takes = TAKES_INTS, .many = 1, .unit = "PERCENT,...", .max = 100,
        .def = "0,25,50,75,100", .sets = SET_OWN_NEEDLE,
        .text = "depths of the needle in the text, in percent; each depth gets its own items" },
    [ARG_NEEDLES] = { "needles", .takes = TAKES_INT, .unit = "N", .min = 1, .max = 16, .def = "1",
        .sets = SET_OWN_NEEDLE,
        .text = "needles per question; the first is at the given depth, the others are spread over "
                "the text after it" },
    [ARG_HAYSTACK] = { "haystack", .takes = TAKES_FILE, .unit = "FILE",
        .sets = SET_OWN_NEEDLE | SET_OWN_RULER,
        .text = "text to hide things in, repeated as often as needed (default: a story that comes "
                "with the program)" },
    [ARG_COT] = { "cot", .takes = TAKES_CHOICE, .unit = "WHEN", .def = "no",
        .choices = "no yes both", .sets = SET_OWN_2STAGE,
        .text = "ask the model to work out the sum before it names the colour" },
    [ARG_PUBLISHED] = { "published", .sets = SET_OWN_2STAGE,
        .text = "as the paper's authors make them: 40 to 200 entries with keys from 0 on, of 23 "
                "colours, and answers that begin with the sum" },
    [ARG_ENTRIES] = { "entries", .takes = TAKES_INTS, .many = 1, .unit = "N,...", .min = 6,
        .max = 1 << 20, .sets = SET_OWN_2STAGE,
        .text = "in a form that small models can answer: this many sentences in a dictionary, and "
                "three worked examples in each question" },
    [ARG_MOST_SUM] = { "most-sum", .takes = TAKES_INT, .unit = "N", .min = 5, .max = 1 << 20,
        .sets = SET_OWN_2STAGE,
        .text = "with --entries: the largest sum (default: any entry)" },
    [ARG_TASKS] = { "tasks", .takes = TAKES_TEXT, .unit = "NAME,...", .sets = SET_PICK,
        .text = "run only these tasks (default: all)" },
    [ARG_QA_FILE] = { "qa-file", .takes = TAKES_FILE, .unit = "FILE[,FILE]", .sets = SET_OWN_RULER,
        .text = "questions for qa_1 and qa_2: JSON lines with question, answers and documents; "
                "without a file these two tasks are skipped" },
    [ARG_ITEMS] = { "items", .takes = TAKES_INT, .unit = "N", .min = 1, .max = 1 << 20,
        .sets = SET_TASKS,
        .text = "items per task; for generated tasks, items per length and depth (default: all "
                "items of a file, 1 for needle, 5 for the others)" },
    [ARG_TASK_SEED] = { "seed", .letter = 's', .takes = TAKES_INT, .env = 1, .unit = "N", .min = 0,
        .max = 4294967295.0, .def = "1", .sets = SET_TASKS,
        .text = "seed for generating items or for choosing them from a file" },
    [ARG_QUESTION] = { "question", .takes = TAKES_CHOICE, .unit = "WHEN", .def = "aware",
        .choices = "aware blind both", .sets = SET_TASKS,
        .text = "aware: the policy sees the question before it compresses the context; blind: the "
                "context is compressed first, as in a saved bank" },
    [ARG_TOO_LONG] = { "too-long", .takes = TAKES_CHOICE, .unit = "WHAT",
        .choices = "skip truncate", .sets = SET_TASKS,
        .text = "what to do with items longer than the context: skip and count them, or truncate "
                "them in the middle (default: skip; longbench: truncate)" },
    [ARG_USE_CHAT] = { "chat", .takes = TAKES_CHOICE, .unit = "WHEN", .def = "auto",
        .choices = "auto always never", .sets = SET_TASKS,
        .text = "put prompts into the model's chat template; auto: as the benchmark does" },
    [ARG_MAX_NEW] = { "predict", .alias = "--n-predict", .letter = 'n', .takes = TAKES_INT,
        .unit = "TOKENS", .min = 1, .max = 1 << 16, .sets = SET_TASKS,
        .text = "maximum number of tokens to generate per answer (default: as the task says)" },
    [ARG_ANSWERS] = { "output", .letter = 'o', .takes = TAKES_NEW_FILE, .unit = "FILE.jsonl",
        .sets = SET_TASKS,
        .text = "append every answer to FILE, one JSON line each; answers already in FILE are not "
                "computed again" },
    [ARG_TABLE] = { "format", .takes = TAKES_CHOICE, .unit = "FORMAT", .def = "md",
        .choices = "md csv json", .sets = SET_TASKS | SET_OWN_MEASURE | SET_OWN_PERPLEXITY,
        .text = "output format of the table" },
    [ARG_MEASURE_PLOT] = { "plot", .takes = TAKES_NEW_FILE, .unit = "FILE.svg",
        .sets = SET_OWN_MEASURE | SET_OWN_PERPLEXITY,
        .text = "draw what is measured" },
    [ARG_PLOT] = { "plot", .takes = TAKES_NEW_FILE, .unit = "FILE.svg", .sets = SET_TASKS,
        .text = "draw heat maps of needle scores, and scores against cache size" },

    [ARG_CAL_FILE] = { "file", .letter = 'f', .takes = TAKES_FILE, .many = 1, .unit = "FILE",
        .sets = SET_CALIBRATE,
        .text = "text, or JSON lines (.jsonl) from which the prompts are taken; may be given many "
                "times (default: a story that comes with the program)" },
    [ARG_CAL_CTX] = { "ctx-size", .letter = 'c', .takes = TAKES_INT, .unit = "TOKENS", .min = 128,
        .max = MAX_TOKENS, .def = "4096", .sets = SET_CALIBRATE,
        .text = "length of a sample in tokens; by default at most the model's training context" },
    [ARG_SAMPLES] = { "samples", .takes = TAKES_INT, .unit = "N", .min = 1, .max = 1000,
        .def = "2", .sets = SET_CALIBRATE,
        .text = "total number of samples to take from the texts" },
    [ARG_CAL_BUDGET] = { "budget", .takes = TAKES_INT, .unit = "TOKENS", .min = 1,
        .max = MAX_TOKENS, .sets = SET_TRIAL,
        .text = "number of tokens that a filter layer selects (default: an eighth of the "
                "sample), or that a lazy layer keeps (default: a quarter)" },
    [ARG_CAL_ITEMS] = { "items", .takes = TAKES_INT, .unit = "N", .max = 10000, .def = "12",
        .sets = SET_TRIAL,
        .text = "number of needles to hide and ask for; 0: compare predictions only; with --rule "
                "grid, the number at each length and depth, 2 unless it is given" },
    [ARG_CAL_RULE] = { "rule", .takes = TAKES_CHOICE, .unit = "WHAT",
        .choices = "tokens answers grid", .sets = SET_TRIAL,
        .text = "what a candidate must keep of the full cache: its predictions (default for lazy), "
                "its right answers (default for filter-layers), or its right answers to needles at "
                "four lengths and five depths, as SimLayerKV was calibrated" },
    [ARG_CAL_KEEP] = { "keep", .takes = TAKES_REAL, .unit = "PERCENT", .min = 0, .max = 100,
        .sets = SET_TRIAL,
        .text = "percentage of them that a candidate must keep; if the full cache answers "
                "nothing right, percentage of its predictions (default 98; with --rule grid 99)" },
    [ARG_CAL_SEED] = { "seed", .letter = 's', .takes = TAKES_INT, .unit = "N", .min = 0,
        .max = 4294967295.0, .def = "1", .sets = SET_TRIAL,
        .text = "seed for generating needles" },
    [ARG_THETA] = { "theta", .takes = TAKES_REAL, .unit = "X", .min = 0.001, .max = 1,
        .sets = SET_OWN_SIMILARITY,
        .text = "smallest similarity of layers that share a block (default: as --saving "
                "requires)" },
    [ARG_SAVING] = { "saving", .takes = TAKES_REAL, .unit = "PERCENT", .min = 0, .max = 50,
        .def = "12", .sets = SET_OWN_SIMILARITY,
        .text = "percentage of a long cache that the blocks should save; the largest theta that "
                "saves this much is used" },
    [ARG_CAL_OUTPUT] = { "output", .letter = 'o', .takes = TAKES_NEW_FILE, .unit = "FILE.json",
        .sets = SET_CALIBRATE,
        .text = "write a preset for --policy NAME:preset=FILE.json" },
    [ARG_CAL_PLOT] = { "plot", .takes = TAKES_NEW_FILE, .unit = "FILE.svg", .sets = SET_CALIBRATE,
        .text = "draw the measurements" },

    [ARG_PROMPT] = { "prompt", .letter = 'p', .takes = TAKES_TEXT, .many = 1, .unit = "TEXT",
        .sets = SET_PROMPT,
        .text = "the prompt; several -p and -f are joined in their order" },
    [ARG_FILE] = { "file", .letter = 'f', .takes = TAKES_FILE, .many = 1, .unit = "FILE",
        .sets = SET_PROMPT,
        .text = "read the prompt, or a part of it, from FILE; -: standard input; 'ctxbank run' "
                "drops one line end at the end of the prompt" },
    [ARG_ESCAPE] = { "escape", .letter = 'e', .sets = SET_PROMPT | SET_OWN_CHAT,
        .text = "read \\n, \\r, \\t, \\\\, \\\", \\' and \\xHH in texts of -p, --stop, "
                "--dry-sequence-breaker, --in-prefix and --in-suffix as the characters that they "
                "stand for" },
    [ARG_DOCUMENT] = { "file", .letter = 'f', .takes = TAKES_FILE, .many = 1, .unit = "FILE",
        .sets = SET_OWN_CHAT,
        .text = "a document in front of the first message, which is read while you type; may be "
                "given many times" },
    [ARG_COLOR] = { "color", .alias = "-co", .takes = TAKES_CHOICE, .env = 1, .unit = "WHEN",
        .def = "auto", .choices = "auto on off", .sets = SET_OWN_CHAT,
        .text = "colours; auto: in a terminal, unless NO_COLOR is set" },
    [ARG_IN_PREFIX] = { "in-prefix", .takes = TAKES_TEXT, .unit = "TEXT", .sets = SET_OWN_CHAT,
        .text = "text in front of each message" },
    [ARG_IN_SUFFIX] = { "in-suffix", .takes = TAKES_TEXT, .unit = "TEXT", .sets = SET_OWN_CHAT,
        .text = "text after each message" },
    [ARG_SYSTEM] = { "system", .alias = "-sys --system-prompt", .takes = TAKES_TEXT, .env = 1,
        .unit = "TEXT", .sets = SET_CHAT,
        .text = "system message of the chat" },
    [ARG_SYSTEM_FILE] = { "system-file", .alias = "-sysf --system-prompt-file",
        .takes = TAKES_FILE, .env = 1, .unit = "FILE", .sets = SET_CHAT,
        .text = "read the system message from FILE" },
    [ARG_CHAT_TEMPLATE] = { "chat-template", .takes = TAKES_TEXT, .env = 1, .unit = "NAME",
        .sets = SET_CHAT,
        .text = "chat template to use instead of the model's own: the name of a built-in form, or "
                "a template in the language Jinja" },
    [ARG_CHAT_TEMPLATE_FILE] = { "chat-template-file", .takes = TAKES_FILE, .env = 1,
        .unit = "FILE", .sets = SET_CHAT,
        .text = "read the chat template, in the language Jinja, from FILE" },
    [ARG_CHAT_TEMPLATE_VARS] = { "chat-template-kwargs", .takes = TAKES_TEXT, .env = 1,
        .unit = "JSON", .sets = SET_CHAT,
        .text = "variables for the chat template, as a JSON object: '{\"enable_thinking\": "
                "false}'" },

    [ARG_PREDICT] = { "predict", .alias = "--n-predict", .letter = 'n', .takes = TAKES_INT,
        .env = 1, .unit = "TOKENS", .min = -1, .max = MAX_TOKENS, .def = "-1",
        .sets = SET_GENERATE,
        .text = "maximum number of tokens to generate; -1: until the model ends its answer or the "
                "context is full" },
    [ARG_STOP] = { "stop", .alias = "--reverse-prompt", .letter = 'r', .takes = TAKES_TEXT,
        .many = 1, .unit = "TEXT", .sets = SET_GENERATE,
        .text = "stop before this text is printed; may be given many times" },
    [ARG_IGNORE_EOS] = { "ignore-eos", .sets = SET_GENERATE,
        .text = "never generate an end-of-sequence token" },
    [ARG_DRAFT] = { "draft", .takes = TAKES_INT, .env = 1, .unit = "N", .min = 0, .max = 16,
        .def = "0", .sets = SET_GENERATE | SET_OWN_SERVE,
        .text = "guess up to this many tokens from what followed the same words earlier in the "
                "context, and decode them together; the text is the same, and comes sooner where "
                "an answer quotes its document" },
    [ARG_DRAFT_MTP] = { "draft-mtp", .takes = TAKES_INT, .env = 1, .unit = "N", .min = 0,
        .max = 16, .def = "1", .sets = SET_GENERATE | SET_OWN_SERVE,
        .text = "guess up to this many tokens with the head for later tokens (MTP, nextn) that "
                "the files of some models have, and pause while that costs more time than it "
                "saves; 0: leave the head unused; the text is the same" },
    [ARG_DRAFT_MODEL] = { "draft-model", .alias = "-md --model-draft", .takes = TAKES_FILE,
        .env = 1, .unit = "FILE.gguf", .sets = SET_GENERATE | SET_OWN_SERVE,
        .text = "a second, smaller model with the same tokens, or a Gemma 4's assistant, guesses "
                "where the context has nothing to guess from, up to --draft tokens (8 if that is "
                "not given); the text is the same" },
    [ARG_GRAMMAR] = { "grammar", .takes = TAKES_TEXT, .unit = "GBNF",
        .sets = SET_GENERATE,
        .text = "generate only what this grammar allows, ctxbank-grammar(7)" },
    [ARG_GRAMMAR_FILE] = { "grammar-file", .takes = TAKES_FILE, .unit = "FILE",
        .sets = SET_GENERATE,
        .text = "read the grammar from FILE" },
    [ARG_JSON_SCHEMA] = { "json-schema", .letter = 'j', .takes = TAKES_TEXT,
        .unit = "SCHEMA", .sets = SET_GENERATE,
        .text = "generate only JSON that fits this schema; {}: any JSON" },
    [ARG_JSON_SCHEMA_FILE] = { "json-schema-file", .takes = TAKES_FILE, .unit = "FILE",
        .sets = SET_GENERATE,
        .text = "read the JSON schema from FILE" },
    [ARG_REGEX] = { "regex", .takes = TAKES_TEXT, .unit = "REGEX",
        .sets = SET_GENERATE,
        .text = "generate only a text that matches this regular expression as a whole" },
    [ARG_ALL_LOGITS] = { "all-logits", .sets = SET_GENERATE | SET_OWN_BENCH,
        .text = "compute all logits of every generated token; without this option a small model "
                "computes, for answers of 256 tokens or more, exact logits only for the tokens "
                "that --top-k can choose: the text is the same and comes sooner" },

    [ARG_SEED] = { "seed", .letter = 's', .takes = TAKES_INT, .env = 1, .unit = "N", .min = -1,
        .max = 4294967295.0, .def = "-1", .sets = SET_SAMPLE,
        .text = "seed of the sampler; -1: a new one each time" },
    [ARG_TEMP] = { "temp", .alias = "--temperature", .takes = TAKES_REAL, .env = 1, .unit = "X",
        .min = 0, .max = 100, .def = "0.8", .sets = SET_SAMPLE,
        .text = "temperature; 0: always take the most likely token" },
    [ARG_TOP_K] = { "top-k", .takes = TAKES_INT, .env = 1, .unit = "N", .min = 0,
        .max = MAX_TOKENS, .def = "40", .sets = SET_SAMPLE,
        .text = "sample from the N most likely tokens; 0: all" },
    [ARG_TOP_P] = { "top-p", .takes = TAKES_REAL, .env = 1, .unit = "P", .min = 0, .max = 1,
        .def = "0.95", .sets = SET_SAMPLE,
        .text = "sample from the smallest set of most likely tokens whose probabilities add up to "
                "P; 1: all" },
    [ARG_MIN_P] = { "min-p", .takes = TAKES_REAL, .env = 1, .unit = "P", .min = 0, .max = 1,
        .def = "0.05", .sets = SET_SAMPLE,
        .text = "drop tokens less likely than P times the most likely token; 0: drop none" },
    [ARG_REPEAT_PENALTY] = { "repeat-penalty", .takes = TAKES_REAL, .env = 1, .unit = "X",
        .min = 0.01, .max = 100, .def = "1", .sets = SET_SAMPLE,
        .text = "penalize tokens that occurred before; 1: off" },
    [ARG_FREQUENCY_PENALTY] = { "frequency-penalty", .takes = TAKES_REAL, .env = 1, .unit = "X",
        .min = -100, .max = 100, .def = "0", .sets = SET_SAMPLE,
        .text = "penalize tokens by how often they occurred; 0: off" },
    [ARG_PRESENCE_PENALTY] = { "presence-penalty", .takes = TAKES_REAL, .env = 1, .unit = "X",
        .min = -100, .max = 100, .def = "0", .sets = SET_SAMPLE,
        .text = "penalize tokens that occurred, however often; 0: off" },
    [ARG_REPEAT_LAST_N] = { "repeat-last-n", .takes = TAKES_INT, .env = 1, .unit = "TOKENS",
        .min = -1, .max = MAX_TOKENS, .def = "64", .sets = SET_SAMPLE,
        .text = "number of last tokens that the penalties consider; 0: none, -1: all" },

    [ARG_TYPICAL] = { "typical", .alias = "--typical-p", .takes = TAKES_REAL, .env = 1,
        .unit = "P", .min = 0, .max = 1, .def = "1", .sets = SET_SAMPLE,
        .text = "sample from the tokens whose surprise is nearest to the expected one, until their "
                "probabilities add up to P; 1: off" },
    [ARG_XTC_PROBABILITY] = { "xtc-probability", .takes = TAKES_REAL, .env = 1, .unit = "P",
        .min = 0, .max = 1, .def = "0", .sets = SET_SAMPLE,
        .text = "with this probability, drop all tokens that are at least as likely as "
                "--xtc-threshold, except the least likely of them; 0: off" },
    [ARG_XTC_THRESHOLD] = { "xtc-threshold", .takes = TAKES_REAL, .env = 1, .unit = "P", .min = 0,
        .max = 1, .def = "0.1", .sets = SET_SAMPLE,
        .text = "smallest probability of a token that --xtc-probability drops; above 0.5: off" },
    [ARG_DRY_MULTIPLIER] = { "dry-multiplier", .takes = TAKES_REAL, .env = 1, .unit = "X",
        .min = 0, .max = 100, .def = "0", .sets = SET_REPETITIONS,
        .text = "penalize tokens that would prolong a repetition of n tokens by X * base^(n - "
                "allowed length); 0: off" },
    [ARG_DRY_BASE] = { "dry-base", .takes = TAKES_REAL, .env = 1, .unit = "X", .min = 1,
        .max = 100, .def = "1.75", .sets = SET_REPETITIONS,
        .text = "base of the penalty of --dry-multiplier" },
    [ARG_DRY_ALLOWED] = { "dry-allowed-length", .takes = TAKES_INT, .env = 1, .unit = "N",
        .min = 1, .max = MAX_TOKENS, .def = "2", .sets = SET_REPETITIONS,
        .text = "length from which on --dry-multiplier penalizes a repetition, in tokens" },
    [ARG_DRY_LAST_N] = { "dry-penalty-last-n", .takes = TAKES_INT, .env = 1, .unit = "TOKENS",
        .min = -1, .max = MAX_TOKENS, .def = "-1", .sets = SET_REPETITIONS,
        .text = "number of last tokens in which --dry-multiplier looks for repetitions; 0: none, "
                "-1: the whole context" },
    [ARG_DRY_BREAKER] = { "dry-sequence-breaker", .takes = TAKES_TEXT, .many = 1, .unit = "TEXT",
        .sets = SET_REPETITIONS,
        .text = "text that ends a repetition: none reaches across a token that contains it; may "
                "be given many times; none: no such text (default: line end, colon, quote and "
                "star)" },
    [ARG_MIROSTAT] = { "mirostat", .takes = TAKES_CHOICE, .env = 1, .unit = "VERSION", .def = "0",
        .choices = "0 2", .sets = SET_SAMPLE,
        .text = "2: Mirostat 2.0 holds the surprise of tokens at --mirostat-ent bits, in place of "
                "top-k, typical, top-p, min-p and XTC" },
    [ARG_MIROSTAT_LR] = { "mirostat-lr", .takes = TAKES_REAL, .env = 1, .unit = "X", .min = 0,
        .max = 10, .def = "0.1", .sets = SET_SAMPLE,
        .text = "learning rate of Mirostat (eta)" },
    [ARG_MIROSTAT_ENT] = { "mirostat-ent", .takes = TAKES_REAL, .env = 1, .unit = "BITS",
        .min = 0.01, .max = 100, .def = "5", .sets = SET_SAMPLE,
        .text = "surprise that Mirostat aims at, in bits (tau)" },
    [ARG_LOGIT_BIAS] = { "logit-bias", .letter = 'l', .takes = TAKES_TEXT, .many = 1,
        .unit = "ID(+|-)X", .sets = SET_REPETITIONS,
        .text = "add X to the logit of token ID: 15043+1 or 15043-inf; may be given many times" },

    [ARG_MODEL] = { "model", .letter = 'm', .takes = TAKES_FILE, .env = 1, .unit = "MODEL.gguf",
        .sets = SET_MODEL,
        .text = "the model file" },
    [ARG_PRE_TOKENIZER] = { "pre-tokenizer", .takes = TAKES_TEXT, .unit = "NAME",
        .sets = SET_MODEL,
        .text = "split words as tokenizer.ggml.pre = NAME says, instead of as the model file "
                "says" },
    [ARG_THREADS] = { "threads", .letter = 't', .takes = TAKES_INT, .env = 1, .unit = "N",
        .min = 1, .max = 4096, .sets = SET_THREADS,
        .text = "number of threads (default: physical cores that affinity and cgroup allow; where "
                "second hardware threads, slower cores, nodes or a quota leave a choice, the "
                "fastest number, as measured at first use: info --cpu)" },
    [ARG_THREADS_BATCH] = { "threads-batch", .alias = "-tb", .takes = TAKES_INT, .env = 1,
        .unit = "N", .min = 1, .max = 4096, .sets = SET_ENGINE,
        .text = "number of threads that read prompts (default: that of --threads, or as "
                "measured)" },
    [ARG_ROPE_SCALING] = { "rope-scaling", .takes = TAKES_CHOICE, .env = 1, .unit = "METHOD",
        .choices = "none linear dynamic yarn", .sets = SET_ENGINE,
        .text = "how positions beyond the model's training context are scaled (default: as the "
                "model file says)" },
    [ARG_ROPE_SCALE] = { "rope-scale", .takes = TAKES_REAL, .env = 1, .unit = "X", .min = 0.01,
        .max = 1000, .sets = SET_ENGINE,
        .text = "factor by which the context grows (default: as the model file says; without "
                "--rope-scaling, the scaling is linear)" },
    [ARG_ROPE_BASE] = { "rope-freq-base", .takes = TAKES_REAL, .env = 1, .unit = "X", .min = 1,
        .max = 1e12, .sets = SET_ENGINE,
        .text = "base of the rotation's frequencies (default: as the model file says)" },
    [ARG_LORA] = { "lora", .takes = TAKES_FILE, .many = 1, .unit = "FILE.gguf",
        .sets = SET_ENGINE,
        .text = "put this LoRA adapter onto the model; may be given many times" },
    [ARG_LORA_SCALED] = { "lora-scaled", .takes = TAKES_SCALED, .many = 1,
        .unit = "FILE.gguf SCALE", .min = -1e6, .max = 1e6, .sets = SET_ENGINE,
        .text = "the same, multiplied by SCALE; 0 leaves the adapter out" },
    [ARG_NUMA] = { "numa", .takes = TAKES_CHOICE, .env = 1, .unit = "MODE", .def = "off",
        .choices = "off distribute isolate", .sets = SET_ENGINE,
        .text = "on machines with several NUMA nodes: distribute: the same number of threads on "
                "each node, with the memory they read most on that node; isolate: only threads of "
                "the node that the program started on" },
    [ARG_PIN] = { "pin", .sets = SET_ENGINE,
        .text = "pin each thread to a core of its own; avoid this where other programs use the "
                "same cores" },
    [ARG_MLOCK] = { "mlock", .sets = SET_ENGINE,
        .text = "keep the model in memory: none of its pages is swapped out" },
    [ARG_DEVICE] = { "device", .takes = TAKES_TEXT, .env = 1, .unit = "NAME", .def = "cpu",
        .sets = SET_ENGINE,
        .text = "device that computes; 'ctxbank info --backends' lists them; auto: measure them "
                "for a second or two and take the fastest for this model" },
    [ARG_WORKING_SET] = { "working-set", .takes = TAKES_INT, .env = 1, .unit = "BYTES", .min = 0,
        .max = 9e15, .sets = SET_ENGINE,
        .text = "memory of the accelerator that weights, work space and the mirrored part of the "
                "bank may take (K, M, G: powers of 1024; default: nearly all)" },
    [ARG_STREAM_KV] = { "stream-kv", .sets = SET_ENGINE,
        .text = "copy a layer's keys and values to the accelerator whenever a token reads them, "
                "and keep none there (brutal offload, to compare with)" },
    [ARG_CHECKPOINTS] = { "checkpoints", .takes = TAKES_INT, .env = 1, .unit = "BYTES", .min = 0,
        .max = 9e15, .def = "1G", .sets = SET_ENGINE,
        .text = "of models with layers that remember without keys: memory for copies of what they "
                "remember, from which a shortened conversation continues (K, M, G: powers of "
                "1024); 0: none" },
    [ARG_SPLIT] = { "split", .takes = TAKES_CHOICE, .unit = "HOW",
        .choices = "context tensor layers tensor+context", .sets = SET_ENGINE,
        .text = "under mpirun: one model over the processes of the job (see ctxbank-mpi(7)); "
                "context: each process holds a share of the context and computes a share of the "
                "prompt; tensor: each holds a share of the weights; layers: each holds a range of "
                "the layers, with their weights and their part of the context; tensor+context: "
                "each holds a share of the weights and of the context" },
    [ARG_CHUNK] = { "chunk", .alias = "-ub --ubatch-size", .takes = TAKES_INT, .env = 1,
        .unit = "TOKENS", .min = 1, .max = 1 << 20, .sets = SET_ENGINE,
        .text = "prompt tokens processed together (default: chosen by the engine)" },

    [ARG_EXPAND_LATENTS] = { "expand-latents", .sets = SET_ENGINE,
        .text = "prompts of 512 tokens and more of latent attention (DeepSeek) read keys and "
                "values of each head where that is faster; the text may differ by rounding" },

    [ARG_CTX] = { "ctx-size", .letter = 'c', .takes = TAKES_INT, .env = 1, .unit = "TOKENS",
        .min = 0, .max = MAX_TOKENS, .def = "0", .sets = SET_CTX,
        .text = "context size in tokens, prompt and answer together; 0: the model's training "
                "context" },
    [ARG_TYPE_K] = { "cache-type-k", .alias = "-ctk", .takes = TAKES_TEXT, .env = 1,
        .unit = "TYPE", .def = "f16", .sets = SET_POLICY | SET_POLICIES,
        .text = "data type of cached keys: f32, f16, bf16, q8_0, kivi4, kivi2, and with policy "
                "sieve planes, which holds the keys that it searches once; a kivi type may end "
                "in :NEWEST:GROUP:FIRST, the newest tokens that stay f16 (default 128), the "
                "numbers that share a step (32, 64 or 128), and the first tokens that stay f16 as "
                "well, unlike in the paper (default 0)" },
    [ARG_TYPE_V] = { "cache-type-v", .alias = "-ctv", .takes = TAKES_TEXT, .env = 1,
        .unit = "TYPE", .def = "f16", .sets = SET_POLICY | SET_POLICIES,
        .text = "data type of cached values; the types are those of keys but planes" },
    [ARG_POLICY] = { "policy", .takes = TAKES_TEXT, .env = 1, .unit = "NAME[:KEY=VALUE,...]",
        .def = "full", .sets = SET_POLICY,
        .text = "which tokens the cache keeps, and which of them a new token reads; 'ctxbank info "
                "--policies' lists the policies, ctxbank-policies(7) helps to choose; "
                "auto[:memory=BYTES|share=S][:loss=E] chooses one by figures that are measured "
                "once on the model; a model with a trained selector takes own unless told "
                "otherwise" },
    [ARG_POLICIES] = { "policy", .takes = TAKES_TEXT, .many = 1, .env = 1,
        .unit = "NAME[:KEY=VALUE,...]", .def = "full", .sets = SET_POLICIES,
        .text = "which tokens the cache keeps, and which of them a new token reads; may be given "
                "many times, one result each; 'ctxbank info --policies' lists the policies, "
                "ctxbank-policies(7) helps to choose; a model with a trained selector takes own "
                "unless told otherwise" },
    [ARG_PREFILL] = { "prefill", .takes = TAKES_TEXT, .env = 1, .unit = "NAME[:KEY=VALUE,...]",
        .def = "dense", .sets = SET_POLICY | SET_POLICIES,
        .text = "attention of the prompt: dense, or a sparse method; 'ctxbank info --prefills' "
                "lists the methods" },

    [ARG_DRY_RUN] = { "dry-run", .sets = SET_PLAN,
        .text = "print the memory that would be needed and exit; with --json in bytes" },
    [ARG_JSON] = { "json", .sets = SET_JSON,
        .text = "print one JSON object" },
    [ARG_PROGRESS] = { "progress", .takes = TAKES_CHOICE, .env = 1, .unit = "WHEN", .def = "auto",
        .choices = "auto always never", .sets = SET_PROGRESS,
        .text = "progress bar on standard error; auto: if that is a terminal" },
    [ARG_VERBOSE] = { "verbose", .letter = 'v', .sets = SET_GENERAL,
        .text = "print more on standard error" },
    [ARG_QUIET] = { "quiet", .letter = 'q', .sets = SET_GENERAL,
        .text = "print only results and errors" },
    [ARG_LOG_FILE] = { "log-file", .takes = TAKES_NEW_FILE, .env = 1, .unit = "FILE",
        .sets = SET_GENERAL,
        .text = "also append all messages to FILE, including those of -v" },
    [ARG_HELP] = { "help", .letter = 'h', .sets = SET_GENERAL,
        .text = "show the options that are used most" },
    [ARG_HELP_ALL] = { "help-all", .sets = SET_GENERAL,
        .text = "show all options of the command, as --help=all does" },
    [ARG_VERSION] = { "version", .sets = SET_GENERAL,
        .text = "show the version; with --verbose the compiler and the features as well" },
};
/* clang-format on */
