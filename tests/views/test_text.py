"""Text that would hide or reorder itself is written out."""

from hypothesis import given, settings
from hypothesis import strategies as st
from views.twins import Twins

from op_jupyter.views.text import count, one_line, storable, visible


def test_bidi_control_and_zero_width_characters_are_written_out() -> None:
    assert visible("a\u202eb\u200bc\x1b[0m\x00") == "a[U+202E]b[U+200B]c[U+001B][0m[U+0000]"


def test_ordinary_text_tabs_and_newlines_stay() -> None:
    text = "Straße\t→ 日本語 👩‍🔬\nnext"
    assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"


def test_lone_surrogates_become_replacement_characters_everywhere() -> None:
    assert visible("x\ud800y") == "x\ufffdy"
    assert storable({"k\udc00": ["\ud800", 1, None]}) == {"k\ufffd": ["\ufffd", 1, None]}


def test_a_long_line_is_cut_with_an_ellipsis() -> None:
    assert one_line("one  two\nthree", 100) == "one two three"
    assert one_line("x" * 20, 10) == "x" * 9 + "…"


def test_nouns_follow_their_number() -> None:
    assert [count(n, "step") for n in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(), max_size=20))
def test_the_browser_writes_out_the_same_characters(twins: Twins, texts: list[str]) -> None:
    assert twins("visible", texts) == [visible(text) for text in texts]
