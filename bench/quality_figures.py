# SPDX-License-Identifier: MIT
"""quality_figures - the figures in quality/verdict.md, which come from the answers themselves.

A figure stands in braces: `{read ruler-4k sieve:budget=128}` becomes the share of the full cache's
bytes that this policy read in that run. Words with blanks are quoted. `.1` after the name of a
figure asks for one digit behind the point: `{score.1 ruler-4k full}`. The figures, all in percent
but for ppl and items:

  score RUN POLICY [blind]   mean score
  kept RUN POLICY [blind]    the score as a share of the full cache's on the same items
  read RUN POLICY [blind]    bytes that the last token read, as a share of the full cache's
  held RUN POLICY [blind]    bytes held at the end, as a share of the full cache's at f16
  items RUN POLICY [blind]   number of answers
  held_range POLICY          the lowest and the highest of held over all runs of the first model
  scores RUN [blind]         the lowest and the highest score of all policies
  mean POLICY [blind]        mean score over the first model's runs that asked the policy
  mean_full POLICY [blind]   the full cache's mean score over the same runs
  faster RUN POLICY          tokens/s as a multiple of the full cache's, at the run's greatest depth
  kl RUN POLICY              mean KL divergence from the full cache, in nats a token
  ppl RUN POLICY             perplexity
  ppl_more RUN POLICY        the perplexity above the full cache's
  recall POLICY, best POLICY, share POLICY
                             of run `attention`: attention recalled, by the best choice, tokens read
  density RUN                pairs of query and token that its prompts read
  published POLICY           mean KL divergence, in nats, of the paper's algorithm apart from
                             ctxbank (tests/vectors/make_published.py)
  published_read POLICY      tokens that its query heads read besides the newest, each of its own
  published_union POLICY     tokens that any query head of a KV head reads
  published_tokens, published_targets
                             of its context, and those that follow
  published_angle WHAT       mean angles of pairs of layers' keys or values, in degrees
"""
import functools
import json
import os
import re
import shlex

PUBLISHED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "vectors",
                         "published-smollm2.json")
FIGURE = re.compile(r"\{(\w+)(\.\d)?((?: [^{}]+)?)\}")


class Figures:
    """costs: {run: {question: {policy: (score, read, held, kept, items)}}}, answers: {run: rows},
    first: the names of the first model's runs of tasks."""

    def __init__(self, costs, answers, first):
        self.costs, self.answers, self.first = costs, answers, first

    def _row(self, run, policy, question="aware"):
        return self.costs[run][question][policy]

    def score(self, *which):
        return 100 * self._row(*which)[0]

    def read(self, *which):
        return 100 * self._row(*which)[1]

    def held(self, *which):
        return 100 * self._row(*which)[2]

    def kept(self, *which):
        return 100 * self._row(*which)[3]

    def items(self, *which):
        return self._row(*which)[4]

    def _runs(self, policy, question):
        runs = [r for r in self.first if policy in self.costs[r][question]]
        if not runs:
            raise KeyError(policy)
        return runs

    def held_range(self, policy):
        found = [100 * self.costs[r][q][policy][2] for r in self.first for q in ("aware", "blind")
                 if policy in self.costs[r][q]]
        return f"{min(found):.0f} to {max(found):.0f}"

    def scores(self, run, question="aware"):
        found = [100 * row[0] for row in self.costs[run][question].values()]
        return f"{min(found):.0f} to {max(found):.0f}"

    def mean(self, policy, question="aware"):
        runs = self._runs(policy, question)
        return 100 * sum(self.costs[r][question][policy][0] for r in runs) / len(runs)

    def mean_full(self, policy, question="aware"):
        runs = self._runs(policy, question)
        return 100 * sum(self.costs[r][question]["full"][0] for r in runs) / len(runs)

    def faster(self, run, policy):
        tps = {r["policy"]: r["rows"][-1]["tps_mean"] for r in self.answers[run]}
        return tps[policy] / tps["full"]

    def ppl(self, run, policy):
        return next(r["perplexity"] for r in self.answers[run] if r["policy"] == policy)

    def ppl_more(self, run, policy):
        return 100 * (self.ppl(run, policy) / self.ppl(run, "full") - 1)

    def _attention(self, policy, key):
        return next(100 * r[key] for r in self.answers["attention"] if r["policy"] == policy)

    def recall(self, policy):
        return self._attention(policy, "recall")

    def best(self, policy):
        return self._attention(policy, "best")

    def share(self, policy):
        return self._attention(policy, "read_share")

    def density(self, run):
        found = [r["prompt_density"] for r in self.answers[run] if r.get("prompt_density")]
        return 100 * sum(found) / len(found)

    def kl(self, run, policy):
        return next(r["kld_mean"] for r in self.answers[run] if r["policy"] == policy)

    def published(self, policy):
        return published()[policy]["kld"]

    def published_read(self, policy):
        return published()[policy]["read_percent"][0]

    def published_union(self, policy):
        return published()[policy]["read_percent"][1]

    def published_tokens(self):
        return f"{recorded()['n_context']:,}"

    def published_targets(self):
        return f"{recorded()['n_target']}"

    def published_angle(self, what):
        found = published()["minicache:retain=0.05"]["degrees"][what]
        return f"{min(found):.0f} to {max(found):.0f}"


@functools.cache
def recorded():
    with open(PUBLISHED, encoding="utf-8") as f:
        return json.load(f)


def published():
    """-> {policy: case}"""
    return {row["policy"]: row for row in recorded()["cases"] + recorded()["beside"]}


def fill(text, figures):
    """The text with its figures. A figure that no answers give is an error that names it."""
    def one(m):
        try:
            value = getattr(figures, m[1])(*shlex.split(m[3]))
        except (AttributeError, KeyError, StopIteration, TypeError, ZeroDivisionError) as e:
            raise SystemExit(f"verdict.md: {m[0]}: no answers give this figure ({e!r})") from e
        return value if isinstance(value, str) else f"{value:{m[2] or '.0'}f}"
    return FIGURE.sub(one, text)
