"""The file tools, on a real disk."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.disks import mounted, no_file_over

from op_jupyter.core.messages import TextBlock
from op_jupyter.core.permissions import decide
from op_jupyter.tools.base import Tool, ToolContext
from op_jupyter.tools.disk import ToolFailure, replace_file
from op_jupyter.tools.files import (
    COMPARED_CHARS,
    LISTED,
    MATCHES,
    DeleteFile,
    EditFile,
    ListFiles,
    MoveFile,
    ReadFile,
    SearchFiles,
    WriteFile,
    file_tools,
)
from op_jupyter.tools.gate import gate_call, places_of
from op_jupyter.tools.toolset import Toolset
from op_jupyter.tools.trees import BYTES, ENTRIES


class Desk:
    """A workspace, and a person who allows what the gate asks about."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work"
        self.outside = folder / "outside"
        self.workspace.mkdir()
        self.outside.mkdir()

    def put(self, name: str, content: str | bytes = "") -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def approved(self, tool: Tool, arguments: dict[str, Any]) -> tuple[Path, ...]:
        call = gate_call(tool, arguments, self.workspace)
        return tuple(Path(use.real) for use in call.paths)

    def context(self, approved: tuple[Path, ...] = ()) -> ToolContext:
        return ToolContext(self.workspace, "c1", "t1", lambda _: None, approved=approved)

    async def use(
        self, tool: Tool, between: Callable[[], object] = lambda: None, **arguments: Any
    ) -> tuple[str, str]:
        """Ask the gate, let *between* happen, run; the state and the text of the result."""
        assert Toolset([tool]).check(tool.spec.name, arguments) == ""
        approved = self.approved(tool, arguments)
        between()
        output = await tool.run(arguments, self.context(approved))
        (block,) = output.content
        assert isinstance(block, TextBlock)
        return output.state, block.text


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# --- read


async def test_a_file_is_read_as_it_is(desk: Desk) -> None:
    desk.put("src/a.py", "x = 1\r\ny = 'ä'\n")
    assert await desk.use(ReadFile(), path="src/a.py") == ("succeeded", "x = 1\r\ny = 'ä'\n")
    absolute = str(desk.workspace / "src" / "a.py")
    assert (await desk.use(ReadFile(), path=absolute))[1].startswith("x = 1")


async def test_a_part_of_a_file_says_where_to_go_on(desk: Desk) -> None:
    desk.put("a.txt", "".join(f"{i}\n" for i in range(1, 101)))
    _, text = await desk.use(ReadFile(), path="a.txt", offset=10, limit=2)
    assert text == "10\n11\n… more lines follow; go on with offset=12"
    assert (await desk.use(ReadFile(), path="a.txt", offset=99))[1] == "99\n100\n"
    assert (await desk.use(ReadFile(), path="a.txt", offset=101))[1] == "(there is no line 101)"


async def test_a_long_file_is_bounded_and_can_be_read_on(desk: Desk) -> None:
    desk.put("a.txt", "".join(f"{i:0>99}\n" for i in range(1, 2001)))
    _, text = await desk.use(ReadFile(), path="a.txt", limit=5000)
    assert len(text) < 25_000
    following = int(text.rsplit("offset=", 1)[1])
    _, text = await desk.use(ReadFile(), path="a.txt", offset=following, limit=1)
    assert text.startswith(f"{following:0>99}\n")


async def test_a_line_without_end_is_bounded(desk: Desk) -> None:
    desk.put("a.json", "ä" * 3_000_000 + "\nnext\n")
    _, text = await desk.use(ReadFile(), path="a.json")
    assert len(text) < 30_000
    assert "characters in this line" in text
    assert (await desk.use(ReadFile(), path="a.json", offset=2))[1] == "next\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\x89PNG\r\n\x1a\n", "not text in UTF-8 (byte 0x89)"), (b"a\0b", "(zero bytes)")],
)
async def test_what_is_not_text_is_refused_in_words(desk: Desk, content: bytes, words: str) -> None:
    desk.put("a.bin", content)
    state, text = await desk.use(ReadFile(), path="a.bin")
    assert state == "failed"
    assert words in text
    assert "use Python code" in text


