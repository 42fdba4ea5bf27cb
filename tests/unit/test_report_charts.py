import re
from xml.etree import ElementTree

import pytest

from kleash.report.charts import Series, Target, histogram, line_chart

NAN = float("nan")


def draw(html):
    """Parse a figure: it must be well-formed."""
    return ElementTree.fromstring(html)


def of_class(figure, name):
    return [node for node in figure.iter() if name in node.get("class", "").split()]


def places(path):
    return [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", path.get("d"))]


def test_a_line_goes_through_its_points():
    figure = draw(line_chart("KL", [Series("kl", [(0, 0.0, None), (10, 2.0, None)])], include=(0, 4)))
    (line,) = of_class(figure, "line")
    assert places(line) == [(46.0, 170.0), (468.0, 97.0)]


def test_the_band_is_one_standard_error_to_each_side():
    series = Series("kl", [(0, 1.0, 0.5), (10, 2.0, 1.0)], "drift")
    (band,) = of_class(draw(line_chart("KL", [series], include=(0, 4))), "band")
    wanted = [(46.0, 115.25), (468.0, 60.5), (468.0, 133.5), (46.0, 151.75)]
    assert [x for x, _ in places(band)] == [x for x, _ in wanted]
    assert [y for _, y in places(band)] == pytest.approx([y for _, y in wanted], abs=0.06)
    assert "drift" in band.get("class")


def test_a_line_is_not_drawn_across_a_value_that_broke():
    points = [(0, 1.0, None), (1, 1.5, None), (2, NAN, 0.1), (3, 2.0, None), (4, 2.5, None)]
    figure = draw(line_chart("KL", [Series("kl", points)]))
    assert [len(places(line)) for line in of_class(figure, "line")] == [2, 2]
    assert [node.find("title").text for node in of_class(figure, "broken")] == ["step 2: kl is nan"]


def test_words_stand_in_for_the_drawing():
    points = [(0, 1.0, None), (5, 3.0, None), (10, 2.0, 0.25)]
    target = Target("target", [(0, 6.0), (10, 6.0)])
    svg = draw(line_chart("KL", [Series("kl", points)], unit="nats", target=target)).find("svg")
    assert svg.get("role") == "img"
    assert svg.find("title").text == "KL"
    assert svg.find("desc").text == (
        "Line chart over steps, in nats. kl: from 1 at step 0 to 2.00 ± 0.25 at step 10, lowest 1, "
        "highest 3. target: 6 at the end."
    )


def test_the_target_has_a_band_around_it():
    series = [Series("kl", [(0, 0.0, None), (10, 4.0, None)])]
    figure = draw(line_chart("KL", series, target=Target("target", [(0, 4.0), (10, 4.0)]), include=(0, 8)))
    (line,), (band,) = of_class(figure, "target-line"), of_class(figure, "target-band")
    assert places(line) == [(46.0, 97.0), (468.0, 97.0)]
    assert [round(y, 1) for _, y in places(band)] == pytest.approx([78.8, 78.8, 115.2, 115.2], abs=0.06)
    assert [node.text for node in of_class(figure, "key")] == ["kl", "target ± 25 %"]


def test_a_target_of_one_step_spans_the_chart():
    series = [Series("kl", [(1, 0.5, None)])]
    figure = draw(line_chart("KL", series, target=Target("target", [(1, 4.0)]), steps=(1, 1)))
    (line,) = of_class(figure, "target-line")
    assert [x for x, _ in places(line)] == [46.0, 468.0]


def test_one_point_is_a_dot_with_its_error():
    figure = draw(line_chart("KL", [Series("kl", [(3, 2.0, 0.5)])], include=(0, 4)))
    assert of_class(figure, "line") == []
    (whisker,) = of_class(figure, "whisker")
    assert [y for _, y in places(whisker)] == pytest.approx([78.75, 115.25], abs=0.06)
    assert (of_class(figure, "dot")[0].get("cx"), of_class(figure, "dot")[0].get("cy")) == ("257.0", "97.0")


def test_the_pointer_reads_a_step():
    series = [Series("kl", [(0, 1.0, None), (1, 2.0, 0.25)]), Series("k1", [(1, 2.5, None)], "quiet")]
    figure = draw(line_chart("KL", series, target=Target("target", [(1, 6.0)])))
    said = [hit.find("text").text for hit in of_class(figure, "hit")]
    assert said == ["step 0 · kl 1", "step 1 · kl 2.00 ± 0.25 · k1 2.50 · target 6"]
    assert [hit.find("rect/title").text for hit in of_class(figure, "hit")] == said


def test_a_long_run_has_a_bounded_number_of_readouts():
    figure = draw(line_chart("KL", [Series("kl", [(step, 1.0 + step, None) for step in range(5000)])]))
    assert 50 <= len(of_class(figure, "hit")) <= 100


def test_charts_of_one_run_share_their_steps():
    figure = draw(line_chart("KL", [Series("kl", [(10, 1.0, None), (20, 2.0, None)])], steps=(0, 20)))
    (line,) = of_class(figure, "line")
    assert [x for x, _ in places(line)] == [257.0, 468.0]


def test_a_chart_without_numbers_says_so():
    figure = draw(line_chart("Gold reward", [Series("gold", [])], target=Target("target", [])))
    assert "".join(figure.itertext()) == "Gold rewardNot recorded in this run."


def test_names_are_escaped():
    html = line_chart("<b>", [Series("</svg>", [(0, 1.0, None)])], unit="<i>", note="<u>")
    assert not re.search("<b>|<i>|<u>", html)
    assert draw(html).find("figcaption/span").text == "<b>"


def test_bars_stand_for_counts():
    figure = draw(histogram("KL", [0.0, 0.1, 0.2, 3.9, 4.0, 4.0, 4.0, NAN], unit="nats", bins=4))
    bars = of_class(figure, "bar")
    assert [bar.find("title").text for bar in bars] == ["0 to 1 nats: 3", "3 to 4 nats: 4"]
    heights = [float(bar.get("height")) for bar in bars]
    assert heights[0] / heights[1] == pytest.approx(3 / 4, abs=1e-3)
    assert of_class(figure, "note")[0].text == "1 of 8 values are not finite and are not drawn."
    assert "Histogram of 7 replies: from 0 to 4, mean 2.31 nats." in "".join(figure.itertext())


def test_a_histogram_has_a_colour_a_note_and_zero_on_its_axis():
    figure = draw(histogram("Margin", [-2.0, -1.0, NAN], unit="reward", bins=2, tone="reward", note="Left is wrong."))
    bars = of_class(figure, "bar")
    assert [bar.find("title").text for bar in bars] == ["−2 to −1 reward: 1", "−1 to 0 reward: 1"]
    assert {bar.get("class") for bar in bars} == {"bar reward"}
    assert of_class(figure, "note")[0].text == ("Left is wrong. 1 of 3 values are not finite and are not drawn.")


def test_a_histogram_of_nothing_says_so():
    assert "Not recorded in this run." in histogram("KL", [])
    assert "Not recorded in this run." in histogram("KL", [NAN])
