"""What a shell command would do, as far as its words tell.  Advisory, never a sandbox."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, dropwhile, islice, pairwise
from typing import Final, TypeAlias

from op_jupyter.core.shell_programs import (
    BUILT_COMMAND,
    CHANGES_AGENT,
    DELETES,
    DELETING_VERBS,
    FED,
    INLINE_CODE,
    OTHER_CODE,
    OTHER_RIGHTS,
    PROGRAMS,
    RUNS_ANYTHING,
    UNKNOWN,
    UNREADABLE,
    git_command,
    has_flag,
)
from op_jupyter.core.values import dataclass


@dataclass(frozen=True, slots=True)
class CommandReading:
    """What one command line does.

    Attributes:
        dangers: what is dangerous about it, in a few words each.
        reads, writes: paths that stand in it, as they are written.
    """

    dangers: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


ReadCommand: TypeAlias = Callable[[str], CommandReading]


def read_command(command: str) -> CommandReading:
    """The reading of a whole command line, all its parts together.

    It splits the line at its operators only; `tools.shell_grammar` knows the whole grammar.
    """
    try:
        parts = [_read_redirected(argv) for argv in _simple_commands(command)]
    except ValueError:
        return CommandReading((UNREADABLE,))
    return together(parts)


def _read_redirected(argv: Sequence[str]) -> CommandReading:
    words, writes = _take_redirections(argv)
    inner = [read_command(text) for word in words for text in _substitutions(word)]
    return together([CommandReading(writes=writes), read_argv(words), *inner])


def read_argv(words: Sequence[str], read: ReadCommand = read_command) -> CommandReading:
    """The reading of one program with its arguments; *read* reads commands inside of them."""
    unwrapped, other_rights = _unwrapped(words)
    given = words[: len(words) - len(unwrapped)]
    variables = [word.split("=", 1) for word in given if _ASSIGNMENT.match(word)]
    notes = together(
        [
            CommandReading((OTHER_RIGHTS,) if other_rights else ()),
            *(assigned(name, value, read) for name, value in variables),
            *(_nested(_program(words), words[1:], read) if _program(words) in _ALSO_TEXT else ()),
        ]
    )
    if not unwrapped:
        return notes
    program, arguments = _program(unwrapped), unwrapped[1:]
    if python_code(unwrapped) == UNKNOWN or UNKNOWN in (python_code(unwrapped) or ""):
        notes = together([notes, CommandReading((BUILT_COMMAND,))])
    own = CommandReading(_own_danger(program, arguments), *_paths(program, arguments))
    return together([notes, own, *_nested(program, arguments, read)])


def _own_danger(program: str, arguments: Sequence[str]) -> tuple[str, ...]:
    if not _WILD.isdisjoint(program):
        return (BUILT_COMMAND,)
    if program.startswith("mkfs"):
        return ("formats a disk",)
    rule = PROGRAMS.get(program)
    danger = rule(arguments) if rule else ""
    if not danger and not rule and program not in READERS - _PACKAGERS:
        danger = DELETES if any(word.casefold() in DELETING_VERBS for word in arguments) else ""
    return (danger,) if danger else ()


def _paths(program: str, arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths among *arguments*: all, and those that are written.

    A program that is not known may write to each that it is given.
    """
    named = tuple(chain.from_iterable(map(_paths_in, arguments)))
    if program in ("tar", "bsdtar"):
        return named, tuple(_written_by_tar(arguments))
    if program == "git":
        return named, tuple(_written_by_git(arguments))
    if program in _COPIERS:
        plain = [word for word in arguments if not word.startswith("-")]
        return named, (*plain[-1:], *_named_folders(arguments))
    in_place = program in _IN_PLACE and has_flag(arguments, "i", "--in-place")
    if program == "dd":
        return named, tuple(w.removeprefix("of=") for w in arguments if w.startswith("of="))
    if program in READERS and not in_place:
        return named, tuple(_outputs(arguments, _OUTPUTS.get(program, ())))
    return named, named


def _paths_in(word: str) -> Iterator[str]:
    """What may be a path in a word: of ``--to=/a``, ``-o/a`` and ``f=@/a`` the end."""
    if not word.startswith("-"):
        yield word
        if "@" in word and not word.startswith(("http:", "https:")):
            yield word.rpartition("@")[2]
    if "=" in word:
        yield word.partition("=")[2].removeprefix("@")
    if word.startswith("-") and word[2:3] in ("/", "~", ".", "$"):
        yield word[2:]
    if word.startswith("file://"):
        yield word.removeprefix("file://")