async def test_a_missing_file_is_answered_with_names_like_it(desk: Desk) -> None:
    desk.put("data/penguins.csv")
    state, text = await desk.use(ReadFile(), path="data/penguin.csv")
    assert state == "failed"
    assert text == "data/penguin.csv: No such file or directory; there is penguins.csv"


async def test_folders_and_pipes_are_not_read(desk: Desk) -> None:
    desk.put("src/a.py")
    os.mkfifo(desk.workspace / "pipe")
    assert "src is a folder; list_files" in (await desk.use(ReadFile(), path="src"))[1]
    assert "pipe is not a regular file" in (await desk.use(ReadFile(), path="pipe"))[1]


async def test_an_empty_file_is_said_to_be_empty(desk: Desk) -> None:
    desk.put("a.txt")
    assert (await desk.use(ReadFile(), path="a.txt"))[1] == "(the file is empty)"


# --- write


async def test_a_new_file_is_made_with_its_folders(desk: Desk) -> None:
    result = await desk.use(WriteFile(), path="new/deep/a.txt", text="one\ntwo\n")
    assert result == ("succeeded", "made new/deep/a.txt (2 lines)")
    assert (desk.workspace / "new/deep/a.txt").read_text() == "one\ntwo\n"


async def test_a_replaced_file_keeps_its_mode(desk: Desk) -> None:
    path = desk.put("run.sh", "old")
    path.chmod(0o750)
    result = await desk.use(WriteFile(), path="run.sh", text="new")
    assert result == ("succeeded", "replaced run.sh (1 lines)")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert [p.name for p in desk.workspace.iterdir()] == ["run.sh"]


async def test_a_link_inside_the_workspace_is_written_through(desk: Desk) -> None:
    target = desk.put("real.txt", "old")
    (desk.workspace / "link.txt").symlink_to(target)
    await desk.use(WriteFile(), path="link.txt", text="new")
    assert target.read_text() == "new"
    assert (desk.workspace / "link.txt").is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_a_read_only_file_is_not_replaced(desk: Desk) -> None:
    path = desk.put("a.txt", "old")
    path.chmod(0o400)
    assert "is read-only" in (await desk.use(WriteFile(), path="a.txt", text="new"))[1]
    assert path.read_text() == "old"


async def test_a_text_that_cannot_be_written_changes_nothing(desk: Desk) -> None:
    path = desk.put("a.txt", "old")
    state, text = await desk.use(WriteFile(), path="a.txt", text="new \ud800")
    assert (state, path.read_text()) == ("failed", "old")
    assert "is no character" in text


async def test_a_full_disk_leaves_the_file_and_no_litter(desk: Desk) -> None:
    path = desk.put("a.txt", "old")
    text = "new " * 1000
    with no_file_over(100):
        for tool, arguments in (
            (WriteFile(), {"path": "a.txt", "text": text}),
            (EditFile(), {"path": "a.txt", "old_text": "old", "new_text": text}),
            (WriteFile(), {"path": "b.txt", "text": text}),
        ):
            state, told = await desk.use(tool, **arguments)
            assert state == "failed"
            assert "File too large" in told
    assert path.read_text() == "old"
    assert [p.name for p in desk.workspace.iterdir()] == ["a.txt"]
    assert (await desk.use(WriteFile(), path="a.txt", text=text))[0] == "succeeded"
    assert path.read_text() == text


async def test_a_real_disk_that_is_full_or_read_only_is_said(tmp_path: Path) -> None:
    with mounted(tmp_path / "small") as disk:
        desk = Desk(disk.path)
        path = desk.put("a.txt", "old")
        edit = {"path": "a.txt", "old_text": "old", "new_text": "new"}
        disk.fill()
        assert "No space left" in (await desk.use(EditFile(), **edit))[1]
        assert "No space left" in (await desk.use(WriteFile(), path="a.txt", text="new"))[1]
        disk.empty()
        disk.remount("ro")
        for tool, arguments in (
            (EditFile(), edit),
            (WriteFile(), {"path": "b.txt", "text": "new"}),
            (MoveFile(), {"path": "a.txt", "to": "c.txt"}),
            (DeleteFile(), {"path": "a.txt"}),
        ):
            state, told = await desk.use(tool, **arguments)
            assert state == "failed"
            assert "ead-only" in told
        assert path.read_text() == "old"
        assert [p.name for p in desk.workspace.iterdir()] == ["a.txt"]
        disk.remount("rw")
        assert (await desk.use(EditFile(), **edit))[0] == "succeeded"
        assert path.read_text() == "new"


