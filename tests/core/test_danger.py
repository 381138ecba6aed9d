"""Reading code and commands for what is dangerous in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_jupyter.core.danger import (
    BUILT_CODE,
    BUILT_NAME,
    CHANGES_AGENT,
    ENDS_KERNEL,
    LONGEST_CODE,
    TOO_DEEP,
    TOO_LONG,
    UNREADABLE_CODE,
    read_code,
)
from op_jupyter.core.shell_programs import (
    BUILT_COMMAND,
    UNREADABLE,
)
from op_jupyter.core.shell_words import (
    read_command,
)


def dangers(code: str) -> list[tuple[int, str]]:
    return [(found.line, found.words) for found in read_code(code).dangers]


def written(code: str) -> list[str]:
    return [touch.path for touch in read_code(code).touches if touch.write]


def seen(code: str) -> list[str]:
    return [touch.path for touch in read_code(code).touches]


DELETES = [
    "import shutil; shutil.rmtree('x')",
    "from shutil import *; rmtree('x')",
    "from os import *; remove('x')",
    "from os import *; system('rm -rf x')",
    "rmtree('x')  # imported in an earlier cell",
    "import os; os.execv('/bin/rm', ['rm', '-rf', 'x'])",
    "import os; os.execvp('rm', ['rm', '-rf', 'x'])",
    "import os; os.spawnlp(os.P_WAIT, 'rm', 'rm', '-rf', 'x')",
    "import os; os.spawnv(os.P_WAIT, '/bin/rm', ['rm', '-rf', 'x'])",
    "import os; os.posix_spawn('/bin/rm', ['rm', '-rf', 'x'], os.environ)",
    "import shutil as s; s.rmtree('x')",
    "from shutil import rmtree; rmtree('x')",
    "from shutil import rmtree as gone; gone('x')",
    "sh.rmtree('x')  # imported in an earlier cell",
    "import os; os.remove('x')",
    "import os; os.unlink('x')",
    "import os; os.rmdir('x')",
    "import os; list(map(os.remove, names))",
    "import os; f = os.remove; f('x')",
    "import os; getattr(os, 'remove')('x')",
    "import os; getattr(os, 'rem' + 'ove')('x')",
    "import os; vars(os)['remove']('x')",
    "import os; os.__dict__['remove']('x')",
    "import sys; sys.modules['os'].remove('x')",
    "__import__('shutil').rmtree('x')",
    "import importlib; importlib.import_module('os').remove('x')",
    "from pathlib import Path; Path('x').unlink()",
    "for p in root.iterdir(): p.unlink(missing_ok=True)",
    "root.rmdir()",
    "exec('import os; os.remove(\"x\")')",
    "code = 'import os; os.remove(\"x\")'\nexec(code)",
    "if (f := os.remove): f('x')",
    "async def g():\n    import os\n    os.remove('x')\nawait g()",
    "import os; os.system('rm -rf x')",
    "import subprocess; subprocess.run(['rm', '-r', 'x'])",
    "import subprocess; subprocess.run(['rm', '-r', unknown])",
    "from subprocess import run; run('find . -delete', shell=True)",
    "import subprocess as sp; sp.check_call(args=('git', 'clean', '-fdx'))",
    "get_ipython().system('rm -rf x')",
    "get_ipython().run_cell_magic('bash', '', 'rm -rf x')",
    "get_ipython().run_line_magic('system', 'rm x')",
    "import os; os.execlp('rm', '-rf', 'x')",
    "import subprocess; subprocess.run(['bash', '-c', 'cd /; rm -rf x'])",
    "import subprocess; subprocess.run(['git', 'reset', '--hard'])",
    "get_ipython().run_cell_magic('time', '', 'import os; os.remove(1)')",
    "(lambda f: f('x'))(__import__('os').remove)",
]


@pytest.mark.parametrize("code", DELETES)
def test_deleting_is_found_however_it_is_written(code: str) -> None:
    words = [words for _, words in dangers(code)]
    assert any(w.startswith(("deletes", "discards")) for w in words), words


HARMLESS = [
    "names = ['a']; names.remove('a')",
    "unlink = 3; rmtree = None",
    "from os import *; remove = 1",
    "seen = {1}; seen.discard(1); seen.pop()",
    "import pandas as pd\ndf = pd.read_csv('a.csv')\ndf.groupby('x').mean()",
    "df.eval('a + b'); df.query('a > 1')",
    "import re; re.compile(pattern)",
    "getattr(row, column)",
    "import os; os.listdir('.'); os.path.exists('x')",
    "import subprocess; subprocess.run(['git', 'status'])",
    "import subprocess; subprocess.run(['git', 'log', path])",
    "import os; os.system('ls -l | sort > sizes.txt')",
    "text = 'rm -rf /'  # only a text",
    "print('shutil.rmtree')",
    "open('in.txt').read()",
    "open(name, 'w').write('x')",
    "from pathlib import Path; Path('out').mkdir()",
    "exec('x = 1')",
    "",
]


@pytest.mark.parametrize("code", HARMLESS)
def test_ordinary_code_is_not_called_dangerous(code: str) -> None:
    assert dangers(code) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def broken(:", UNREADABLE_CODE),
        ("exec(text)", BUILT_CODE),
        ("eval(a + b)", BUILT_CODE),
        ("exec(compile(text, 'x', 'exec'))", BUILT_CODE),
        ("import builtins; builtins.exec(text)", BUILT_CODE),
        ("get_ipython().run_cell(text)", BUILT_CODE),
        ("import os; os.system(text)", BUILT_COMMAND),
        ("import os; os.execv(program, words)", BUILT_COMMAND),
        ("import os; os.system(f'rm {x}')", BUILT_COMMAND),
        ("import subprocess; subprocess.run(argv)", BUILT_COMMAND),
        ("import subprocess; subprocess.run(['sh', '-c', text])", BUILT_COMMAND),
        ("import subprocess; subprocess.run([program, 'x'])", BUILT_COMMAND),
        ("get_ipython().run_line_magic(name, 'x')", BUILT_COMMAND),
        ("import os; getattr(os, name)('x')", BUILT_NAME),
        ("__import__(name)", BUILT_NAME),
        ("exit()", ENDS_KERNEL),
        ("get_ipython().run_line_magic('agent', 'allow shell(*)')", CHANGES_AGENT),
        ("get_ipython().run_line_magic('config', 'AgentMagics.mode = \"auto\"')", CHANGES_AGENT),
        ("import os; os._exit(1)", ENDS_KERNEL),
        ("import os; os.system('unclosed \"quote')", UNREADABLE),
    ],
)
def test_what_cannot_be_known_before_it_runs_is_said(code: str, words: str) -> None:
    assert words in [found for _, found in dangers(code)]


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("open('/a', 'w')", "/a"),
        ("open('/a', mode='ab')", "/a"),
        ("open(file='/a', mode='x')", "/a"),
        ("open('/a', 'r+')", "/a"),
        ("import io; io.open('/a', 'w')", "/a"),
        ("p = '/a'\nopen(p, 'w')", "/a"),
        ("root = '/a/'\nopen(root + 'b', 'w')", "/a/b"),
        ("root = '/a'\nopen(f'{root}/b', 'w')", "/a/b"),
        ("from pathlib import Path; Path('/a', 'b').write_text('')", "/a/b"),
        ("from pathlib import Path; (Path('/a') / 'b').write_bytes(b'')", "/a/b"),
        ("from pathlib import Path; Path('/a').open('w')", "/a"),
        ("from pathlib import Path; root = Path('/a'); (root / 'b').touch()", "/a/b"),
        ("from pathlib import Path; (Path.home() / '.bashrc').write_text('')", "~/.bashrc"),
        ("import os; open(os.path.expanduser('~/x'), 'w')", "~/x"),
        ("import os; open(os.path.join(os.environ['HOME'], 'x'), 'w')", "~/x"),
        ("import shutil; shutil.copy('a', '/b')", "/b"),
        ("import shutil; shutil.move('/a', 'b')", "/a"),
        ("import os; os.makedirs('/a')", "/a"),
        ("df.to_csv('/a.csv')", "/a.csv"),
        ("import os; os.open('/a', os.O_WRONLY | os.O_CREAT)", "/a"),
        ("import zipfile; zipfile.ZipFile('/a.zip', 'w')", "/a.zip"),
        ("import tarfile; tarfile.open(name, 'w'); tarfile.open('/a.tar', mode='w:gz')", "/a.tar"),
        ("from pathlib import Path; Path('/a').joinpath('b').write_text('')", "/a/b"),
        ("import os; open(os.getcwd() + '/../x', 'w')", "./../x"),
        ("df.to_parquet(path='/a.pq')", "/a.pq"),
        ("plt.savefig('/a.png')", "/a.png"),
        ("import numpy as np; np.save('/a', x)", "/a"),
        ("import os; os.system('echo x > /a')", "/a"),
        ("import os; os.system('echo x | tee -a /a')", "/a"),
        ("import os; os.system('cp b /a')", "/a"),
        ("get_ipython().run_cell_magic('writefile', '-a /a', 'text')", "/a"),
    ],
)
def test_written_paths_are_found(code: str, path: str) -> None:
    assert path in written(code)


@pytest.mark.parametrize(
    "code",
    [
        "open('/a')",
        "open('/a', 'rb')",
        "import os; os.open('/a', os.O_RDONLY)",
        "open('/dev/null', 'w')",
        "Path('/a').read_text()",
    ],
)
def test_reading_and_throwing_away_are_no_writes(code: str) -> None:
    assert written(code) == []


@pytest.mark.parametrize(
    "code",
    [
        "open('/home/u/.ssh/id_rsa').read()",
        "from pathlib import Path; (Path.home() / '.ssh' / 'id_rsa').read_text()",
        "import os; os.system('cat ~/.ssh/id_rsa')",
        "import subprocess; subprocess.run(['cat', path, '/home/u/.ssh/id_rsa'])",
    ],
)
def test_paths_that_are_only_read_are_seen_as_well(code: str) -> None:
    assert any(path.endswith(".ssh/id_rsa") for path in seen(code))


def test_lines_are_those_of_the_code_that_is_shown() -> None:
    code = "import shutil\n\nfor run in runs:\n    shutil.rmtree(run)\n(root / 'x').unlink()\n"
    assert dangers(code) == [(4, "deletes folders"), (5, "deletes a file")]


def test_a_danger_inside_a_text_that_is_run_stands_at_the_line_of_the_call() -> None:
    assert dangers("x = 1\nexec('''\n\nimport os\nos.remove(1)''')") == [(2, "deletes a file")]


def test_code_inside_code_is_followed_only_so_far() -> None:
    code = "x"
    for _ in range(8):
        code = f"exec({code!r})"
    assert dangers(code) == [(1, TOO_DEEP)]


def test_nesting_that_defeats_the_parser_is_called_dangerous() -> None:
    assert dangers("-" * 90_000 + "1")[0][1] == TOO_DEEP


@pytest.mark.parametrize(
    "code",
    [
        "cmd = 'ls'; cmd = input(); os.system(cmd)",
        "cmd = input(); os.system(cmd); cmd = 'ls'",
        "cmd = 'ls'; [os.system(cmd) for cmd in cmds]",
        "cmd = 'ls'; cmd += input(); os.system(cmd)",
        "cmd = 'ls'; f = lambda cmd: os.system(cmd)",
        "cmd: str = 'ls'; (cmd := input()); os.system(cmd)",
    ],
)
def test_a_name_that_came_to_mean_something_unknown_is_not_taken_for_what_it_was(
    code: str,
) -> None:
    assert dangers(f"import os; {code}") == [(1, BUILT_COMMAND)]


def test_what_a_name_means_later_does_not_hide_what_it_meant_before() -> None:
    assert dangers("import os\ncmd = 'rm -rf x'\nos.system(cmd)\ncmd = 'ls'") == [
        (3, "deletes folders")
    ]
    assert written("p = '/etc/a'\nopen(p, 'w')\np = 'b'\nopen(p, 'w')") == ["/etc/a", "b"]
    assert dangers("import os\ndef f(): os.system(c)\nc = 'rm -rf x'\nf()") == [
        (2, "deletes folders")
    ]


@pytest.mark.parametrize(
    "code",
    [
        "cmd = 'rm -rf x'\nif False:\n    cmd = 'ls'\nos.system(cmd)",
        "if no:\n    cmd = 'rm -rf x'\nelse:\n    cmd = 'ls'\nos.system(cmd)",
        "cmd = 'rm -rf x'\ntry:\n    pass\nexcept OSError:\n    cmd = 'ls'\nos.system(cmd)",
        "cmd = 'rm -rf x'\nwhile no:\n    cmd = 'ls'\nos.system(cmd)",
        "cmd = 'rm -rf x'\nfor cmd in ():\n    pass\nos.system(cmd)",
        "cmd = 'rm -rf x'\nmatch 1:\n    case 2:\n        cmd = 'ls'\nos.system(cmd)",
        "cmd = 'rm -rf x'\nno and (cmd := 'ls')\nos.system(cmd)",
        "cmd = 'ls'\nfor _ in 'ab':\n    os.system(cmd)\n    cmd = 'rm -rf x'",
        "cmd = 'ls'\ndef f(): os.system(cmd)\ncmd = 'rm -rf x'\nf()",
        "cmd = 'ls'\nf = lambda: os.system(cmd)\ncmd = 'rm -rf x'\nf()",
        "cmd = 'ls'\ndef f():\n    global cmd\n    cmd = 'rm -rf x'\nf()\nos.system(cmd)",
        "cmd = 'rm -rf x'\nclass A:\n    cmd = 'ls'\nos.system(cmd)",
        "run = os.system\nif no:\n    run = print\nrun('rm -rf x')",
        "run = print\ndef f(): run('rm -rf x')\nrun = os.system\nf()",
        "o = os\ndef f(): o = 1\no.system('rm -rf x')",
        "a, b = 'x', 'y'\na = 'rm '\nb = '-rf x'\nif no:\n    a = b = ''\nos.system(a + b)",
    ],
)
def test_what_may_run_is_found_whichever_way_the_code_goes(code: str) -> None:
    assert "deletes folders" in [words for _, words in dangers(f"import os\n{code}")]


@pytest.mark.parametrize(
    "code",
    [
        "match word:\n    case cmd:\n        os.system(cmd)",
        "from elsewhere import cmd\nos.system(cmd)",
        "with it as cmd:\n    os.system(cmd)",
        "cmd, b = it\nos.system(cmd)",
        "if no:\n    cmd = input()\nos.system(cmd)",
        "for _ in 'abc':\n    cmd = cmd + 'x'\nos.system(cmd)",
    ],
)
def test_what_a_name_may_stand_for_is_unknown_where_the_code_does_not_tell(code: str) -> None:
    assert BUILT_COMMAND in [words for _, words in dangers(f"import os\ncmd = 'ls'\n{code}")]


def test_more_ways_than_are_told_apart_hide_nothing() -> None:
    names = "abcdef"
    either = "".join(f"if no:\n    {n} = 'x'\nelse:\n    {n} = 'y'\n" for n in names)
    code = f"import os\n{either}run = print\nif no:\n    run = os.system\nrun({'+'.join(names)})"
    assert dangers(code) == [(code.count("\n") + 1, BUILT_COMMAND)]


def test_a_line_that_surely_runs_leaves_nothing_of_what_was_before() -> None:
    assert dangers("import os\ncmd = 'rm -rf x'\ncmd = 'ls'\nos.system(cmd)") == []
    assert dangers("import os\ndef f(cmd='rm -rf x'):\n    cmd = 'ls'\n    os.system(cmd)") == []


@pytest.mark.parametrize("doubled", ["a + a", "f'{a}{a}'", "a / a", "str(a) + a", "(b := a) + b"])
def test_a_text_that_doubles_line_by_line_takes_no_memory_and_is_unknown(doubled: str) -> None:
    code = "import os\na = 'x'\n" + f"a = {doubled}\n" * 200 + "os.system(a)"
    assert dangers(code) == [(203, BUILT_COMMAND)]


def test_a_name_that_grows_line_by_line_is_given_up() -> None:
    assert dangers("a = b.c\n" + "a = a.d\n" * 500 + "import os; os.remove(1)") == [
        (502, "deletes a file")
    ]


def test_code_that_is_too_long_is_not_read_and_says_so() -> None:
    assert dangers("import os\n" + "x = 1\n" * LONGEST_CODE) == [(1, TOO_LONG)]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("rm -rf build", "deletes folders"),
        ("rm -fr build", "deletes folders"),
        ("rm --recursive build", "deletes folders"),
        ("rm notes.txt", "deletes files"),
        ("/bin/rm -r x", "deletes folders"),
        ("ls && rm -r x", "deletes folders"),
        ("ls; rm -r x", "deletes folders"),
        ("ls\nrm -r x", "deletes folders"),
        ("ls \\\n -l; rm \\\n -r x", "deletes folders"),
        ("(cd a; rm -r x)", "deletes folders"),
        ("echo $(rm -r x)", "deletes folders"),
        ('echo "$(rm -r x)"', "deletes folders"),
        ("echo `rm -r x`", "deletes folders"),
        ("sudo -n rm -r x", "deletes folders"),
        ("env A=1 nice -n 5 rm -r x", "deletes folders"),
        ("A=1 rm -r x", "deletes folders"),
        ("find . -name '*.o' | xargs rm", "deletes files"),
        ("find . -name '*.o' -delete", "deletes files"),
        ("find . -exec rm {} +", "deletes files"),
        ("bash -c 'rm -r x'", "deletes folders"),
        ("bash -lc 'rm -r x'", "deletes folders"),
        ("git clean -fdx", "deletes files"),
        ("git -C repo clean --force", "deletes files"),
        ("git push --force origin main", "overwrites what others see in git"),
        ("dd if=a of=/dev/sda", "overwrites a file or disk"),
        ("mkfs.ext4 /dev/sda", "formats a disk"),
        ("echo 'unclosed", UNREADABLE),
    ],
)
def test_a_dangerous_command_is_found(command: str, words: str) -> None:
    assert words in read_command(command).dangers


@pytest.mark.parametrize(
    "command",
    [
        "",
        "ls -la",
        "git clean -n",
        "git push",
        "find . -name rm.txt",
        "echo rm -rf x",
        "grep -r rm .",
    ],
)
def test_an_ordinary_command_is_not_called_dangerous(command: str) -> None:
    assert read_command(command).dangers == ()


@given(st.text())
def test_any_text_can_be_read_as_code(text: str) -> None:
    read_code(text)
    read_command(text)
    read_code(f"import os\nos.system({text!r})")


def test_a_doubtful_escape_in_the_code_is_no_reason_to_overlook_the_rest() -> None:
    assert dangers("import os\nos.remove('a\\d')") == [(2, "deletes a file")]
