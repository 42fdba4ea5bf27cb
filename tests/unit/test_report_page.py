from kleash.report.markup import Html
from kleash.report.page import Section, columns, folded, page, prose, style


def test_a_page_asks_nobody_for_anything():
    html = page("<run>", Html("<h1>x</h1>"), [Section("Where & why?", prose("a < b"))])
    assert "<title>&lt;run&gt;</title>" in html
    assert "default-src 'none'" in html
    assert "a &lt; b" in html
    for loads in ("<script", "<link", "src=", "@import", "url(", "http://", "https://"):
        assert loads not in html


def test_the_contents_lead_to_the_sections():
    html = page("run", Html(), [Section("Where & why?", Html())])
    assert '<a href="#where-why">Where &amp; why?</a>' in html
    assert '<section id="where-why"><h2>Where &amp; why?</h2>' in html


def test_the_style_serves_light_and_dark():
    assert "prefers-color-scheme: dark" in style()
    assert '<meta name="color-scheme" content="light dark">' in page("run", Html(), [])


def test_pieces_of_a_page():
    assert columns([Html("a"), Html("b")], 3) == '<div class="columns of-3">ab</div>'
    assert folded("<x>", Html("<b>y</b>")) == "<details><summary>&lt;x&gt;</summary><b>y</b></details>"