# --- move and delete


async def test_a_file_is_moved_and_folders_are_made(desk: Desk) -> None:
    desk.put("a.bin", b"\xff\0").chmod(0o640)
    said = await desk.use(MoveFile(), path="a.bin", to="new/b.bin")
    assert said == ("succeeded", "moved a.bin to new/b.bin")
    moved = desk.workspace / "new/b.bin"
    assert (moved.read_bytes(), stat.S_IMODE(moved.stat().st_mode)) == (b"\xff\0", 0o640)
    assert not (desk.workspace / "a.bin").exists()


async def test_nothing_is_replaced_by_a_move(desk: Desk) -> None:
    desk.put("a", "a")
    desk.put("b", "b")
    state, text = await desk.use(MoveFile(), path="a", to="b")
    assert (state, text) == ("failed", "there is a b already; nothing was moved")
    (desk.workspace / "c").symlink_to("nowhere")
    assert (await desk.use(MoveFile(), path="a", to="c"))[0] == "failed"
    assert (desk.workspace / "b").read_text() == "b"


async def test_a_link_itself_is_moved_or_deleted_and_never_what_it_leads_to(desk: Desk) -> None:
    target = desk.outside / "kept"
    target.write_text("kept")
    (desk.workspace / "link").symlink_to(target)
    assert (await desk.use(MoveFile(), path="link", to="other"))[0] == "succeeded"
    assert (desk.workspace / "other").is_symlink()
    assert await desk.use(DeleteFile(), path="other") == ("succeeded", "deleted other")
    assert target.read_text() == "kept"


async def test_a_folder_is_moved_with_all_that_is_in_it(desk: Desk) -> None:
    desk.put("src/deep/a.bin", b"\xff\0").chmod(0o640)
    (desk.workspace / "src/deep/link").symlink_to(desk.outside)
    (desk.workspace / "src/empty").mkdir(mode=0o700)
    said = await desk.use(MoveFile(), path="src", to="new/lib")
    assert said == ("succeeded", "moved src with 4 files and folders in it to new/lib")
    moved = desk.workspace / "new/lib"
    assert (moved / "deep/a.bin").read_bytes() == b"\xff\0"
    assert os.readlink(moved / "deep/link") == str(desk.outside)
    assert stat.S_IMODE((moved / "empty").stat().st_mode) == 0o700
    assert sorted(p.name for p in desk.workspace.iterdir()) == ["new"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "src", "to": "src/deep/down"}, "is in src itself"),
        ({"path": "src", "to": "b"}, "there is a b already"),
        ({"path": ".", "to": "../elsewhere"}, "holds the workspace itself"),
        ({"path": "../work", "to": "../elsewhere"}, "holds the workspace itself"),
        ({"path": "none", "to": "made/none"}, "No such file"),
    ],
)
async def test_a_folder_that_cannot_be_moved_stays_and_no_folder_is_made(
    desk: Desk, arguments: dict[str, Any], words: str
) -> None:
    desk.put("src/a.py")
    (desk.workspace / "b").mkdir()
    state, text = await desk.use(MoveFile(), **arguments)
    assert (state, words in text) == ("failed", True), text
    assert sorted(str(p.relative_to(desk.workspace)) for p in desk.workspace.rglob("*")) == [
        *("b", "src", "src/a.py")
    ]


