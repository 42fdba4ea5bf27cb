import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from synthetic_gauge import estimate, gauge, model

from kleash.gauge.page import render
from kleash.gauge.page_replies import shared_frame, shown_prompt
from kleash.gauge.records import Estimate, Gauge, Scale

HOSTILE = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>"
VOID = {"meta", "br", "path", "circle", "rect"}
SECTIONS = [
    "How far", "By category", "Along the reply", "By kind of token", "Tokens that drift most",
    "Replies that drift most", "How both write", "Given text", "Scores", "Settings",
]  # fmt: skip


class Page(HTMLParser):
    """Reads a page and checks that every element that opens closes, in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text, self.titles = [], [], "", []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)

    def of_class(self, name):
        return [tag for tag, attrs in self.tags if name in (attrs.get("class") or "").split()]


def page(*gauges):
    return Page(render(gauges))


def rows(html, first):
    """The cells of the table rows that begin with `first`, without mark-up."""
    found = re.findall(r"<tr>(.*?)</tr>", html)
    cells = [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in found]
    return [row for row in cells if row and row[0] == first]


def test_a_whole_gauge_has_every_section_under_its_verdict():
    shown = page(gauge())
    assert shown.titles == SECTIONS
    assert shown.text.index("Moved 2.9 ± 0.3 nats per reply") < shown.text.index("How far")
    assert "14 of 100 replies of the tuned model were cut" in shown.text
    assert shown.of_class("warning") == []


def test_the_amount_of_the_verdict_stands_out():
    html = render([gauge(verdict="Moved 2.9 ± 0.3 nats per reply; 1 ± 1 nats & more.")])
    assert '<p class="headline">Moved <b class="drift">2.9 ± 0.3 nats</b> per reply; 1 ± 1 nats &amp; more.</p>' in html
    assert '<p class="headline">Not moved.</p>' in render([gauge(verdict="Not moved.")])


def test_nothing_is_fetched_and_nothing_runs():
    shown = page(gauge())
    assert {tag for tag, _ in shown.tags}.isdisjoint({"script", "link", "img", "iframe"})
    assert [value for _, attrs in shown.tags for key, value in attrs.items() if key in ("src", "href")] == [
        f"#{title.lower().replace(' ', '-')}" for title in SECTIONS
    ]


def test_text_from_models_and_prompts_cannot_become_markup():
    made = gauge(HOSTILE, verdict=HOSTILE, notes=(HOSTILE,), settings={HOSTILE: HOSTILE})
    hostile = replace(made.reverse.replies[0], category=HOSTILE, tokens=(HOSTILE,), token_kl=(0.5,))
    worst = replace(made.reverse.worst_prompts[0], prompt_index=0, prompt=HOSTILE, category=HOSTILE)
    token = replace(made.reverse.worst_tokens[0], token=HOSTILE)
    made = replace(
        made,
        reverse=replace(
            made.reverse,
            replies=(hostile,),
            worst_prompts=(worst,),
            worst_tokens=(token,),
            by_category={HOSTILE: estimate(1.0)},
        ),
    )
    assert {tag for tag, _ in page(made).tags}.isdisjoint({"script", "img"})
    assert {tag for tag, _ in page(made, gauge("b")).tags}.isdisjoint({"script", "img"})


def test_the_quantiles_of_both_directions_stand_in_one_table():
    made = gauge()
    spread = replace(
        made.reverse.per_sequence, mean=Estimate(3.0, 2.5, 3.5, 100, 100),
        median=2.0, q90=5.0, q95=6.0, q99=8.0, q999=9.0, maximum=10.0,
    )  # fmt: skip
    made = replace(made, reverse=replace(made.reverse, per_sequence=spread, per_token=estimate(0.25, 0.05)))
    (row,) = [row for row in rows(render([made]), "KL(tuned ‖ reference)") if len(row) == 9]
    assert row[1:] == ["3.00 [2.50, 3.50]", "2", "5", "6", "8", "9", "10", "0.250 [0.200, 0.300]"]


def test_the_scale_says_how_many_times_rounding_the_model_has_moved():
    made = gauge(scale=Scale(estimate(0.01, 0.002), None))
    spread = replace(made.reverse.per_sequence, mean=estimate(2.5, 0.1))
    made = replace(made, reverse=replace(made.reverse, per_sequence=spread))
    html = render([made])
    assert rows(html, "bf16 rounding of the reference") == [
        ["bf16 rounding of the reference", "0.0100 [0.0080, 0.0120]", "250"]
    ]
    assert rows(html, "4-bit rounding of the reference") == []


def test_a_scale_of_zero_is_not_divided_by():
    html = render([gauge(scale=Scale(estimate(0.0), None))])
    assert rows(html, "bf16 rounding of the reference")[0][1:] == ["0 [0, 0]", "–"]


def test_a_model_that_has_not_moved_has_a_page_without_worst_tokens():
    made = gauge()

    def still(direction):
        replies = tuple(replace(one, token_kl=(0.0,) * len(one.tokens), kl=0.0) for one in direction.replies)
        zeros = {
            "by_category": dict.fromkeys(direction.by_category, estimate(0.0)),
            "by_class": dict.fromkeys(direction.by_class, estimate(0.0)),
            "by_position": tuple(estimate(0.0) for _ in direction.by_position),
            "per_token": estimate(0.0),
        }
        return replace(direction, replies=replies, **zeros)

    shown = page(replace(made, reverse=still(made.reverse), forward=still(made.forward)))
    assert shown.titles == [title for title in SECTIONS if title != "Tokens that drift most"]


@pytest.mark.parametrize("missing", ["reverse", "forward"])
def test_one_direction_alone_is_shown(missing):
    shown = page(gauge(notes=(), **{missing: None}))
    assert shown.titles == SECTIONS
    assert ("replies of the tuned model" in shown.text) == (missing == "forward")


def test_given_text_alone_is_shown():
    assert page(gauge(reverse=None, forward=None, scale=None, scores=())).titles == ["Given text", "Settings"]


def test_what_was_interrupted_is_marked_partial():
    assert page(gauge(partial=True)).of_class("warning") == ["span"]


def test_replies_to_the_worst_prompt_stand_side_by_side():
    made = gauge()
    worst = made.reverse.worst_prompts[0]
    (reference,) = [one for one in made.forward.replies if one.prompt_index == worst.prompt_index]
    html = render([made])
    first = html[html.index('<article class="pair">') : html.index("</article>")]
    heats = [re.sub("<.*?>", "", heat) for heat in re.findall(r'<p class="heat">(.*?)</p>', first, re.DOTALL)]
    assert [text.replace("↵", "") for text in heats] == [
        made.reverse.replies[worst.prompt_index].text, reference.text,
    ]  # fmt: skip
    assert f"Prompt number {worst.prompt_index}: tell me" in first
    assert "im_start" not in first


def test_what_all_prompts_share_is_left_out_up_to_a_mark():
    prompts = ["<s>[INST] Write a poem [/INST]", "<s>[INST] Write code [/INST]"]
    assert [shown_prompt(prompt, shared_frame(prompts)) for prompt in prompts] == ["Write a poem", "Write code"]
    plain = ["The film was", "The food was"]
    assert [shown_prompt(prompt, shared_frame(plain)) for prompt in plain] == plain


def test_a_single_prompt_is_shown_whole():
    assert shared_frame(["<s>Hi</s>", "<s>Hi</s>"]) == (0, 0)


def test_checkpoints_of_one_run_make_a_curve_in_the_order_of_steps():
    html = render([gauge(f"runs/a@{step}", size=0.001 * step) for step in (40, 10)])
    shown = Page(html)
    assert shown.titles == ["Side by side", "a@40", "a@10"]
    words = re.search(r"<desc>(Estimates with 95 % intervals over step.*?)</desc>", html)[1]
    assert re.findall(r"step \d+", words) == ["step 10", "step 40", "step 10", "step 40"]


def test_other_models_stand_in_rows_and_the_one_that_moved_furthest_leads():
    near, far = gauge("org/near", 0.01, verdict="moved a little"), gauge("org/far", 0.2, verdict="moved a lot")
    shown = page(near, far)
    before = shown.text[: shown.text.index("Side by side")]
    assert "Moved furthest: far" in before
    assert "moved a lot" in before
    assert "moved a little" not in before
    assert "over step" not in shown.text


def test_the_facts_of_the_weights_are_in_the_settings():
    made: Gauge = gauge()
    made = replace(made, tuned=model("m", description="dequantised weights", fingerprint="ab" * 32))
    html = render([made])
    assert rows(html, "tuned.fingerprint") == [["tuned.fingerprint", "ab" * 32]]
    assert rows(html, "tuned.description") == [["tuned.description", "dequantised weights"]]
