import pytest

from kleash.report.axes import WIDE, Frame, padded_range, tick_text, ticks, whole_ticks


@pytest.mark.parametrize(
    ("low", "high", "at_most", "expected"),
    [
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 50, 6, [0, 10, 20, 30, 40, 50]),
        (-0.3, 0.3, 3, [-0.2, 0, 0.2]),
        (0, 7.9, 5, [0, 2, 4, 6]),
        (3, 3, 5, [3]),
    ],
)
def test_ticks_are_round_numbers(low, high, at_most, expected):
    assert ticks(low, high, at_most) == pytest.approx(expected)


def test_steps_and_counts_have_no_fractions():
    assert whole_ticks(0, 1, 6) == [0, 1]
    assert whole_ticks(0, 3, 6) == [0, 1, 2, 3]


def test_a_range_has_air_except_at_a_named_end():
    assert padded_range([2.0, 10.0], include=[0.0]) == pytest.approx((0.0, 10.8))
    assert padded_range([1.0, 2.0, float("nan")], include=[]) == pytest.approx((0.92, 2.08))
    assert padded_range([5.0, 5.0], include=[]) == pytest.approx((4.5, 5.5))
    assert padded_range([0.0], include=[0.0]) == (0.0, 1.0)


def test_ticks_of_one_axis_have_the_same_decimals():
    assert [tick_text(tick, [0, 0.5, 1.0]) for tick in (0, 0.5, 1.0)] == ["0.0", "0.5", "1.0"]
    assert tick_text(-2000, [-2000, 0, 2000]) == "−2,000"


def test_a_frame_puts_the_ends_of_its_ranges_on_its_edges():
    frame = Frame(WIDE, (10, 20), (0, 4))
    assert (frame.at_x(10), frame.at_x(20)) == (46, 468)
    assert (frame.at_y(0), frame.at_y(4)) == (170, 24)
    assert Frame(WIDE, (7, 7), (0, 4)).at_x(7) == 257