def test_a_folder_that_holds_too_much_is_not_moved(desk: Desk) -> None:
    for number in range(ENTRIES):
        desk.put(f"many/{number}")
    told = MoveFile().describe({"path": "many", "to": "more"}, desk.workspace)
    assert len(told.entries_written) == 2 * (1 + ENTRIES)
    desk.put("many/one more")
    with pytest.raises(ToolFailure, match="many holds more than 500 files and folders or 64 MB"):
        MoveFile().describe({"path": "many", "to": "more"}, desk.workspace)
    with desk.put("large/file").open("wb") as file:
        file.truncate(BYTES + 1)
    with pytest.raises(ToolFailure, match="large holds more than"):
        MoveFile().describe({"path": "large", "to": "more"}, desk.workspace)
    Path(os.fsdecode(bytes(desk.put("odd/a").parent) + b"/\xff")).touch()
    with pytest.raises(ToolFailure, match="a name that is not UTF-8"):
        MoveFile().describe({"path": "odd", "to": "more"}, desk.workspace)


async def test_a_folder_into_which_something_came_after_the_permission_stays(desk: Desk) -> None:
    desk.put("src/a.py")
    came = lambda: desk.put("src/.env", "TOKEN=1")  # noqa: E731
    state, text = await desk.use(MoveFile(), came, path="src", to="new")
    assert (state, "src/.env is not what the permission speaks of" in text) == ("failed", True)
    assert not (desk.workspace / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "none"}, "No such file"),
        ({"path": "src"}, "a folder with files in it"),
        ({"path": ".."}, "does not end with the name"),
    ],
)
async def test_what_cannot_be_deleted_is_said(
    desk: Desk, arguments: dict[str, Any], words: str
) -> None:
    desk.put("src/a.py")
    state, text = await desk.use(DeleteFile(), **arguments)
    assert (state, words in text) == ("failed", True), text
    assert (desk.workspace / "src/a.py").exists()


async def test_a_folder_swapped_for_a_link_is_not_deleted_or_moved_from(desk: Desk) -> None:
    desk.put("src/a.py", "mine")
    (desk.outside / "a.py").write_text("theirs")

    def swap() -> None:
        (desk.workspace / "src").rename(desk.workspace / "old")
        (desk.workspace / "src").symlink_to(desk.outside)

    state, text = await desk.use(DeleteFile(), swap, path="src/a.py")
    assert (state, "does not speak of" in text) == ("failed", True)
    assert (await desk.use(MoveFile(), path="src/a.py", to="b"))[0] == "succeeded"
    assert not (desk.outside / "a.py").exists(), "the second gate was asked about the real place"


def test_deleting_shows_what_is_lost(desk: Desk) -> None:
    desk.put("a.txt", "gone\n")
    told = DeleteFile().describe({"path": "a.txt"}, desk.workspace)
    assert "-gone" in told.diff
    assert told.entries_written == (desk.workspace / "a.txt",)


# --- symlink attacks


async def test_a_file_swapped_for_a_link_after_the_permission_is_not_written(desk: Desk) -> None:
    path, target = desk.put("a.txt", "old"), desk.outside / "secret"
    target.write_text("precious")

    def swap() -> None:
        path.unlink()
        path.symlink_to(target)

    state, text = await desk.use(WriteFile(), swap, path="a.txt", text="evil")
    assert state == "failed"
    assert "which the permission does not speak of" in text
    assert target.read_text() == "precious"


async def test_a_folder_swapped_for_a_link_after_the_permission_is_not_entered(desk: Desk) -> None:
    desk.put("src/a.txt", "old")
    (desk.outside / "a.txt").write_text("precious")

    def swap() -> None:
        (desk.workspace / "src").rename(desk.workspace / "moved")
        (desk.workspace / "src").symlink_to(desk.outside)

    for tool, arguments in (
        (WriteFile(), {"path": "src/a.txt", "text": "evil"}),
        (EditFile(), {"path": "src/a.txt", "old_text": "precious", "new_text": "evil"}),
        (ReadFile(), {"path": "src/a.txt"}),
    ):
        once = swap if not (desk.workspace / "moved").exists() else lambda: None
        approved = (desk.workspace.resolve() / "src" / "a.txt",)
        once()
        output = await tool.run(arguments, desk.context(approved))
        assert output.state == "failed"
    assert (desk.outside / "a.txt").read_text() == "precious"


