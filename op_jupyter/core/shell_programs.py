"""What is dangerous about single programs of the shell, by their names and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Final

UNREADABLE: Final = "runs a shell command that cannot be read"
BUILT_COMMAND: Final = "runs a shell command that is built while it runs"
UNKNOWN: Final = "\0"
"""Stands for a word of a command that is only known when it runs."""
DELETES_FILES: Final = "deletes files"
DELETES_FOLDERS: Final = "deletes folders"
DISCARDS: Final = "discards changes"
OTHER_RIGHTS: Final = "runs with another user's rights"
FED: Final = "runs whatever is fed to it"
OTHER_CODE: Final = "runs code of another language, which is not read"
RUNS_ANYTHING: Final = "can run anything, in a way that cannot be checked"
DOWNLOADED: Final = "runs what is downloaded"
ENDS_PROCESSES: Final = "ends processes"
CHANGES_SYSTEM: Final = "changes the system"
DELETES: Final = "deletes something"
CHANGES_DATA: Final = "changes data, or writes what cannot be checked"
OTHER_GIT: Final = "runs a git command that is not known to be harmless"
GIT_RUNS: Final = "has git run another program"
CHANGES_AGENT: Final = "gives the agent commands, which can change what it may do"


DELETING_VERBS: Final = frozenset(
    {
        *("delete", "destroy", "purge", "prune", "uninstall", "rm", "rmi", "rb", "remove", "drop"),
        *("flushall", "flushdb", "apps:destroy", "obliterate", "remove-files"),
    }
)


def has_flag(arguments: Sequence[str], short: str, *long: str) -> bool:
    """Whether one of the letters in *short*, or a long option, is among *arguments*."""
    for word in arguments:
        if word.startswith("--"):
            if word.split("=", 1)[0] in long:
                return True
        elif word.startswith("-") and set(short) & set(word[1:]):
            return True
    return False


def _rm(arguments: Sequence[str]) -> str:
    return DELETES_FOLDERS if has_flag(arguments, "rR", "--recursive") else DELETES_FILES


def _find(arguments: Sequence[str]) -> str:
    return DELETES_FILES if "-delete" in arguments else ""


def git_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command and what follows it, behind git's own options."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") and rest:
            rest.pop(0)
    return (rest[0], rest[1:]) if rest else ("", [])


def _git(arguments: Sequence[str]) -> str:
    words = set(arguments)
    command, rest = git_command(arguments)
    given = set(rest)
    before = arguments[: len(arguments) - len(rest)]
    settings = [text for flag, text in pairwise(before) if flag == "-c"]
    if any(not setting.startswith(_HARMLESS_SETTINGS) for setting in settings) or any(
        word.startswith(("ext::", *_GIT_EXECUTES)) for word in arguments
    ):
        return GIT_RUNS
    if any(word.startswith("--config-env") for word in before):
        return GIT_RUNS
    if command == "clean" and has_flag(rest, "n", "--dry-run"):
        return ""
    if command in ("clean", "rm"):
        return "" if "--cached" in words else DELETES_FILES
    if command == "reset" and not given.isdisjoint({"--hard", "--merge", "--keep"}):
        return DISCARDS
    if command in ("checkout", "switch") and _discards(rest):
        return DISCARDS
    if command == "restore":
        return "" if given >= {"--staged"} and "--worktree" not in given else DISCARDS
    if command == "stash" and not given.isdisjoint({"drop", "clear"}):
        return DISCARDS
    if command in ("branch", "tag") and has_flag(rest, "dDfMC", "--delete", "--force"):
        return DISCARDS
    if command == "push" and _overwrites(rest):
        return "overwrites what others see in git"
    return _other_git(command, rest)


def _discards(rest: Sequence[str]) -> bool:
    forced = has_flag(rest, "fBC", "--force", "--discard-changes", "--ours", "--theirs")
    plain = [word for word in rest if not word.startswith("-")]
    paths = len(plain) > 1 and not has_flag(rest, "bct", "--orphan", "--create", "--track")
    return forced or paths or not {"--", "."}.isdisjoint(rest)


def _overwrites(rest: Sequence[str]) -> bool:
    forced = has_flag(
        rest, "fd", "--force", "--force-with-lease", "--mirror", "--delete", "--prune"
    )
    return forced or any(word.startswith(("+", ":")) for word in rest)


def _other_git(command: str, rest: Sequence[str]) -> str:
    if command == "config":
        plain = [word for word in rest if not word.startswith("-")]
        writes = len(plain) > 1 and plain[0] not in ("get", "list")
        return GIT_RUNS if writes and not plain[0].startswith(_HARMLESS_SETTINGS) else ""
    if command == "rebase":
        return GIT_RUNS if has_flag(rest, "x", "--exec") else ""
    if command == "grep":
        return GIT_RUNS if any(w.startswith("-O") for w in rest) else ""
    if command == "bisect":
        return GIT_RUNS if "run" in rest else ""
    if command == "submodule":
        return GIT_RUNS if "foreach" in rest else DISCARDS if "deinit" in rest else ""
    if command == "worktree":
        return DISCARDS if not {"remove", "prune"}.isdisjoint(rest) else ""
    if command == "reflog":
        return DISCARDS if not {"expire", "delete"}.isdisjoint(rest) else ""
    return "" if command in _HARMLESS_GIT or not command else OTHER_GIT


_HARMLESS_GIT: Final = frozenset(
    {
        *("status", "log", "diff", "show", "add", "commit", "branch", "tag", "fetch", "pull"),
        *("push", "clone", "checkout", "switch", "merge", "remote", "rev-parse", "ls-files"),
        *("ls-tree", "ls-remote", "cat-file", "blame", "annotate", "describe", "shortlog"),
        *("stash", "init", "cherry-pick", "revert", "reset", "mv", "notes", "apply", "am"),
        *("archive", "bundle", "format-patch", "version", "help", "diff-tree", "name-rev"),
        *("merge-base", "for-each-ref", "count-objects", "fsck", "rev-list", "range-diff"),
        *("whatchanged", "var", "check-ignore", "check-attr", "hash-object", "show-ref"),
        *("symbolic-ref", "verify-commit", "verify-tag", "cherry", "show-branch", "diff-index"),
        *("diff-files", "write-tree", "sparse-checkout", "request-pull", "maintenance", "gc"),
    }
)
_HARMLESS_SETTINGS: Final = (
    *(
        "user.name",
        "user.email",
        "color.",
        "advice.",
        "init.default",
        "core.quote",
        "core.autocrlf",
    ),
    *("core.ignorecase", "core.filemode", "log.", "push.default", "pull."),
    *(
        "merge.conflict",
        "diff.renames",
        "status.",
        "column.",
        "commit.gpgsign=false",
        "tag.gpgsign=false",
    ),
)
_GIT_EXECUTES: Final = (
    *("--upload-pack", "--receive-pack", "--exec", "--extcmd", "--open-files-in-pager"),
    *("--tree-filter", "--template", "--config=", "--server-option"),
)


def _dd(arguments: Sequence[str]) -> str:
    return "overwrites a file or disk" if any(w.startswith("of=") for w in arguments) else ""


def _tar(arguments: Sequence[str]) -> str:
    if any(word.startswith(_TAR_EXECUTES) for word in arguments) or "-I" in arguments:
        return RUNS_ANYTHING
    return DELETES_FILES if "--remove-files" in arguments else ""


def _rsync(arguments: Sequence[str]) -> str:
    if any(word.startswith(("-e", "--rsh", "--rsync-path")) for word in arguments):
        return RUNS_ANYTHING
    deletes = any(w.startswith("--delete") or w == "--remove-source-files" for w in arguments)
    return DELETES_FILES if deletes else ""


def _make(arguments: Sequence[str]) -> str:
    built = any(word.startswith(("--eval", "SHELL=", "MAKEFLAGS=")) for word in arguments)
    read = any(pair in (("-f", "-"), ("-f", UNKNOWN)) for pair in pairwise(arguments))
    # A lone dash is no word to bash's grammar as we have it.
    return RUNS_ANYTHING if built or read or arguments[-1:] == ["-f"] else ""


def _awk(arguments: Sequence[str]) -> str:
    return OTHER_CODE if any(_AWK_ACTS.search(word) for word in arguments) else ""


def _sed(arguments: Sequence[str]) -> str:
    return OTHER_CODE if any(_SED_ACTS.search(word) for word in arguments) else ""


def _database(arguments: Sequence[str]) -> str:
    return CHANGES_DATA if any(_DATABASE_ACTS.search(word) for word in arguments) else ""


def _container(arguments: Sequence[str]) -> str:
    if not {"run", "exec", "cp", "create", "up", "debug", "attach"}.isdisjoint(arguments):
        return RUNS_ANYTHING
    return DELETES if not DELETING_VERBS.isdisjoint(arguments) else ""


def _inline(letters: str, *long: str) -> Callable[[Sequence[str]], str]:
    """The rule for an interpreter that takes code after these options."""

    def rule(arguments: Sequence[str]) -> str:
        return OTHER_CODE if has_flag(_own_options(arguments), letters, *long) else ""

    return rule


def _own_options(arguments: Sequence[str]) -> Sequence[str]:
    """The options in front of the script, which has its own."""
    return list(takewhile(lambda word: word.startswith("-"), arguments))


def _always(words: str) -> Callable[[Sequence[str]], str]:
    return lambda _: words


def _if(words: str, *options: str) -> Callable[[Sequence[str]], str]:
    return lambda arguments: words if not set(options).isdisjoint(arguments) else ""


_TAR_EXECUTES: Final = (
    *("--checkpoint-action", "--to-command", "--use-compress-program", "--info-script"),
    *("--new-volume-script", "--rsh-command", "-F", "-I"),
)
_AWK_ACTS: Final = re.compile(r"system\s*\(|(?<!\|)\|(?!\|)|\bgetline\b|print[^;}\n]*>|@load")
_SED_ACTS: Final = re.compile(
    r"(?:^|[;{\n])\s*(?:(?:\d+|\$|/[^/]*/)(?:,(?:\d+|\$|/[^/]*/))?)?\s*!?\s*[eWw](?:\s|$)"
    r"|s(?P<by>[^\w\s]).*?(?P=by).*?(?P=by)[gpiImM0-9]*[ew]"
)
_DATABASE_ACTS: Final = re.compile(
    r"\b(?:drop|delete|truncate|flush\w*|attach|copy|outfile|alter|update|dropDatabase)\b"
    r"|\\!|^\s*\.(?:shell|system|output|once|save|backup|clone|import|load)|\bsystem\b",
    re.IGNORECASE,
)
INLINE_CODE: Final[Mapping[str, Callable[[Sequence[str]], str]]] = {
    "perl": _inline("eEnp"),
    "ruby": _inline("enp"),
    **dict.fromkeys(("node", "nodejs"), _inline("ep", "--eval", "--print")),
    "php": _inline("rBRE", "--run"),
    **dict.fromkeys(("lua", "luajit"), _inline("e")),
    "Rscript": _inline("e"),
    "R": _inline("e"),
    "julia": _inline("eE", "--eval", "--print"),
    "osascript": _inline("e"),
    "expect": _inline("c"),
    "tclsh": _always(""),
}
PROGRAMS: Final[Mapping[str, Callable[[Sequence[str]], str]]] = {
    "rm": _rm,
    "rmdir": _always(DELETES_FOLDERS),
    **dict.fromkeys(
        ("unlink", "shred", "srm", "wipe", "trash", "trash-put", "rimraf", "del"),
        _always(DELETES_FILES),
    ),
    "find": _find,
    "git": _git,
    "dd": _dd,
    "rsync": _rsync,
    **dict.fromkeys(("tar", "bsdtar"), _tar),
    **dict.fromkeys(("make", "gmake"), _make),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **INLINE_CODE,
    **dict.fromkeys(("deno", "bun"), _if(OTHER_CODE, "eval", "-e", "--eval", "x")),
    **dict.fromkeys(("npx", "uvx", "bunx", "pnpx"), _always(DOWNLOADED)),
    "pipx": _if(DOWNLOADED, "run"),
    "npm": _if(DOWNLOADED, "exec"),
    **dict.fromkeys(("kill", "killall", "pkill", "xkill"), _always(ENDS_PROCESSES)),
    **dict.fromkeys(
        (
            *("systemctl", "service", "launchctl", "crontab", "at", "batch", "mount", "umount"),
            *("losetup", "swapoff", "swapon", "fdisk", "parted", "sfdisk", "mke2fs", "iptables"),
            *("nft", "ufw", "sysctl", "useradd", "userdel", "usermod", "groupadd", "passwd"),
            *("chpasswd", "visudo", "modprobe", "insmod", "rmmod", "setcap", "init", "telinit"),
        ),
        _always(CHANGES_SYSTEM),
    ),
    **dict.fromkeys(
        (
            *("vi", "vim", "ex", "ed", "nvim", "emacs", "nano", "gdb", "lldb", "socat", "nc"),
            *("ncat", "netcat", "telnet", "ssh", "sftp", "tmux", "screen", "coproc", "enable"),
            *("complete", "bind", "fc", "m4"),
        ),
        _always(RUNS_ANYTHING),
    ),
    "zip": lambda words: (
        DELETES_FILES if has_flag(words, "m") else RUNS_ANYTHING if "-TT" in words else ""
    ),
    "hash": _if(RUNS_ANYTHING, "-p"),
    "scp": lambda words: RUNS_ANYTHING if has_flag(words, "oSJ") else "",
    **dict.fromkeys(
        ("psql", "mysql", "mariadb", "sqlite3", "mongo", "mongosh", "redis-cli", "duckdb"),
        _database,
    ),
    "dropdb": _always(DELETES),
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl"), _container),
    **dict.fromkeys(("op-jupyter", "openprogram"), _always(CHANGES_AGENT)),
    "wipefs": _always("formats a disk"),
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), _always("stops the machine")),
}
