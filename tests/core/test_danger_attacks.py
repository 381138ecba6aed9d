"""Code that wants to hide what it does: in mode ``auto`` it is asked about all the same."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from op_jupyter.core.code_flow import Meaning
from op_jupyter.core.danger import LONGEST_CODE, TOO_DEEP, TOO_LONG, read_code
from op_jupyter.core.paths import Places
from op_jupyter.core.permissions import GateCall, decide

PLACES = Places(
    PurePosixPath("/home/u/work"), PurePosixPath("/home/u"), (PurePosixPath("/home/u/store"),)
)


def verdict(code: str) -> str:
    call = GateCall("python", "execute", {}, code=code, language="python")
    return decide(call, places=PLACES, mode="auto", rules=[], interactive=True).kind


HIDDEN = {
    "handed on": """
        (lambda f: f('rm -rf x'))(os.system)
        list(map(os.system, ['rm -rf x']))
        functools.partial(os.system, 'rm -rf x')()
        fs = [os.system]; fs[0]('rm -rf x')
        d = {'a': os.system}; d['a']('rm -rf x')
        mods = [os]; mods[0].system('rm -rf x')
        (os or 1).system('rm -rf x')
        (os.system if 1 else print)('rm -rf x')
        e = [exec]; e[0](z)
        list(map(exec, codes))
        a.q = os.system
        a['k'] = os
        setattr(a, 'q', os.system)
        globals()['q'] = os.system
        globals().update(q=os.system)
        ns = types.SimpleNamespace(m=os); ns.m.system('rm -rf x')
        threading.Thread(target=os.system, args=('rm -rf x',)).start()
        atexit.register(os.system, 'rm -rf x')
        x, y = os, 1; x.system('rm -rf x')
        [m.system('rm -rf x') for m in [os]]
        type('X', (), {'__init__': __import__('os').system})
        f = lambda: os
        dict(os.__dict__)['system']('rm -rf x')
        print.__class__(os.system)
    """,
    "reached by reflection": """
        operator.attrgetter('system')(os)('rm -rf x')
        operator.methodcaller('system', 'rm -rf x')(os)
        operator.attrgetter('os.system')(glob)('rm -rf x')
        os.__getattribute__('system')('rm -rf x')
        object.__getattribute__(os, 'system')('rm -rf x')
        os.__dict__.get('system')('rm -rf x')
        vars(os).get('system')('rm -rf x')
        [v for k, v in vars(os).items() if k == 'system'][0]('rm -rf x')
        sys.modules.get('os').system('rm -rf x')
        sys.modules[name].system('rm -rf x')
        m = sys.modules; m['os'].system('rm -rf x')
        globals()['__builtins__'].exec(z)
        __builtins__.__dict__['__import__']('os').system('rm -rf x')
        __builtins__['eval'](z)
        import builtins; builtins.__dict__['ex'+'ec'](z)
        getattr(os, 'metsys'[::-1])('rm -rf x')
        getattr(os, '%s%s' % ('sys', 'tem'))('rm -rf x')
        getattr(os, '{}{}'.format('sys', 'tem'))('rm -rf x')
        getattr(os, ''.join(['sys', 'tem']))('rm -rf x')
        getattr(os, b'system'.decode())('rm -rf x')
        getattr(os, chr(115) + 'ystem')('rm -rf x')
        getattr(getattr(glob, 'os'), 'system')('rm -rf x')
        ().__class__.__base__.__subclasses__()
        print.__self__.exec(z)
        f.__globals__['os'].system('rm -rf x')
        f.__code__ = g.__code__
        sys._getframe().f_globals['os'].system('rm -rf x')
        gc.get_objects()
        os.system.__call__('rm -rf x')
        pkgutil.resolve_name('os:system')('rm -rf x')
        pydoc.locate('os.system')('rm -rf x')
        importlib.util.find_spec('os').loader.load_module().system('rm -rf x')
    """,
    "under another name": """
        import posix; posix.system('rm -rf x')
        import posix; posix.remove('x')
        from posix import *; remove('x')
        import glob; glob.os.system('rm -rf x')
        import random; random._os.system('rm -rf x')
        from glob import os as o; o.system('rm -rf x')
        pd.io.common.os.system('rm -rf x')
        import os.path as p; p.os.system('rm -rf x')
        os = json; import os; os.system('rm -rf x')
        import importlib as i; i.__import__('os').system('rm -rf x')
        __import__('os.path').system('rm -rf x')
        __import__(name='os').system('rm -rf x')
        exec("s = os.system"); s('rm -rf x')
        s = os.system; exec("s('rm -rf x')")
        import os; os.\N{MATHEMATICAL SANS-SERIF ITALIC SMALL S}ystem('rm -rf x')
        import builtins; builtins.print = os.system
        from IPython import get_ipython as g; g().system('rm -rf x')
        InteractiveShell.instance().system('rm -rf x')
    """,
    "commands": """
        subprocess.run(**{'args': 'rm -rf x', 'shell': True})
        subprocess.run(*['rm -rf x'], shell=True)
        subprocess.run(*args)
        subprocess.run(['x', '-rf', '/'], executable='rm')
        subprocess.run(['bash'], input='rm -rf x', text=True)
        subprocess.Popen('bash', stdin=-1).communicate(b'rm -rf x')
        subprocess.run(['python', '-c', 'import shutil; shutil.rmtree("x")'])
        subprocess.run([sys.executable, '-c', 'import shutil; shutil.rmtree("x")'])
        os.execl('/bin/rm', 'ls', '-rf', 'x')
        os.posix_spawn('/bin/sh', ['x', '-c', 'rm -rf x'], {})
        os.system(command='rm -rf x')
        os.system('rm -rf %s' % x)
        os.system(' '.join(['rm', '-rf', 'x']))
        os.system(base64.b64decode('cm0gLXJmIHg=').decode())
        asyncio.subprocess.create_subprocess_exec('rm', '-rf', 'x')
        loop.subprocess_shell(P, 'rm -rf x')
        pexpect.run('rm -rf x')
        webbrowser.get('rm -rf %s').open('x')
        git.Repo('.').git.clean('-fdx')
        repo.git.reset('--hard')
        sh.rm('-rf', 'x')
        distutils.dir_util.remove_tree('x')
        os.kill(os.getppid(), 9)
        signal.raise_signal(9)
    """,
    "code": """
        exec(**{'source': z})
        exec(*[z])
        exec(('import shutil; shutil.%s("x")') % 'rmtree')
        exec(bytes([105]))
        timeit.timeit('import shutil; shutil.rmtree("x")', number=1)
        timeit.Timer(setup='import shutil; shutil.rmtree("x")').timeit(1)
        cProfile.run('import shutil; shutil.rmtree("x")')
        code.InteractiveInterpreter().runsource('import shutil; shutil.rmtree("x")')
        types.FunctionType(compile('x', '', 'exec'), {})()
        pickle.loads(b'cos')
        marshal.loads(z)
        df.query('@pd.io.common.os.system("x")')
        ctypes.CDLL(None).system(b'rm -rf x')
        from ctypes import *; CDLL(None).system(b'rm -rf x')
        this is no Python
    """,
    "the notebook": """
        get_ipython().run_cell('!rm -rf x')
        get_ipython().run_cell('%sx rm -rf x')
        get_ipython().run_line_magic('rm', '-rf x')
        get_ipython().run_line_magic('mv', 'x /etc')
        get_ipython().run_line_magic('alias', 'q rm -rf x')
        get_ipython().run_line_magic('time', '-q shutil.rmtree("x")')
        get_ipython().run_line_magic('save', '/etc/x 1')
        get_ipython().run_line_magic('env', 'PATH=.')
        get_ipython().run_cell_magic('script', 'bash', 'rm -rf x')
        get_ipython().run_cell_magic('python', '', 'import shutil; shutil.rmtree("x")')
        get_ipython().run_cell_magic('perl', '', 'unlink "x"')
        get_ipython().run_cell_magic('file', '/etc/x', 'hi')
        get_ipython().magic('sx rm -rf x')
        get_ipython().safe_execfile('x.py')
        get_ipython().find_line_magic('sx')('rm -rf x')
        get_ipython().kernel.do_shutdown(False)
        current().session.permission_mode = 'auto'
        current_session().add_rule('allow', 'python(*)')
        os.environ['OPENPROGRAM_ALLOW_EVERYTHING'] = '1'
    """,
    "files": """
        open('/etc/x', **{'mode': 'w'}).write('')
        open(*['/etc/x', 'w']).write('')
        open('/etc/x', m)
        io.FileIO('/etc/x', 'w')
        from builtins import open as o; o('/etc/x', 'w')
        os.open('/etc/x', 577)
        from os import open as o, O_WRONLY; o('/etc/x', O_WRONLY)
        open('/etc/%s' % 'x', 'w')
        open('/etc/{}'.format(name), 'w')
        open(f'/etc/{name}', 'w')
        open('/etc/' + name, 'w')
        open(os.path.join('/etc', name), 'w')
        (Path('/etc') / name / 'x').write_text('')
        open('/'.join(['', 'etc', 'x']), 'w')
        open(b'/etc/x'.decode(), 'w')
        open('x/cte/'[::-1], 'w')
        open('/ETC/x'.lower(), 'w')
        open('/etc/xx'.replace('xx', 'x'), 'w')
        open(f'/home/u/.ssh/{name}').read()
        open('/home/u/.ss%s/id_rsa' % 'h').read()
        f = Path('/etc/x').write_text; f('')
        Path.write_text(Path('/etc/x'), 'a')
        Path('a').replace('/etc/x')
        Path('a').with_name('.bashrc').write_text('')
        (Path.cwd().parent / 'x').write_text('x')
        (Path().resolve().parents[0] / '.bashrc').write_text('x')
        Path('/etc').joinpath(*['x']).write_text('x')
        os.chdir('/etc'); open('x', 'w')
        os.chdir('/home/u/.ssh'); open('config')
        shutil.copyfile(src='x', dst='/etc/passwd')
        os.replace(src='a', dst='/etc/x')
        shutil.unpack_archive('x.tar', '/etc')
        pd.ExcelWriter('/etc/x.xlsx')
        df.to_csv(path_or_buf='/etc/x')
        sqlite3.connect('/etc/x.db')
        logging.basicConfig(filename='/etc/x')
        a.tofile('/etc/x')
        zipfile.ZipFile('a.zip').extract('x', '/etc')
        gzip.GzipFile('/etc/x', 'w')
    """,
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_code_that_hides_what_it_does_is_asked_about(kind: str) -> None:
    lines = [line.strip() for line in HIDDEN[kind].strip().splitlines()]
    assert [line for line in lines if verdict(f"import os, sys\n{line}") != "ask"] == []


@pytest.mark.parametrize(
    "code",
    [
        "def f(x, run=exec): run(x)\nf(z)",
        "def f(*, m=os): m.system('rm -rf x')\nf()",
        "def f(run): run('rm -rf x')\nf(os.system)",
        "def f(): return os\nf().system('rm -rf x')",
        "def f():\n  yield os\nnext(f()).system('rm -rf x')",
        "class A:\n  run = os.system\nA.run('rm -rf x')",
        "class A:\n  if 1:\n    from os import system as s\nA.s('rm -rf x')",
        "class A:\n  import os as o\nA.o.system('rm -rf x')",
        "class A:\n  def __init__(self): self.m = os\n  def go(self): self.m.system('rm -rf x')",
        "class A:\n  __class_getitem__ = os.system\nA['rm -rf x']",
        "@os.system\ndef f(): pass",
        "@exec\n@input\nclass X: pass",
        "for m in [os]: m.system('rm -rf x')",
        "with nullcontext(os) as m: m.system('rm -rf x')",
        "match os:\n  case m: m.system('rm -rf x')\nf(os)",
        "os.\\\nsystem('rm -rf x')",
        "async def f(): return os\n(await f()).system('rm -rf x')",
        "os.system(cmd)\ncmd = 'ls'  # it is another one when it runs",
    ],
)
def test_what_is_handed_on_from_place_to_place_is_asked_about(code: str) -> None:
    assert verdict(f"import os\n{code}") == "ask"


ORDINARY = """
    import os; print(os, dir(os), os.path.join('a', 'b')); help(os.system)
    import os; os.makedirs('out', exist_ok=True); os.chdir('out'); open('x', 'w')
    import platform; platform.system()
    import sys; sys.path.insert(0, 'src'); print(sys.modules['os'].name, 'os' in sys.modules)
    import subprocess; subprocess.run(['git', 'status'], check=True, capture_output=True)
    import subprocess, sys; subprocess.run([sys.executable, '-m', 'pytest', '-q'])
    import subprocess, sys; subprocess.run([sys.executable, 'script.py'])
    import timeit; timeit.timeit(lambda: f(x), number=3)
    import pickle; pickle.load(open('model.pkl', 'rb')); pickle.dump(x, open('m.pkl', 'wb'))
    df.eval('a + b'); df.query('a > @limit and b < 3'); pd.eval('a + b')
    df.replace('a'); df['x'].str.replace('a', 'b'); 'a-b'.replace('-', '_')
    path = Path('data') / f'{name}.csv'; df.to_csv(path); path.parent.mkdir(exist_ok=True)
    out = f'results/{run}/model.txt'; open(out, 'w').write('x')
    con = sqlite3.connect(':memory:'); con.execute('select 1')
    get_ipython().run_line_magic('matplotlib', 'inline')
    get_ipython().user_ns['x']; 'x' in globals(); globals()['y'] = 1; locals()
    getattr(row, column); getattr(torch.nn, name)(); setattr(self, key, value)
    with ThreadPoolExecutor() as pool: list(pool.map(fetch, urls))
    f'{total:,.2f} of {{x}}'; '{:>8}'.format(x); '%5.2f' % x; ', '.join(names)
    import logging; logging.basicConfig(level='INFO')
    import importlib; importlib.reload(mod); np = importlib.import_module('numpy')
    eval('1 + 1'); exec('x = 1'); compile('x', 'f', 'exec')
    import inspect; inspect.getsource(os.system); inspect.signature(f)