def test_a_link_put_in_place_between_check_and_write_is_not_followed(desk: Desk) -> None:
    """The last moment: the path has been resolved already, and then it changes."""
    real = desk.put("src/a.txt", "old").resolve()
    (desk.outside / "a.txt").write_text("precious")
    (desk.workspace / "src").rename(desk.workspace / "moved")
    (desk.workspace / "src").symlink_to(desk.outside)
    with pytest.raises(ToolFailure, match="'src' is a link"):
        replace_file(real, b"evil")
    (desk.workspace / "src").unlink()
    (desk.workspace / "moved").rename(desk.workspace / "src")
    real.unlink()
    real.symlink_to(desk.outside / "a.txt")
    with pytest.raises(ToolFailure, match="has become a link"):
        replace_file(real, b"evil")
    assert (desk.outside / "a.txt").read_text() == "precious"


async def test_a_link_that_flips_all_the_time_never_lets_a_write_out(desk: Desk) -> None:
    inside, outside = desk.workspace / "inside", desk.outside
    inside.mkdir()
    (outside / "a.txt").write_text("precious")
    link, stop = desk.workspace / "link", threading.Event()

    def flip() -> None:
        while not stop.is_set():
            for target in (inside, outside):
                spare = desk.workspace / "spare"
                spare.symlink_to(target)
                spare.rename(link)

    flipper = threading.Thread(target=flip)
    flipper.start()
    try:
        for _ in range(150):
            await WriteFile().run(
                {"path": "link/a.txt", "text": "evil"}, desk.context((inside / "a.txt",))
            )
    finally:
        stop.set()
        flipper.join()
    assert (outside / "a.txt").read_text() == "precious"
    assert [path.name for path in outside.iterdir()] == ["a.txt"]


async def test_without_an_approval_only_ordinary_paths_of_the_workspace_are_touched(
    desk: Desk,
) -> None:
    desk.put("a.txt", "fine")
    for path, state in (("a.txt", "succeeded"), (".env", "failed"), ("../outside/x", "failed")):
        output = await WriteFile().run({"path": path, "text": "x"}, desk.context())
        assert output.state == state, path


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.txt", "allow"),
        ("../outside/a.txt", "ask"),
        ("way-out/a.txt", "ask"),
        ("hooks/pre-commit", "deny"),
        (".env", "ask"),
    ],
)
def test_the_gate_judges_where_a_path_really_leads(desk: Desk, path: str, kind: str) -> None:
    (desk.workspace / "way-out").symlink_to(desk.outside)
    (desk.workspace / ".git" / "hooks").mkdir(parents=True)
    (desk.workspace / "hooks").symlink_to(".git/hooks")
    call = gate_call(WriteFile(), {"path": path, "text": "x"}, desk.workspace)
    verdict = decide(
        call, places=places_of(desk.workspace), mode="accept_edits", rules=(), interactive=True
    )
    assert verdict.kind == kind


# --- edit


async def test_an_edit_replaces_one_place_and_shows_the_diff(desk: Desk) -> None:
    path = desk.put("a.py", "a = 1\nb = 2\n")
    state, text = await desk.use(EditFile(), path="a.py", old_text="b = 2", new_text="b = 3")
    assert state == "succeeded"
    assert text == "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3\n"
    assert path.read_text() == "a = 1\nb = 3\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("x = 1", "y", "occurs 3 times (lines 1, 2, 4); add surrounding text"),
        ("z = 1", "y", "does not occur in the file; read the file again"),
        ("  b = 2\n  c", "y", "line 3 is alike, but white space"),
        ("b = 2", "b = 2", "are the same"),
        ("", "y", "old_text is empty"),
    ],
)
async def test_an_edit_that_does_not_fit_changes_nothing(
    desk: Desk, old: str, new: str, words: str
) -> None:
    content = "x = 1\nx = 1\nb = 2\nx = 1\n"
    path = desk.put("a.py", content)
    state, text = await desk.use(EditFile(), path="a.py", old_text=old, new_text=new)
    assert state == "failed"
    assert words in text
    assert path.read_text() == content


