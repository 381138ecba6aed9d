"""Skill folders: what is listed, what is a warning, and what a bad file cannot do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from op_jupyter.core.skills import Skill, catalog, sent_text, too_long
from op_jupyter.tools.skills import FILE_BYTES, SkillFolders


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "skills"


def write(root: Path, folder: str, text: str | bytes) -> Path:
    path = root / folder / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def good(name: str = "plots", description: str = "Make plots.", body: str = "Use blue.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}\n"


def folders(*roots: Path) -> SkillFolders:
    return SkillFolders(roots, roots[0].parent)


def test_a_skill_is_its_front_matter_and_the_text_below(root: Path) -> None:
    write(root, "plots", good(description=">-\n  Make\n  plots.", body="Use blue.\n---\nAlways."))
    [skill] = folders(root).read().skills
    assert skill == Skill(
        "plots", "Make plots.", "~/skills/plots/SKILL.md", "Use blue.\n---\nAlways.\n"
    )
    assert sent_text(skill).endswith("Use blue.\n---\nAlways.")


def test_what_is_no_skill_is_a_warning_and_the_others_are_listed(root: Path) -> None:
    bad = {
        "empty": ("", "does not begin with front matter"),
        "open": ("---\nname: a\n", "does not begin with front matter"),
        "yaml": ("---\nname: [\n---\n", "is not YAML"),
        "list": ("---\n- a\n---\n", "holds no fields"),
        "name": (good(name="../x"), "its name has to be"),
        "number": (good(name="7"), "its name has to be"),
        "nothing": ("---\nname: a\ndescription: ' '\n---\n", "has no description"),
        "bytes": (b"---\nname: \xff\n---\n", "is not UTF-8"),
        "large": (good(body="x" * FILE_BYTES), "is larger than 256 KB"),
        "python": ("---\nname: !!python/object/apply:os.getcwd []\n---\n", "its name has to be"),
    }
    for folder, (text, _) in bad.items():
        write(root, folder, text)
    (root / "without").mkdir()
    write(root, "zzz", good())
    found = folders(root).read()
    assert [skill.name for skill in found.skills] == ["plots"]
    said = {w.split(" ")[1].rsplit("/", 1)[-1]: w for w in found.warnings}
    assert "there is no SKILL.md" in said.pop("without")
    assert sorted(said) == sorted(bad)
    assert [f for f, (_, problem) in bad.items() if problem not in said[f]] == []


def test_a_link_to_credentials_and_a_pipe_are_not_read(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / ".ssh" / "id_rsa"
    secret.parent.mkdir()
    secret.write_text(good())
    for folder in ("link", "pipe"):
        (root / folder).mkdir(parents=True)
    (root / "link" / "SKILL.md").symlink_to(secret)
    os.mkfifo(root / "pipe" / "SKILL.md")
    found = folders(root).read()
    assert found.skills == () and len(found.warnings) == 2
    assert "link to credentials" in found.warnings[0] and "is no file" in found.warnings[1]


def test_a_name_that_would_write_to_a_terminal_is_told_in_plain_characters(root: Path) -> None:
    (root / "a\x1b[2J\nb").mkdir(parents=True)
    [warning] = folders(root).read().warnings
    assert warning.isprintable()


def test_no_folder_is_no_warning_and_the_first_of_two_with_one_name_counts(
    root: Path, tmp_path: Path
) -> None:
    write(root, "a", good(description="First."))
    write(tmp_path / "more", "b", good(description="Second."))
    found = folders(tmp_path / "none", root, tmp_path / "more").read()
    assert [skill.description for skill in found.skills] == ["First."]
    assert "is in" in found.warnings[0] and "as well" in found.warnings[0]


def test_a_change_is_seen(root: Path) -> None:
    skills = folders(root)
    write(root, "a", good(description="Before."))
    assert skills.read().skills[0].description == "Before."
    write(root, "a", good(description="Afterwards."))
    assert skills.read().skills[0].description == "Afterwards."
    (root / "a" / "SKILL.md").unlink()
    assert skills.read().skills == ()


def test_the_catalog_drops_whole_lines_and_says_how_many() -> None:
    skills = [Skill(f"s{n}", "d" * 300, f"/s{n}", "") for n in range(60)]
    text = catalog(skills)
    assert 7_600 < len(text) <= 8_000
    lines = text.split("\n")[1:]
    assert all(line.endswith(")") for line in lines[:-1])
    assert lines[-1] == f"… {60 - len(lines) + 1} more are not listed"
    assert catalog(skills[:2], without={"s0"}).count("\n") == 1
    assert catalog(skills[:1], without={"s0"}) == "" == catalog([])


def test_a_skill_that_is_sent_along_is_under_8000_tokens() -> None:
    assert too_long(Skill("a", "d", "/a", "x" * 31_999)) == ""
    assert "8,000" in too_long(Skill("a", "d", "/a", "x" * 32_000))
    assert too_long(Skill("a", "d", "/a", "漢" * 10_667)) != ""


@pytest.mark.parametrize(
    "field",
    [
        "x: !!bool maybe",
        "x: !!int ''",
        "x: !!float no",
        "x: !!timestamp never",
        "x: 2026-99-99",
        "x: !!python/object/apply:os.getcwd []",
        "? {a: b}\n: c",
        "a: &a {<<: [*a, *a]}",
    ],
)
def test_a_field_that_nobody_reads_cannot_break_anything(root: Path, field: str) -> None:
    write(root, "odd", f"---\nname: odd\ndescription: Odd.\n{field}\n---\n")
    write(root, "zzz", good())
    assert [skill.name for skill in folders(root).read().skills] == ["odd", "plots"]


def test_front_matter_that_would_take_seconds_to_read_is_a_warning(root: Path) -> None:
    write(root, "long", f"---\nname: long\ndescription: Long.\nx: [{'1, ' * 20_000}]\n---\n")
    write(root, "zzz", good())
    found = folders(root).read()
    assert [skill.name for skill in found.skills] == ["plots"]
    assert "front matter is longer than" in found.warnings[0]
