from xml.etree import ElementTree

import pytest

from kleash.report.intervals import Curve, Interval, interval_curves, interval_reach, interval_rows

NAN = float("nan")


def of_class(html, name):
    return [node for node in ElementTree.fromstring(html).iter() if name in node.get("class", "").split()]


def texts(html):
    return [node.text for node in ElementTree.fromstring(html).iter("text")]


def test_a_row_has_its_name_its_numbers_and_a_dot_on_its_interval():
    html = interval_rows("KL", [Interval("story", 1.0, 0.5, 1.75)], unit="nats", reach=(0.0, 2.0))
    # the plot goes from 118 to 480 - 118 = 362, so a nat is 122 wide
    (dot,) = of_class(html, "dot")
    assert float(dot.get("cx")) == 240.0
    (whisker,) = of_class(html, "whisker")
    assert whisker.get("d") == "M179.0 35.0H331.5"
    assert {"story", "1.00 [0.50, 1.75]", "nats", "0.0", "0.5", "1.0", "1.5", "2.0"} == set(texts(html))


def test_rows_that_are_not_finite_keep_their_name_and_have_no_dot():
    rows = [Interval("story", 1.0, 0.5, 1.5), Interval("code", NAN, NAN, NAN)]
    html = interval_rows("KL", rows, unit="nats")
    assert len(of_class(html, "dot")) == 1
    assert {"code", "nan"} <= set(texts(html))


def test_an_estimate_without_an_interval_is_a_dot():
    html = interval_rows("KL", [Interval("story", 1.0, NAN, NAN)], unit="nats", reach=(0.0, 2.0))
    assert float(of_class(html, "dot")[0].get("cx")) == 240.0
    assert of_class(html, "whisker")[0].get("d") == "M240.0 35.0H240.0"
    assert "1" in texts(html)
    assert interval_reach([Interval("story", 1.0, NAN, NAN)]) == (0.0, pytest.approx(1.08))


def test_a_chart_without_a_number_says_so():
    assert "Not recorded" in interval_rows("KL", [Interval("code", NAN, NAN, NAN)], unit="nats")
    assert "Not recorded" in interval_curves("KL", [Curve("kl", [])], unit="nats", axis="step")


def test_a_long_name_is_cut_and_whole_in_the_tooltip():
    name = "a category with a long name"
    html = interval_rows("KL", [Interval(name, 1.0, 0.5, 1.5, "7 replies")], unit="nats")
    assert "a category with a…" in texts(html)
    assert f"{name} · 1.00 [0.50, 1.50] · 7 replies" in html


def test_the_reach_holds_zero_and_every_end():
    low, high = interval_reach([Interval("a", 1.0, 0.5, 2.0), Interval("b", NAN, NAN, NAN)])
    assert low == 0.0
    assert high == pytest.approx(2.16)
    assert interval_reach([Interval("a", -1.0, -2.0, 0.5)])[0] < -2.0


def test_a_curve_goes_through_its_points_from_zero_on_the_axis():
    points = [(10.0, Interval("step 10", 1.0, 0.5, 1.5)), (20.0, Interval("step 20", 3.0, 2.0, 4.0))]
    html = interval_curves("KL", [Curve("kl", points)], unit="nats", axis="step", include=(0.0, 4.0))
    dots = of_class(html, "dot")
    # the frame is 46 to 468 wide and 170 to 24 high
    assert [float(dot.get("cx")) for dot in dots] == [257.0, 468.0]
    assert [float(dot.get("cy")) for dot in dots] == [133.5, 60.5]
    assert [node.get("d") for node in of_class(html, "whisker")] == ["M257.0 151.8V115.2", "M468.0 97.0V24.0"]
    assert of_class(html, "legend") == []


def test_several_curves_have_a_legend_and_what_is_not_finite_is_counted():
    good = Interval("step 1", 1.0, 0.9, 1.1)
    html = interval_curves(
        "KL", [Curve("one", [(1.0, good)]), Curve("two", [(1.0, Interval("x", NAN, NAN, NAN))], "quiet")],
        unit="nats", axis="step",
    )  # fmt: skip
    assert [node.text for node in of_class(html, "key")] == ["one", "two"]
    assert "1 of 2 values are not finite" in html
    assert len(of_class(html, "dot")) == 1


def test_names_are_escaped():
    html = interval_rows("<b>", [Interval("<i>", 1.0, 0.5, 1.5)], unit="<u>")
    assert "<i>" not in html
    assert ElementTree.fromstring(html).find("figcaption/span").text == "<b>"


def test_an_axis_that_does_not_begin_at_zero_has_fractions():
    curve = Curve("observed", [(0.75, Interval("stated", 0.5, 0.25, 0.75))])
    html = interval_curves("p", [curve], unit="share", axis="stated", across=(0.5, 1.0))
    # the plot goes from 46 to 480 - 12 = 468, so the middle is at 257
    assert float(of_class(html, "dot")[0].get("cx")) == 257.0
    assert {"0.5", "0.6", "0.7", "0.8", "0.9", "1.0"} <= set(texts(html))
