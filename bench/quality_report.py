# SPDX-License-Identifier: MIT
"""quality_report - QUALITY.md from the JSON lines of bench/make-quality: what all methods cost on
one screen, a picture, and what follows from it; a page for each run in quality/."""
import collections
import json
import math
import os
import subprocess

import quality_figures


def read(path):
    rows = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
    return rows


def wilson(mean, n):
    z2 = 1.959963984540054 ** 2
    mid = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2) / (1 + z2 / n) * math.sqrt(mean * (1 - mean) / n + z2 / (4 * n * n))
    return max(0, mid - half), min(1, mid + half)


def label(r):
    s = r["policy"]
    s += f" -ctk {r['type_k']}" if r["type_k"] != "f16" else ""
    s += f" -ctv {r['type_v']}" if r["type_v"] != "f16" else ""
    return s + (f" --prefill {r['prefill']}" if r["prefill"] != "dense" else "")


def item_of(r):
    return r["question"], r["_id"], r["item"]


def of_full(rows):
    """The full cache's answers, by item."""
    return {item_of(r): r for r in rows if label(r) == "full"}


def task_table(rows):
    """A row a policy and way of asking, over all tasks and lengths of the run, each weighing the
    same."""
    groups = collections.defaultdict(list)
    full = of_full(rows)
    for r in rows:
        groups[r["question"], label(r)].append(r)
    most = {q: len({(r["_id"], r["item"]) for r in rows if r["question"] == q})
            for q in ("aware", "blind")}
    # how many of the prompt's pairs were attended to; older answers do not tell
    sparse = any("prompt_density" in r for r in rows)
    out = ["| question | policy | n | score | 95 % interval | against full | held % | read % |" +
           " prompt's pairs % |" * sparse, "| --- |" + " --- |" * (7 + sparse)]
    for (q, name), g in sorted(groups.items(), key=lambda x: (x[0][0], x[0][1] != "full")):
        n, mean = len(g), sum(r["score"] for r in g) / len(g)
        low, high = wilson(mean, n)
        pairs = [(r, full[item_of(r)]) for r in g if item_of(r) in full]
        loss, read_share = "-", "-"
        if len(pairs) > 1:
            d = [x["score"] - f["score"] for x, f in pairs]
            m = sum(d) / len(d)
            e = 1.96 * math.sqrt(sum((x - m) ** 2 for x in d) / len(d) / (len(d) - 1))
            loss = f"{100 * m:+.1f} ± {100 * e:.1f}"
            read_share = "%.1f" % (100 * sum(x["kv_read_bytes_per_token"] for x, _ in pairs) /
                                   max(1, sum(f["kv_read_bytes_per_token"] for _, f in pairs)))
        held = 100 * sum(r["kv_bytes"] for r in g) / max(1, sum(r["kv_full_bytes"] for r in g))
        part = "" if n == most[q] else f" of {most[q]}"
        density = [r.get("prompt_density", 0) for r in g]
        attended = f" {100 * sum(density) / n:.1f} |" if min(density) > 0 else " |"
        out.append(f"| {q} | {name} | {n}{part} | {100 * mean:.1f} | "
                   f"{100 * low:.1f} to {100 * high:.1f} | {loss} | "
                   f"{held:.1f} | {read_share} |" + attended * sparse)
    return out


def by_task(rows):
    """Scores of full and the policies, a column a task and length."""
    columns = sorted({(r["task"], r["length"]) for r in rows})
    if len(columns) < 2:
        return []
    cells = collections.defaultdict(list)
    names = []
    for r in rows:
        key = (r["question"], label(r))
        cells[key, (r["task"], r["length"])].append(r["score"])
        if key not in names:
            names.append(key)
    out = ["", "| question | policy | " + " | ".join(f"{t} {n or ''}".strip()
                                                     for t, n in columns) + " |",
           "| --- | --- |" + " --- |" * len(columns)]
    for key in sorted(names, key=lambda k: (k[0], k[1] != "full")):
        scores = [cells.get((key, c)) for c in columns]
        out.append(f"| {key[0]} | {key[1]} | " +
                   " | ".join(f"{100 * sum(s) / len(s):.0f}" if s else "" for s in scores) + " |")
    return out