async def test_an_edit_keeps_the_line_ends_of_the_file(desk: Desk) -> None:
    path = desk.put("a.txt", b"a\r\nb\r\nc\r\n")
    await desk.use(EditFile(), path="a.txt", old_text="a\nb", new_text="x\ny\nz")
    assert path.read_bytes() == b"x\r\ny\r\nz\r\nc\r\n"


async def test_an_edit_of_a_missing_file_is_refused(desk: Desk) -> None:
    state, text = await desk.use(EditFile(), path="no.txt", old_text="a", new_text="b")
    assert state == "failed"
    assert "No such file" in text


def test_very_long_texts_are_not_compared_for_a_card(desk: Desk) -> None:
    desk.put("long.txt", "x\n" * (COMPARED_CHARS // 2))
    new = {"path": "long.txt", "text": "y\n"}
    assert gate_call(WriteFile(), new, desk.workspace).diff == ""
    assert gate_call(DeleteFile(), {"path": "long.txt"}, desk.workspace).diff != ""
    desk.put("long.txt", "x\n" * (COMPARED_CHARS // 2 + 1))
    assert gate_call(DeleteFile(), {"path": "long.txt"}, desk.workspace).diff == ""


async def test_links_that_lead_in_a_circle_are_a_plain_failure(desk: Desk) -> None:
    (desk.workspace / "a").symlink_to("b")
    (desk.workspace / "b").symlink_to("a")
    for tool, arguments in [
        (DeleteFile(), {"path": "a/c"}),
        (ReadFile(), {"path": "a"}),
        (WriteFile(), {"path": "a", "text": "t"}),
        (MoveFile(), {"path": "a/c", "to": "d"}),
    ]:
        state, said = await desk.use(tool, **arguments)
        assert state == "failed" and "a" in said and "RuntimeError" not in said


def test_the_card_shows_the_diff_of_what_would_be_written(desk: Desk) -> None:
    desk.put("a.py", "a = 1\n")
    edit = EditFile().describe(
        {"path": "a.py", "old_text": "a = 1", "new_text": "a = 2"}, desk.workspace
    )
    assert edit.diff == "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"
    new = WriteFile().describe({"path": "b.py", "text": "b\n"}, desk.workspace)
    assert new.diff == "--- /dev/null\n+++ b.py\n@@ -0,0 +1 @@\n+b\n"
    assert new.paths_written == (desk.workspace / "b.py",)


def test_the_card_of_an_edit_that_cannot_work_still_names_the_path(desk: Desk) -> None:
    desk.put("a.bin", b"\xff")
    for path in ("a.bin", "missing.txt"):
        told = EditFile().describe({"path": path, "old_text": "x", "new_text": "y"}, desk.workspace)
        assert told.diff == ""
        assert told.paths_written == (desk.workspace / path,)


# --- list and search


async def test_a_folder_is_listed_in_order(desk: Desk) -> None:
    for name in ("b.txt", "a/x.py", "a/deep/y.py", "node_modules/z.py", ".hidden"):
        desk.put(name)
    assert (await desk.use(ListFiles()))[1] == ".hidden\na/\nb.txt\nnode_modules/"
    assert (await desk.use(ListFiles(), pattern="**/*.py"))[1] == "a/deep/y.py\na/x.py"
    assert (await desk.use(ListFiles(), path="a"))[1] == "deep/\nx.py"
    assert (await desk.use(ListFiles(), pattern="*.md"))[1] == "(nothing in . matches *.md)"


async def test_links_are_listed_and_not_followed(desk: Desk) -> None:
    (desk.outside / "far.txt").touch()
    (desk.workspace / "link").symlink_to(desk.outside)
    (desk.workspace / "loop").symlink_to(desk.workspace)
    assert (await desk.use(ListFiles(), pattern="**"))[1] == "link/\nloop/"


async def test_a_long_listing_is_bounded(desk: Desk) -> None:
    for i in range(LISTED + 7):
        (desk.workspace / f"{i:04}").touch()
    lines = (await desk.use(ListFiles()))[1].splitlines()
    assert len(lines) == LISTED + 1
    assert lines[-1] == "… 7 more; narrow the pattern"


async def test_listing_what_is_no_folder_is_refused(desk: Desk) -> None:
    desk.put("a.txt")
    assert await desk.use(ListFiles(), path="a.txt") == ("failed", "a.txt is not a folder")
    assert await desk.use(ListFiles(), path="b") == ("failed", "there is no b")


async def test_a_search_finds_lines_with_their_place(desk: Desk) -> None:
    desk.put("a.py", "import os\nx = OS\n")
    desk.put("sub/b.py", "# os\n")
    desk.put("sub/c.txt", "os\n")
    desk.put(".git/d.py", "os\n")
    assert (await desk.use(SearchFiles(), pattern=r"\bos\b", names="*.py"))[1] == (
        "a.py:1: import os\nsub/b.py:1: # os"
    )
    assert (await desk.use(SearchFiles(), pattern="OS", ignore_case=True, path="a.py"))[1] == (
        "a.py:1: import os\na.py:2: x = OS"
    )
    assert (await desk.use(SearchFiles(), pattern="nothing"))[1] == "(no match)"


async def test_a_search_says_what_it_did_not_look_into(desk: Desk) -> None:
    desk.put("a.txt", "word\n")
    desk.put("b.bin", b"word\0")
    desk.put("c.bin", b"word\xff")
    assert (await desk.use(SearchFiles(), pattern="word"))[1] == (
        "a.txt:1: word\n(2 files are not text or too large)"
    )


async def test_a_search_never_shows_secrets_by_the_way(desk: Desk) -> None:
    (desk.outside / "far.txt").write_text("PASSWORD=x")
    for name in (".env", ".env.local", ".netrc", ".ssh/id_rsa", ".env.example"):
        desk.put(name, "PASSWORD=x\n")
    (desk.workspace / "link.txt").symlink_to(desk.outside / "far.txt")
    assert (await desk.use(SearchFiles(), pattern="PASSWORD"))[1] == ".env.example:1: PASSWORD=x"


async def test_a_search_is_bounded(desk: Desk) -> None:
    desk.put("a.txt", ("x" * 5_000 + "\n") * (MATCHES + 50))
    lines = (await desk.use(SearchFiles(), pattern="x"))[1].splitlines()
    assert len(lines) == MATCHES + 1
    assert max(map(len, lines)) < 400
    assert "narrow the pattern" in lines[-1]


async def test_a_broken_expression_is_explained(desk: Desk) -> None:
    state, text = await desk.use(SearchFiles(), pattern="(")
    assert state == "failed"
    assert "'(' is not a regular expression" in text


async def test_an_expression_that_never_ends_is_ended(desk: Desk) -> None:
    desk.put("a.txt", "a" * 60 + "!\n")
    state, text = await desk.use(SearchFiles(seconds=0.5), pattern="(a+)+$")
    assert state == "failed"
    assert "use a simpler pattern" in text


async def test_a_search_can_be_cancelled(desk: Desk) -> None:
    desk.put("a.txt", "a" * 60 + "!\n")
    task = asyncio.create_task(desk.use(SearchFiles(), pattern="(a+)+$"))
    done, _ = await asyncio.wait({task}, timeout=0.5)
    assert not done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- arguments


@pytest.mark.parametrize("tool", file_tools(), ids=lambda tool: tool.spec.name)
def test_every_tool_tells_what_it_is_for(tool: Tool) -> None:
    properties = tool.spec.input_schema["properties"]
    assert tool.spec.description
    assert "files" not in properties
    assert all(p["description"] for p in properties.values())


def test_only_the_changing_tools_write() -> None:
    effects = {tool.spec.name: tool.effect for tool in file_tools()}
    assert effects == {
        "read_file": "read",
        "list_files": "read",
        "search_files": "read",
        "move_file": "write",
        "delete_file": "write",
        "edit_file": "write",
        "write_file": "write",
    }


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_path_is_refused_before_anything_runs(path: str) -> None:
    assert ReadFile().check({"path": path}).endswith("is not a path")
    assert ReadFile().check({"path": 3}).startswith("path: ")