"""


def test_ordinary_code_runs_without_a_question() -> None:
    lines = [line.strip() for line in ORDINARY.strip().splitlines()]
    assert [line for line in lines if verdict(line) != "allow"] == []


def test_what_names_stand_for_in_the_notebook_already_is_taken_into_account() -> None:
    known = {
        "s": (Meaning(dotted="os.system"),),
        "cmd": (Meaning(text="rm -rf x"),),
        "p": (Meaning(text="/etc/x"),),
    }
    for code in ("s('rm -rf x')", "import os; os.system(cmd)", "def f(): s(cmd)", "exec('s(cmd)')"):
        assert "deletes folders" in [d.words for d in read_code(code, known=known).dangers]
    assert [t.path for t in read_code("open(p, 'w')", known=known).touches if t.write] == ["/etc/x"]
    assert read_code("s = print; s('rm -rf x')", known=known).dangers == ()


HOSTILE = {
    "calls": "f(a,b,c)\n" * 11_000,
    "names that grow": "a = b.c\n" + "a = a.d\n" * 12_000,
    "loops": "".join(" " * i + "for a in b:\n" for i in range(19))
    + "".join(" " * 19 + f"x{i}=y{i}+z{i}\n" for i in range(2_500)),
    "lambdas": "x=" + "lambda:" * 2_000 + "1",
    "f-strings": 'x=f"' + "{a}" * 20_000 + '"',
    "stars": "from os import *\n" * 5_800,
    "inner code": 'exec("a=1")\n' * 8_000,
    "one command again and again": f"c='{'a;' * 20_000}'\n" + "import os; os.system(c)\n" * 2_000,
    "folders": "import os\n" + "os.chdir('a')\n" * 3_000 + "open('x','w')\n" * 3_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_code_that_would_take_long_to_read_is_given_up_and_asked_about(kind: str) -> None:
    assert len(HOSTILE[kind]) <= LONGEST_CODE
    words = [danger.words for danger in read_code(HOSTILE[kind]).dangers]
    assert words in ([TOO_LONG], [TOO_DEEP])