def summary(answers):
    """A row a policy and way of asking, from {run: rows}: means over its runs, each weighing the
    same."""
    found = collections.defaultdict(dict)
    for name, rows in answers.items():
        full = of_full(rows)
        cells = collections.defaultdict(list)
        for r in rows:
            if item_of(r) in full:
                cells[r["question"], label(r)].append((r["score"], full[item_of(r)]["score"]))
        for key, pairs in cells.items():
            found[key][name] = [sum(p[i] for p in pairs) / len(pairs) for i in (0, 1)]
    most = {q: max((len(v) for k, v in found.items() if k[0] == q),
                   default=0) for q in ("aware", "blind")}
    out = ["| question | policy | runs | score | full on the same | share of full % |",
           "| --- | --- | --- | --- | --- | --- |"]
    for (q, name), runs in sorted(found.items(), key=lambda x: (x[0][0], x[0][1] != "full")):
        score, full = (100 * sum(r[i] for r in runs.values()) / len(runs) for i in (0, 1))
        if 2 * len(runs) >= most[q]:
            share = 100 * score / max(full, 1e-9)
            out.append(f"| {q} | {name} | {len(runs)} | {score:.1f} | {full:.1f} | {share:.1f} |")
    return out if len(out) > 2 else []


def perplexity_table(rows):
    base = {r["model"]: r["perplexity"] for r in rows if r["policy"] == "full"}
    out = ["| policy | perplexity | against full | tokens | held % |",
           "| --- | --- | --- | --- | --- |"]
    for r in sorted(rows, key=lambda r: r["policy"] != "full"):
        m = r["memory"]
        ratio = f"{r['perplexity'] / base[r['model']]:.3f}" if r["model"] in base else "-"
        out.append(f"| {r['policy']} | {r['perplexity']:.3f} | {ratio} | {r['tokens']} | "
                   f"{100 * m['kv_bytes'] / max(1, m['kv_full_bytes']):.1f} |")
    return out


def position_table(rows):
    """Likelihoods by position, a column a policy."""
    rows = [r for r in rows if r.get("positions")]
    if not rows:
        return []
    out = ["", "| tokens before | " + " | ".join(r["policy"] for r in rows) + " |",
           "| --- |" + " --- |" * len(rows)]
    for i, x in enumerate(rows[0]["positions"]):
        cells = [r["positions"][i]["nll"] for r in rows]
        out.append(f"| {x['from']} to {x['to']} | " +
                   " | ".join("" if v is None else f"{v:.3f}" for v in cells) + " |")
    return out


