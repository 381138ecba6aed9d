"""`openprogram` is `op_jupyter` under another name, and both are light to import."""

import subprocess
import sys
import textwrap

import pytest

HEAVY = (
    "IPython",
    "ipywidgets",
    "anywidget",
    "jupyter",
    "ipykernel",
    "traitlets",
    "anthropic",
    "git",
)


def run_python(code: str) -> str:
    """Return what *code* prints in a fresh interpreter; its own asserts are the test."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["openprogram", "op_jupyter"])
def test_importing_loads_nothing_heavy(name: str) -> None:
    loaded = run_python(f"""
        import sys, {name}
        print(*sorted({{m.partition(".")[0] for m in sys.modules}}))
    """).split()

    assert [module for module in loaded if module.startswith(HEAVY)] == []


def test_a_submodule_is_the_same_object_under_both_names() -> None:
    run_python("""
        import openprogram.core.nodes
        import op_jupyter.core.nodes
        from openprogram.core import nodes
        assert openprogram.core.nodes is op_jupyter.core.nodes is nodes
        assert openprogram.core is op_jupyter.core
    """)


def test_the_order_of_the_two_names_does_not_matter() -> None:
    run_python("""
        import op_jupyter.core.nodes as real
        import openprogram.core.nodes as alias
        assert alias is real
    """)


def test_a_module_imported_through_the_alias_keeps_its_own_name_and_spec() -> None:
    run_python("""
        import openprogram.core.nodes as nodes
        assert nodes.__name__ == nodes.__spec__.name == "op_jupyter.core.nodes"
        assert nodes.Node.__module__ == "op_jupyter.core.nodes"
    """)


def test_public_names_are_the_same_objects() -> None:
    run_python("""
        import op_jupyter, openprogram
        assert list(openprogram.__all__) == list(op_jupyter.__all__)
        op_jupyter.anything = object()
        assert openprogram.anything is op_jupyter.anything
    """)


def test_unknown_names_fail_with_the_usual_errors() -> None:
    run_python("""
        import openprogram
        try:
            import openprogram.no_such_part
        except ModuleNotFoundError as error:
            assert error.name == "openprogram.no_such_part"
        else:
            raise AssertionError("imported a module that does not exist")
        try:
            openprogram.no_such_name
        except AttributeError as error:
            assert "no_such_name" in str(error)
        else:
            raise AssertionError("found a name that does not exist")
    """)


def test_reloading_the_alias_leaves_one_finder() -> None:
    run_python("""
        import importlib, sys
        import openprogram
        importlib.reload(openprogram)
        assert [getattr(f, "alias", None) for f in sys.meta_path].count("openprogram") == 1
    """)


def test_the_extension_hooks_are_there_under_both_names() -> None:
    run_python("""
        import op_jupyter, openprogram
        for name in ("load_ipython_extension", "unload_ipython_extension"):
            assert getattr(openprogram, name) is getattr(op_jupyter, name)
    """)


def test_a_real_package_called_openprogram_wins_and_ours_still_loads(tmp_path) -> None:
    (tmp_path / "openprogram").mkdir()
    (tmp_path / "openprogram" / "__init__.py").write_text("upstream = True\n")

    run_python(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import openprogram, op_jupyter
        assert openprogram.upstream
        assert op_jupyter.load_ipython_extension
    """)
