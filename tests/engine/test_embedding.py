"""The engine inside a program that is not ours: no user interface, no files, no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "op_jupyter"

FOREIGN = ("IPython", "ipykernel", "ipywidgets", "anywidget", "jupyter", "jupyter_client")

PROGRAM = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {foreign!r}:
            raise ImportError("unimportable: " + name)

if {refuse}:
    sys.meta_path.insert(0, Refuse())

from openprogram import Runtime, SessionStore, agentic_function, session_scope

@agentic_function
def polish(draft: str, runtime: Runtime) -> str:
    "Polish a draft."
    return runtime.exec(draft)

def call(content):
    return f"{{len(content)}} blocks"

store = SessionStore(root_path={root!r})
with session_scope(store, "embedded") as handle, Runtime(call=call) as runtime:
    @agentic_function
    def run(topic: str, runtime: Runtime) -> str:
        "Run both."
        first = runtime.exec("draft about " + topic)
        return polish(first, runtime=runtime)
    assert run("owls", runtime=runtime).endswith(" blocks")
    assert [n.role for n in handle.agent.dag] == ["code", "llm", "code", "llm"]
loaded = sorted(name for name in sys.modules if name.split(".")[0] in {foreign!r})
print("loaded:", [n for n in loaded if n.split(".")[0] in {watched!r}])
"""


def run_program(tmp_path: Path, *, refuse: bool) -> str:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    root = tmp_path / "sessions"
    foreign = {*FOREIGN, "anthropic"}
    program = PROGRAM.format(foreign=foreign, refuse=refuse, root=str(root), watched=foreign)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": str(home), "PATH": "", "OPENPROGRAM_HOME": "/nonexistent/never"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(home.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "sessions"]
    return done.stdout


def test_a_whole_round_trip_loads_no_user_interface_and_writes_only_under_the_root(
    tmp_path: Path,
) -> None:
    assert "loaded: []" in run_program(tmp_path, refuse=False)


def test_it_runs_where_no_user_interface_can_be_imported(tmp_path: Path) -> None:
    assert "loaded: []" in run_program(tmp_path, refuse=True)


WATCHED = """
import os, sys

root, leave, strangers = {root!r}, {leave!r}, []

WRITES = {{"os.mkdir": 0, "os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.link": 1,
          "os.symlink": 1, "os.truncate": 0, "os.chmod": 0, "shutil.rmtree": 0}}
NETWORK = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname",
           "socket.sendto", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system")

def is_outside(path):
    if isinstance(path, int) or path == os.devnull:
        return False
    return not os.path.abspath(os.fsdecode(path)).startswith(root)

def watch(event, arguments):
    if event == "subprocess.Popen" and arguments[0] == "git":
        return  # whose version is asked for
    if event in NETWORK:
        strangers.append((event, str(arguments)))
    elif event == "open":
        path, mode, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if isinstance(flags, int) else False
        if writes and is_outside(path):
            strangers.append((event, str(path)))
    elif event in WRITES and is_outside(arguments[WRITES[event]]):
        strangers.append((event, str(arguments)))

sys.dont_write_bytecode = True
from openprogram import Runtime, SessionStore, agentic_function, llm, session_scope

@agentic_function
def inner(draft):
    "Polish a draft."
    return llm(draft)

@agentic_function
def outer(topic):
    "Write about a topic."
    return inner(llm(topic))

def call(content):
    return "word " * len(content)

sys.addaudithook(watch)
from op_jupyter.engine import context
with session_scope(SessionStore(root_path=root), "embedded") as handle, Runtime(call=call) as own:
    tokens = context.bind(handle, None, own)
    outer("owls")
    context.unbind(tokens)
    if leave:
        open(os.path.join(os.path.dirname(root), "left"), "w").close()
        import socket
        socket.socket().connect_ex(("127.0.0.1", 9))
        os.makedirs(os.path.expanduser("~/.openprogram"), exist_ok=True)
    nodes = [(n.name, n.status) for n in handle.agent.dag]
assert [status for _, status in nodes] == ["completed"] * 4, nodes
assert os.path.exists(os.path.join(root, "embedded", ".git"))
print("strangers:", strangers)
"""


def watched(tmp_path: Path, *, leave: bool) -> str:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    program = WATCHED.format(root=str(tmp_path / "sessions"), leave=leave)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": str(home), "PATH": "", "OPENPROGRAM_HOME": "/nonexistent/never"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_embedded_call_writes_nothing_elsewhere_and_touches_no_network(tmp_path: Path) -> None:
    assert watched(tmp_path, leave=False) == "strangers: []\n"


def test_that_proof_can_fail(tmp_path: Path) -> None:
    found = watched(tmp_path, leave=True)
    assert all(f"('{event}'" in found for event in ("open", "socket.connect", "os.mkdir"))


def test_one_module_alone_sets_the_context_variables() -> None:
    setters = re.compile(r"ContextVar[\[(]|_(?:session|turn_id|runtime|frame)\.(?:set|reset)\(")
    found = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if setters.search(path.read_text(encoding="utf-8"))
    ]
    assert found == ["engine/context.py"]