def _outputs(arguments: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """The values of *options*, however they are written."""
    for option in options:
        yield from (text for flag, text in pairwise(arguments) if flag == option)
        glue = "=" if option.startswith("--") else ""
        yield from (w[len(option + glue) :] for w in arguments if w.startswith(option + glue))


def _written_by_tar(arguments: Sequence[str]) -> Iterator[str]:
    letters = arguments[0].lstrip("-") if arguments and not arguments[0].startswith("--") else ""
    flags = "".join(word[1:] for word in arguments if word[:1] == "-" and word[:2] != "--")
    if "x" in letters + flags or not {"--extract", "--get"}.isdisjoint(arguments):
        yield from _outputs(arguments, ("-C", "--directory"))
        yield from (w for f, w in pairwise(arguments) if f[:2] != "--" and f.endswith("C"))
    else:
        yield from _outputs(arguments, ("--file",))
        bundles = (arguments[:1], [word for word in arguments if word[:1] == "-"])
        with_file = {w for words in bundles for w in words if w[:2] != "--" and "f" in w}
        yield from (text for flag, text in pairwise(arguments) if flag in with_file)


def _written_by_git(arguments: Sequence[str]) -> Iterator[str]:
    """``git clone``, ``init`` and ``-C`` go elsewhere, and some have an output."""
    command, rest = git_command(arguments)
    if command not in _READING_GIT:
        yield from _outputs(arguments, ("-C", "--git-dir", "--work-tree"))
    yield from _outputs(rest, ("-o", "--output", "--output-directory"))
    if command in ("clone", "init", "worktree", "bundle"):
        yield from (word for word in rest[-1:] if ":" not in word and not word.startswith("-"))


_READING_GIT: Final = frozenset({"status", "log", "diff", "show", "blame", "grep", "ls-files"})


def _named_folders(arguments: Sequence[str]) -> list[str]:
    """Where ``cp -t FOLDER`` and ``--target-directory=FOLDER`` put things."""
    after = [word for flag, word in pairwise(arguments) if flag in ("-t", "--target-directory")]
    glued = [w.split("=", 1)[1] for w in arguments if w.startswith("--target-directory=")]
    return [*after, *glued, *(w[2:] for w in arguments if w[:2] == "-t" and len(w) > 2)]


def _nested(program: str, arguments: Sequence[str], read: ReadCommand) -> list[CommandReading]:
    """The readings of the commands that are arguments of this one."""
    if program in SHELLS:
        return [_shell_script(arguments, read)]
    if program in ("su", "script", "flock", "runuser"):
        script = option_text(arguments, "c")
        return [] if script is None else [_read_text(script, read)]
    if program == "trap":
        rest = [word for word in arguments if not word.startswith("-")]
        return [_read_text(word, read) for word in rest[:1]]
    if program in ("eval", "watch"):
        rest = _after_options(arguments, _WATCH) if program == "watch" else list(arguments)
        return [_read_text(" ".join(rest), read)]
    if program == "alias":
        return [_read_text(word.split("=", 1)[1], read) for word in arguments if "=" in word]
    if program == "find":
        found = list(islice(_executed_by_find(arguments), _MOST_INNER + 1))
        many = [CommandReading((BUILT_COMMAND,))] if len(found) > _MOST_INNER else []
        return [*many, *(_read_inner(inner, read) for inner in found[:_MOST_INNER])]
    if program in ("fd", "fdfind"):
        at = [i for i, word in enumerate(arguments) if word in _FD_EXECUTES]
        return [_read_inner(arguments[i + 1 :], read) for i in at[:_MOST_INNER]]
    if program == "parallel":
        return _executed_by_parallel(arguments, read)
    return []


def _read_inner(words: Sequence[str], read: ReadCommand) -> CommandReading:
    """A command that another one runs, whose Python code is not looked into."""
    if _program(_unwrapped(words)[0]) in ("find", "fd", "fdfind"):
        return CommandReading((BUILT_COMMAND,))  # as deep as they like
    own = CommandReading((OTHER_CODE,) if python_code(words) is not None else ())
    return together([own, read_argv(words, read)])


def _shell_script(arguments: Sequence[str], read: ReadCommand) -> CommandReading:
    """What a shell runs: a text after ``-c``, wherever the letter stands, or a file."""
    rest, has_text = list(arguments), False
    while rest and rest[0][:1] in ("-", "+"):
        option = rest.pop(0)
        if option == "--":
            break
        has_text = has_text or (option[:2] != "--" and "c" in option)
        if option in _SHELL_VALUED and rest:
            rest.pop(0)
    if not has_text:
        return CommandReading((FED,) if rest and UNKNOWN in rest[0] else ())
    return _read_text(rest[0], read) if rest else CommandReading((BUILT_COMMAND,))


def _executed_by_parallel(arguments: Sequence[str], read: ReadCommand) -> list[CommandReading]:
    marks = [i for i, word in enumerate(arguments) if word.startswith((":::", "::::"))]
    before = arguments[: marks[0]] if marks else arguments
    command = _after_options(before, _WRAPPERS["parallel"])
    texts = [" ".join(command)] if command else arguments[marks[0] + 1 :] if marks else []
    many = [CommandReading((BUILT_COMMAND,))] if len(texts) > _MOST_INNER else []
    return [*many, *(_read_text(text, read) for text in texts[:_MOST_INNER])]


def _read_text(command: str, read: ReadCommand) -> CommandReading:
    return CommandReading((BUILT_COMMAND,)) if UNKNOWN in command else read(command)


def _executed_by_find(arguments: Sequence[str]) -> Iterator[list[str]]:
    words = list(arguments)
    for start, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            rest = words[start + 1 :]
            end = next((i for i, w in enumerate(rest) if w in (";", "+")), len(rest))
            yield rest[:end]


_MOST_INNER: Final = 20
"""Of so many commands inside one, or wrappers around it, no more are looked at."""


def together(parts: Sequence[CommandReading]) -> CommandReading:
    """Several readings as one."""
    return CommandReading(
        tuple(dict.fromkeys(d for part in parts for d in part.dangers)),
        tuple(r for part in parts for r in part.reads),
        tuple(w for part in parts for w in part.writes),
    )


SHELLS: Final = frozenset(
    {
        *("sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "rbash", "csh", "tcsh", "mksh"),
        *("pwsh", "powershell", "yash", "xonsh"),
    }
)
_PRIVILEGED: Final = frozenset({"sudo", "doas", "su", "pkexec", "runuser"})


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A program whose arguments are a command.

    Attributes:
        valued: its options that take the next word.
        positional: how many words stand between its options and the command.
    """

    valued: frozenset[str] = frozenset()
    positional: int = 0


def _wrapper(valued: str = "", positional: int = 0) -> _Wrapper:
    return _Wrapper(frozenset(valued.split()), positional)


_WRAPPERS: Final[Mapping[str, _Wrapper]] = {
    "sudo": _wrapper("-u -g -h -p -C -T -r -t -U -D -R --user --group --host --prompt --chdir"),
    "doas": _wrapper("-u -C"),
    "pkexec": _wrapper("--user"),
    "runuser": _wrapper("-u -g -G"),
    "env": _wrapper("-u -C --unset --chdir"),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c -n -p"),
    "timeout": _wrapper("-s -k --signal --kill-after", 1),
    "time": _wrapper("-f -o"),
    "xargs": _wrapper(
        "-I -i -n -P -L -l -d -a -E -e -s --replace --max-args --max-procs --max-lines "
        "--delimiter --arg-file"
    ),
    "parallel": _wrapper("-j -a -I"),
    "stdbuf": _wrapper("-i -o -e"),
    "strace": _wrapper("-e -o -p"),
    "flock": _wrapper("-w -E", 1),
    "chroot": _wrapper("", 1),
    "taskset": _wrapper("", 1),
    "chrt": _wrapper("", 1),
    "nsenter": _wrapper("-t -a --target"),
    "systemd-run": _wrapper("-p -u --unit --property -E --setenv"),
    **dict.fromkeys(
        ("nohup", "setsid", "command", "builtin", "exec", "busybox", "unshare", "caffeinate"),
        _wrapper("-a"),
    ),
    **dict.fromkeys(
        ("toybox", "fakeroot", "ltrace", "valgrind", "catchsegv", "numactl", "coproc", "ld.so"),
        _wrapper("-e -o"),
    ),
}
_ALSO_TEXT: Final = frozenset({"flock", "runuser", "parallel"})
"""Wrappers that take the command as a text after ``-c`` as well."""
_WATCH: Final = _wrapper("-n --interval")
_RUN: Final = _wrapper("-n --name -p --prefix --with --python --group --extra --package")
_RUNNERS: Final = frozenset(
    {"uv", "poetry", "conda", "mamba", "micromamba", "pipenv", "pdm", "hatch", "rye", "pixi"}
)
_FD_EXECUTES: Final = frozenset({"-x", "-X", "--exec", "--exec-batch"})
_SHELL_VALUED: Final = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_WILD: Final = frozenset({UNKNOWN, *"*?["})
_IN_PLACE: Final = frozenset({"sed", "perl", "awk", "gawk"})
_COPIERS: Final = frozenset({"cp", "ln", "install", "rsync", "scp"})
READERS: Final = frozenset(
    {
        *("cat", "ls", "grep", "egrep", "fgrep", "rg", "ag", "ack", "head", "tail", "wc", "diff"),
        *(
            "cmp",
            "comm",
            "find",
            "fd",
            "fdfind",
            "file",
            "stat",
            "du",
            "df",
            "tree",
            "less",
            "more",
        ),
        *(
            "sort",
            "cut",
            "tr",
            "awk",
            "gawk",
            "mawk",
            "sed",
            "perl",
            "jq",
            "yq",
            "nl",
            "tac",
            "rev",
        ),
        *("fold", "column", "join", "paste", "expand", "fmt", "shuf", "seq", "echo", "printf"),
        *("md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum", "hexdump", "od", "strings"),
        *("cd", "pushd", "popd", "pwd", "test", "[", "true", "false", "sleep", "date", "basename"),
        *("dirname", "readlink", "realpath", "which", "type", "whereis", "man", "ps", "top", "env"),
        *("source", ".", "export", "set", "unset", "read", "local", "declare", "typeset", "return"),
        *("exit", "shift", "wait", "jobs", "id", "whoami", "uname", "hostname", "nproc", "free"),
        *("lsof", "ping", "dig", "zcat", "bzcat", "xzcat", "zgrep", "zless", "bat", "exa", "eza"),
        *("lscpu", "nvidia-smi", "time", "printenv", "alias", "trap", "eval", "watch", "su"),
        *("make", "pip", "pip3", "uv", "poetry", "conda", "mamba", "npm", "yarn", "pnpm", "cargo"),
        *("go", "pytest", "ruff", "mypy", "black", "tox", "nox", "pre-commit", "jupyter", "cmake"),
        *(*SHELLS, "python", "python3", "pypy", "pypy3", "ipython", "node", "ruby", "php", "lua"),
        *(
            "Rscript",
            "R",
            "julia",
            "java",
            "deno",
            "bun",
            "tclsh",
            "osascript",
            "xargs",
            "parallel",
        ),
    }
)
"""Programs that write to none of the paths that they are given, but for those in `_OUTPUTS`."""
_PACKAGERS: Final = frozenset(
    {"pip", "pip3", "uv", "poetry", "conda", "mamba", "npm", "yarn", "pnpm", "cargo", "pre-commit"}
)
_OUTPUTS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("sort", "shuf"), ("-o", "--output")),
    "tree": ("-o",),
    "find": ("-fprint", "-fprint0", "-fprintf", "-fls"),
    "yq": ("-o",),
    "pip": ("-t", "--target", "-d", "--dest", "--prefix", "--root"),
    "jupyter": ("--output", "--output-dir"),
}
_OPERATORS: Final = frozenset("();<>|&\n")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


def _simple_commands(command: str) -> Iterator[list[str]]:
    """The commands between ``;``, ``|``, ``&&``, brackets, back quotes and line ends."""
    lexer = shlex.shlex(
        command.replace("\\\n", " ").replace("\n", " ; ").replace("`", " ; "),
        posix=True,
        punctuation_chars=True,
    )
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for token in lexer:
        if token and set(token) <= _OPERATORS and not set(token) & set("<>"):
            yield words
            words = []
        else:
            words.append(token)
    yield words


def _take_redirections(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    words: list[str] = []
    writes: list[str] = []
    remaining = iter(argv)
    for word in remaining:
        if not word or not set(word) <= set("<>&|"):
            words.append(word)
        elif ">" in word and (target := next(remaining, "")):
            writes.append(target)
    return words, tuple(writes)


def _unwrapped(words: Sequence[str]) -> tuple[list[str], bool]:
    """*words* from the program on that really runs, and whether it runs as somebody else.

    ``sudo -u root env A=1 rm x`` runs ``rm x`` as somebody else.
    """
    rest = list(words)
    other_rights = False
    for _ in range(_MOST_INNER):
        program = _program(rest)
        other_rights = other_rights or program in _PRIVILEGED
        if not rest:
            break
        if _ASSIGNMENT.match(rest[0]):
            rest = list(dropwhile(_ASSIGNMENT.match, rest))
        elif program in _RUNNERS and rest[1:2] == ["run"]:
            rest = _after_options(rest[2:], _RUN)
        elif (wrapper := _WRAPPERS.get(program)) is not None:
            rest = _after_options(rest[1:], wrapper)
        else:
            break
    else:
        return [UNKNOWN], other_rights
    return rest, other_rights


def _after_options(words: Sequence[str], wrapper: _Wrapper) -> list[str]:
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option == "--":
            break
        if option in ("-S", "--split-string") and rest:  # env: the command in one word
            return [*rest[0].split(), *rest[1:]]
        if option.startswith(("-S", "--split-string=")):
            return [*option.removeprefix("--split-string=").removeprefix("-S").split(), *rest]
        if option in wrapper.valued and rest:
            rest.pop(0)
    while rest and _ASSIGNMENT.match(rest[0]):
        rest.pop(0)
    return rest[wrapper.positional :]


def _substitutions(word: str) -> list[str]:
    return [word[word.index("$(") + 2 :].rstrip(")")] if "$(" in word else []


def option_text(arguments: Sequence[str], letter: str) -> str | None:
    """The word after ``-c`` (or a bundle that ends in it), for the letter ``c``."""
    for flag, text in pairwise(arguments):
        if flag.startswith("-") and not flag.startswith("--") and flag.endswith(letter):
            return text
    return None


def python_code(words: Sequence[str]) -> str | None:
    """The code in ``python -c CODE``, as far as it is known; nothing if there is none."""
    unwrapped, _ = _unwrapped(words)
    if not unwrapped or not _PYTHON.fullmatch(_program(unwrapped)):
        return None
    rest = unwrapped[1:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        before, found, code = option.partition("c")
        if found and not option.startswith("--") and not set(before) & set("mWX"):
            return code or (rest[0] if rest else UNKNOWN)
        if option in ("-W", "-X") and rest:
            rest.pop(0)
        if option.startswith("-m"):
            break
    return None


def is_fed(words: Sequence[str]) -> bool:
    """Whether the program runs what it reads from its input."""
    unwrapped, _ = _unwrapped(words)
    program = _program(unwrapped)
    if program in ("source", "."):
        return any(UNKNOWN in word or word.startswith("/dev/") for word in unwrapped[1:2])
    if program not in SHELLS and not _PYTHON.fullmatch(program) and program not in INLINE_CODE:
        return False
    return all(word.startswith("-") and word[-1:] not in "cm" for word in unwrapped[1:])


def assigned(name: str, value: str, read: ReadCommand) -> CommandReading:
    """What a variable of the environment, given to a command, has run."""
    if name.startswith("OPENPROGRAM_"):
        return CommandReading((CHANGES_AGENT,))
    if name in _LOADERS:
        return CommandReading((RUNS_ANYTHING,))
    return _read_text(value, read) if name in _COMMAND_VARIABLES else CommandReading()


def _program(words: Sequence[str]) -> str:
    return words[0].rsplit("/", 1)[-1].removesuffix(".exe") if words else ""


_PYTHON: Final = re.compile(r"(?:i?python|pypy)[\d.]*w?")
_COMMAND_VARIABLES: Final = frozenset(
    {
        *("PAGER", "EDITOR", "VISUAL", "MANPAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "SHELL"),
        *("GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND"),
        *("GIT_EXTERNAL_DIFF", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_PROXY_COMMAND", "SUDO_ASKPASS"),
        *("RSYNC_RSH", "TAR_OPTIONS", "PROMPT_COMMAND", "PS1", "PS4", "FCEDIT"),
    }
)
"""Their values are commands."""
_LOADERS: Final = frozenset(
    {
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "PYTHONSTARTUP"),
        *("PERL5OPT", "PERL5LIB", "RUBYOPT", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "BASH_FUNC"),
        *("GIT_CONFIG", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_PARAMETERS"),
        *("GIT_CONFIG_COUNT", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "PYTHONWARNINGS"),
    }
)
"""What they name is run by programs that read them."""
