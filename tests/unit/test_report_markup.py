from kleash.report.markup import Html, escape, join


def test_text_cannot_become_markup_or_leave_an_attribute():
    assert escape("<script>alert('1') & \"2\"") == "&lt;script&gt;alert(&#x27;1&#x27;) &amp; &quot;2&quot;"


def test_control_characters_are_shown_and_blanks_kept():
    assert escape("a\x00\x1b\x7f\tb\n") == "a␀␛␡\tb\n"


def test_joined_pieces_are_still_html():
    joined = join([Html("<b>"), escape("<")])
    assert joined == "<b>&lt;"
    assert isinstance(joined, Html)
