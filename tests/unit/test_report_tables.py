from xml.etree import ElementTree

from kleash.report.markup import Html
from kleash.report.tables import flatten, settings_table, table


def test_cells_are_escaped_unless_they_are_html():
    tree = ElementTree.fromstring(
        table(["name", "n"], [("<i>", "1"), (Html("<b>x</b>"), "2")], caption="A & B", numeric={"n"})
    )
    assert tree.find("table/caption").text == "A & B"
    assert [cell.text for cell in tree.findall(".//th")] == ["name", "n"]
    assert tree.find(".//tbody/tr[1]/td[1]").text == "<i>"
    assert tree.find(".//tbody/tr[2]/td[1]/b").text == "x"
    assert [cell.get("class") for cell in tree.findall(".//tbody/tr[1]/td")] == ["text", "number"]
    assert {cell.get("scope") for cell in tree.findall(".//th")} == {"col"}


def test_settings_have_the_names_that_the_command_line_takes():
    settings = {
        "model": "toy",
        "algorithm": {"kl": {"target": 6.5, "gold": None}, "extra": {}},
        "stop": ["a"],
    }
    assert flatten(settings) == [
        ("model", "toy"), ("algorithm.kl.target", "6.5"), ("algorithm.kl.gold", "not set"),
        ("algorithm.extra", "{}"), ("stop", '["a"]'),
    ]  # fmt: skip
    assert "<code>algorithm.kl.target</code>" in settings_table(settings, caption="")
