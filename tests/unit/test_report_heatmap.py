import pytest

from kleash.report.heatmap import legend, shade, token_heatmap


@pytest.mark.parametrize(
    ("kl", "name"),
    [(0.0, "k0"), (0.0099, "k0"), (0.01, "k1"), (0.05, "k2"), (0.1, "k3"), (0.99, "k4"), (1.0, "k5"),
     (3.0, "k6"), (50.0, "k6"), (float("nan"), "broken"), (float("inf"), "broken")],
)  # fmt: skip
def test_the_scale_is_fixed_in_nats(kl, name):
    assert shade(kl) == name


def test_each_token_has_its_colour_its_number_and_its_text():
    html = token_heatmap([" the", " <b>"], [0.002, 0.25])
    assert '<span class="k0" title="0.00200 nats · &#x27; the&#x27;"> the</span>' in html
    assert '<span class="k3" title="0.250 nats · &#x27; &lt;b&gt;&#x27;"> &lt;b&gt;</span>' in html


def test_line_breaks_and_blank_tokens_can_be_seen():
    html = token_heatmap(["\n", "  ", " a", "\t"], [0.0, 0.0, 0.0, 0.0])
    assert "><i>↵\n</i></span>" in html
    assert "><i>·</i><i>·</i></span>" in html
    assert "> a</span>" in html
    assert "><i>⇥\t</i></span>" in html


def test_the_colours_are_said_in_words():
    html = token_heatmap([" good", " grief"], [0.5, 1.25], "After training:")
    assert "After training: 2 tokens, KL 1.75 nats in all, most at “grief” with 1.25." in html


def test_a_value_that_is_not_finite_is_the_worst():
    html = token_heatmap(["a", "b"], [9.0, float("nan")])
    assert '<span class="broken" title="nan nats' in html
    assert "most at “b” with nan" in html


def test_tokens_and_values_must_pair_up():
    with pytest.raises(ValueError, match="shorter"):
        token_heatmap(["a", "b"], [0.1])


def test_no_tokens_are_said():
    assert "(no tokens)" in token_heatmap([], [])


def test_the_legend_names_every_shade():
    for name, start in zip(range(7), ["0", "0.01", "0.03", "0.1", "0.3", "1", "3"], strict=True):
        assert f'<span class="k{name}">{start}</span>' in legend()
    assert "in nats" in legend()