def share_table(rows, name, columns):
    """Rows by name; columns: {title: key of a share, shown in percent}"""
    out = [f"| {name} | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for r in rows:
        out.append(f"| {r[name]} | " + " | ".join(
            f"{100 * r[k]:.1f}" for k in columns.values()) + " |")
    return out


def attention_table(rows):
    return share_table(rows, "policy", {
        "tokens read %": "read_share", "attention recalled %": "recall", "best choice %": "best",
        "overlap with it %": "overlap"})


def speed_table(rows):
    base = {x["depth"]: x["tps_mean"] for r in rows if r["policy"] == "full" for x in r["rows"]}
    out = ["| policy | depth | tokens/s | of full |", "| --- | --- | --- | --- |"]
    for r in rows:
        for x in r["rows"]:
            ratio = f"{x['tps_mean'] / base[x['depth']]:.2f}" if x["depth"] in base else "-"
            out.append(f"| {r['policy']} | {x['depth']} | "
                       f"{x['tps_mean']:.1f} ± {x['tps_sd']:.1f} | {ratio} |")
    return out


def kld_table(rows):
    out = [f"{rows[0]['target_tokens']} tokens after {rows[0]['context_tokens']}. Bytes and slots "
           "are those at the end; intervals are 95 % over the tokens.", "",
           "| policy | KL, nats a token | same likeliest token % | perplexity | held % | "
           "slots a layer |", "| --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        m = r["memory"]
        slots = f"{m['kept_min']}" if m["kept_min"] == m["kept_max"] else (
            f"{m['kept_min']} to {m['kept_max']}")
        out.append(f"| {r['policy']} | {r['kld_mean']:.4f} ± {1.96 * r['kld_error']:.4f} | "
                   f"{100 * r['top1_agreement']:.0f} | {r['ppl']:.2f} | "
                   f"{100 * m['kv_bytes'] / max(1, m['kv_full_bytes']):.1f} | {slots} |")
    return out + [f"| full | 0 | 100 | {rows[0]['ppl_full']:.2f} | | |"]


def fit_table(rows):
    """The largest batch of each policy in the same memory"""
    base = next((r["tps_mean"] for r in rows if r["policy"] == "full"), None)
    out = ["| policy | tokens | contexts | tokens/s of all | of full | held MiB | "
           "held / planned |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        ratio = f"{r['tps_mean'] / base:.2f}" if base else "-"
        out.append(f"| {r['policy']} | {r['depth']} | {r['sessions']} | {r['tps_mean']:.1f} | "
                   f"{ratio} | {r['kv_bytes'] / 2 ** 20:.1f} | "
                   f"{r['kv_bytes'] / r['planned_bytes']:.4f} |")
    return out


def lazy_table(rows):
    return share_table(rows[-1]["layers"], "layer", {
        "attention on the ends %": "mean", "deviation": "deviation", "lowest %": "lowest",
        "highest %": "highest"})


# ---- the first screen ----

def costs(rows):
    """{question: {policy: (score, read, held, kept, items)}} of one run; read, held and kept as
    shares of full on the same items, kept None where full scores nothing."""
    full = of_full(rows)
    groups = collections.defaultdict(list)
    for r in rows:
        if item_of(r) in full:
            groups[r["question"], label(r)].append((r, full[item_of(r)]))
    out = {"aware": {}, "blind": {}}
    for (q, name), g in groups.items():
        best = sum(f["score"] for _, f in g)
        out[q][name] = (sum(r["score"] for r, _ in g) / len(g),
                        sum(r["kv_read_bytes_per_token"] for r, _ in g) /
                        max(1, sum(f["kv_read_bytes_per_token"] for _, f in g)),
                        sum(r["kv_bytes"] for r, _ in g) /
                        max(1, sum(r["kv_full_bytes"] for r, _ in g)),
                        sum(r["score"] for r, _ in g) / best if best else None, len(g))
    return out


def kept(table, name):
    """In percent; with the number of items where not all of full's have been asked"""
    share, n = table[name][3:] if name in table else (None, 0)
    if share is None:
        return ""
    return f"{100 * share:.0f}" + (f" ({n} items)" if n < table["full"][4] else "")


def overview(screen, answers):
    """A row a method: what it reads and holds, what it keeps, and how fast it is."""
    asked = costs(answers[screen.run])
    recall = {r["policy"]: r["recall"] for r in answers.get(screen.attention, [])}
    speed = {(r["policy"], x["depth"]): x["tps_mean"] for name in screen.speed
             for r in answers.get(name, []) for x in r["rows"]}
    depths = sorted({d for _, d in speed})
    out = ["| policy | bytes read % | bytes held % | score kept %, aware | blind | "
           "attention recalled % |" + "".join(f" tokens/s at {d:,} |" for d in depths),
           "| --- | --- | --- | --- | --- | --- |" + " --- |" * len(depths)]
    for name in ["full", *screen.methods]:
        table = asked["aware"] if name in asked["aware"] else asked["blind"]
        if name not in table:
            continue
        cells = [f"{100 * table[name][1]:.0f}", f"{100 * table[name][2]:.0f}",
                 kept(asked["aware"], name), kept(asked["blind"], name),
                 f"{100 * recall[name]:.0f}" if name in recall else ""]
        cells += [f"{speed[name, d]:.1f}" if (name, d) in speed else "" for d in depths]
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return out if len(out) > 3 else []


def family(policy):
    """The policy without what says how much it keeps: the points of one curve."""
    name, _, options = policy.partition(":")
    rest = [o for o in options.split(",") if o and not o.startswith(("budget=", "threshold="))]
    return name + (":" + ",".join(rest) if rest else "")


def diagram(title, x_name, first, step, curves, powers=False):
    """curves: {name: y}, or {name: [(x, y)]} where x is on a logarithmic scale"""
    shown = [{"name": n, "x": [x for x, _ in sorted(c)], "y": [y for _, y in sorted(c)]} if powers
             else {"name": n, "y": c} for n, c in curves.items()]
    return {"title": title, "x_name": x_name, "first": first, "step": step, "curves": shown}


def draw_costs(path, rows):
    """Scores against bytes read, and against bytes held."""
    shown = []
    for k, name in ((1, "read"), (2, "held")):
        lines = collections.defaultdict(list)
        for policy, found in costs(rows)["aware"].items():
            lines[family(policy)].append((100 * max(found[k], 1 / 64), 100 * found[0]))
        shown.append(diagram(f"Score (%) against bytes {name}, question-aware",
                             f"bytes {name}, % of full", 0, 0,
                             dict(sorted(lines.items(), key=lambda x: x[0] != "full")), True))
    return {"file": path, "diagrams": shown}


def draw_attention(path, rows):
    layers = range(max(x["layer"] for r in rows for x in r["layers"]) + 1)
    recall = {r["policy"]: {x["layer"]: 100 * x["recall"] for x in r["layers"]} for r in rows}
    return {"file": path, "diagrams": [
        diagram("Full attention on what is read, %", "layer", 0, 1,
                {p: [y.get(i) for i in layers] for p, y in recall.items()}),
        diagram("Full attention on what is not read, %", "token", rows[0]["context"], 1,
                {r["policy"]: [100 * v for v in r["missing"]] for r in rows})]}


def draw_positions(path, rows):
    placed = [r for r in rows if r.get("positions")]
    at = [x["from"] for x in placed[0]["positions"]]
    return {"file": path, "diagrams": [
        diagram("Negative log-likelihood by position, nats", "tokens before", at[0],
                at[1] - at[0] if len(at) > 1 else 1,
                {r["policy"]: [x["nll"] for x in r["positions"]] for r in placed})]}


def draw_lazy(path, rows):
    return {"file": path, "title": "Attention on the ends of the text",
            "map": [x["shares"] for x in rows[-1]["layers"]], "first": rows[-1]["context"]}


def draw(program, pictures):
    """The program's own writer draws them: draw-pictures stands beside it."""
    tool = os.path.join(os.path.dirname(program), "bench", "draw-pictures")
    if pictures:
        subprocess.run([tool], input=json.dumps(pictures), text=True, check=True)


# ---- the whole ----

def tables_of(run, rows, folder, pictures):
    """The tables of one run, and its picture, whose description joins the list."""
    def picture(describe):
        file = run.name + ".svg"
        pictures.append(describe(os.path.join(folder, file), rows))
        return ["", f"![{run.name}]({file})"]

    if run.kind == "tasks":
        return task_table(rows) + by_task(rows)
    if run.kind == "attention":
        return attention_table(rows) + picture(draw_attention)
    if run.kind == "speed":
        return speed_table(rows)
    if run.kind == "kld":
        return kld_table(rows)
    if run.kind == "fit":
        return fit_table(rows)
    if run.kind == "lazy":
        return lazy_table(rows) + picture(draw_lazy)
    shown = perplexity_table(rows) + position_table(rows)
    return shown + (picture(draw_positions) if any(r.get("positions") for r in rows) else [])


def first_screen(screen, answers, folder, pictures):
    table = overview(screen, answers)
    if not table:
        return []
    pictures.append(draw_costs(os.path.join(folder, "score-bytes.svg"), answers[screen.run]))
    return ["", f"A setting of each method on the run `{screen.run}`; *score kept* is what is left "
            "of the full cache's score on the same items.", "", *table, "",
            "![Score against bytes](quality/score-bytes.svg)"]


def write_page(folder, name, title, text):
    with open(os.path.join(folder, name + ".md"), "w", encoding="utf-8") as f:
        f.write("\n".join([f"# {title}", "", *text]) + "\n")


def write(program, out, plan, screen, files, shown, spent, notes):
    """out/QUALITY.md from out/quality/*.jsonl. program: draw-pictures is beside it; files: {key:
    model file} whose runs are summed up; shown(run): its command; spent: {run: seconds of a
    core}."""
    folder = os.path.join(out, "quality")
    answers = {run.name: read(os.path.join(folder, run.name + ".jsonl")) for run in plan}
    text = ["# Quality", "",
            "What policies keep of a model's answers; written by `bench/make-quality` from the "
            "JSON lines in `quality/`. Scores are percent, n counts items, intervals are 95 % "
            "(Wilson's for scores, of the paired difference to the full cache on the same items). "
            "*Held* is what the bank really held at the end of the answers, *read* what the last "
            "token read, both as shares of the full cache at f16. *Aware*: the policy had the "
            "question when it compressed; *blind*: it compressed the context "
            "first, as for a saved bank."]
    drawn = []
    text += first_screen(screen, answers, folder, drawn)
    if spent:
        text += ["",
                 f"The runs took {sum(spent.values()) / 60:.0f} minutes of a core together, most "
                 "of them on both of two "
                 "(`quality/seconds.json`)."]
    first, summed = next(iter(files), None), {}
    for key, file in files.items():
        asked = {r.name: answers[r.name] for r in plan if r.model == key and answers[r.name] and
                 r.kind == "tasks" and "--prefill" not in r.args}
        summed[key] = asked
        write_page(folder, "all-" + key, f"All runs of {file}", [
            "Policies that at least half of the runs asked, those of `--prefill` left out.", "",
            *summary(asked)])
    verdict = os.path.join(folder, "verdict.md")
    if os.path.exists(verdict):
        counted = {r.name: costs(answers[r.name]) for r in plan if r.kind == "tasks"}
        with open(verdict, encoding="utf-8") as f:
            text += ["", quality_figures.fill(f.read(), quality_figures.Figures(
                counted, answers, summed.get(first, {}))).rstrip()]
    pictures = []
    listed = [f"| [all-{key}](quality/all-{key}.md) | the sum of the runs of {file} | |"
              for key, file in files.items()]
    for run in plan:
        rows = answers[run.name]
        if not rows:
            continue
        page = [f"`ctxbank {shown(run)}`"]
        for model in sorted({r["model"] for r in rows}):
            mine = [r for r in rows if r["model"] == model]
            page += ["", f"{model}:", ""] + tables_of(run, mine, folder, drawn)
        write_page(folder, run.name, run.name, page)
        if f"![{run.name}]({run.name}.svg)" in page:
            pictures += ["", f"![{run.name}](quality/{run.name}.svg)"]
        took = f"{spent[run.name] / 60:.1f}" if run.name in spent else ""
        listed += [f"| [{run.name}](quality/{run.name}.md) | `{shown(run)}` | {took} |"]
    draw(program, drawn)
    text += ["", "## Pictures", *pictures] if pictures else []
    text += ["", "## All runs", "", "| run | command | minutes of a core |", "| --- | --- | ---: |",
             *listed]
    notes = notes + [f"{name}: no answers yet" for name, rows in answers.items()
                     if not rows and not any(n.startswith(name + ":") for n in notes)]
    if notes:
        text += ["", "## Left out", ""] + [f"- {n}" for n in notes]
    with open(os.path.join(out, "QUALITY.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(text) + "\n")
