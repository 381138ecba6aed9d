"""The tools of one turn."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.errors import ToolDefinitionError, ToolNotFound
from op_jupyter.tools.base import CallDescription, Tool, ToolContext, ToolOutput
from op_jupyter.tools.functions import FunctionTool
from op_jupyter.tools.gate import gate_call, places_of
from op_jupyter.tools.json_schema import BadSchema, JsonSchema
from op_jupyter.tools.toolset import Toolset, toolset_of


class ForeignTool:
    """A tool that brings a schema of its own and touches a path."""

    effect: Effect = "write"
    timeout = None
    trusted = False

    def __init__(
        self,
        name: str = "foreign",
        path: Path = Path("/x"),
        count: Mapping[str, Any] = MappingProxyType({"type": "integer"}),
    ) -> None:
        schema = {"type": "object", "properties": {"count": dict(count)}, "required": ["count"]}
        self.spec = ToolSpec(name, "Foreign.", schema)
        self._path = path

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        return CallDescription((workspace / "in",), (self._path,), "x = 1", "python", "diff", "No.")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput((TextBlock("done"),))


def alpha(a: int) -> None:
    """Do a."""


def beta() -> None:
    """Do b."""


def test_tools_keep_their_order_and_are_never_wrapped() -> None:
    tools: list[Tool] = [FunctionTool(beta), ForeignTool(), FunctionTool(alpha)]
    toolset = Toolset(tools)
    assert toolset.names == ("beta", "foreign", "alpha")
    assert list(toolset) == tools
    assert toolset.get("alpha") is tools[2]
    assert toolset.get("gamma") is None
    assert "alpha" in toolset
    assert len(toolset) == 3


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="two tools are called 'alpha'"):
        toolset_of([alpha, alpha])


def test_only_as_many_tools_are_offered_as_a_small_model_can_take() -> None:
    toolset = toolset_of([alpha, beta])
    assert [spec.name for spec in toolset.specs()] == ["alpha", "beta"]
    assert [spec.name for spec in toolset.specs(1)] == ["alpha"]


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    toolset = toolset_of([alpha, beta])
    assert toolset.unknown("alpa") == (
        "there is no tool 'alpa'; did you mean 'alpha'? the tools are: alpha, beta"
    )
    assert toolset.unknown("xyz") == "there is no tool 'xyz'; the tools are: alpha, beta"
    assert Toolset(()).unknown("x") == "there is no tool 'x'; no tools are offered"
    assert toolset.check("xyz", {}) == toolset.unknown("xyz")


def test_some_tools_can_be_chosen_by_name() -> None:
    toolset = toolset_of([alpha, beta])
    assert toolset.named(["beta"]).names == ("beta",)
    with pytest.raises(ToolNotFound, match="no tool 'gamma'"):
        toolset.named(["gamma"])


def test_added_tools_come_last_and_replace_their_namesakes_in_place() -> None:
    newer = FunctionTool(beta, name="alpha")
    toolset = toolset_of([alpha, beta]).plus([newer, ForeignTool()])
    assert toolset.names == ("alpha", "beta", "foreign")
    assert toolset.get("alpha") is newer


def test_arguments_are_checked_by_the_tool_or_by_its_schema() -> None:
    toolset = toolset_of([alpha, ForeignTool()])
    assert toolset.check("alpha", {"a": "x"}).startswith("a: ")
    assert toolset.check("alpha", {"a": 1}) == ""
    assert toolset.check("foreign", {"count": 1}) == ""
    assert toolset.check("foreign", {"count": "x"}) == 'count: "x" is not of type "integer"'
    assert toolset.check("foreign", {}) == 'arguments: "count" is a required property'


@pytest.mark.parametrize(
    "count",
    [
        {"type": "number of sheep"},
        {"pattern": "("},
        {"$ref": "https://example.invalid/schema.json"},
        {"$ref": "#/nowhere"},
    ],
)
def test_a_schema_that_cannot_be_used_is_said_and_fetches_nothing(count: Any) -> None:
    toolset = toolset_of([ForeignTool(count=count)])
    assert "the schema of foreign cannot be used" in toolset.check("foreign", {"count": "x"})


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ("http://json-schema.org/draft-04/schema#", True),  # there, it belongs to a minimum
        ("https://json-schema.org/draft/2020-12/schema", False),
        ("https://example.invalid/a-draft-of-ours", False),
    ],
)
def test_a_schema_is_read_as_the_draft_that_it_names(named: str, wrong: bool) -> None:
    schema = {"$schema": named, "properties": {"count": {"exclusiveMinimum": 3}}}
    if wrong:
        with pytest.raises(BadSchema):
            JsonSchema(schema)
    else:
        assert [p.place for p in JsonSchema(schema).problems({"count": 3})] == [("count",)]


@pytest.mark.parametrize(
    "count",
    [
        {"pattern": "^(a|aa)+(?=c)$"},
        {"patternProperties": {"^(a|aa)+(?=c)$": {}}, "additionalProperties": False},
        {"patternProperties": {"^(a|aa)+(?=c)$": {}}, "unevaluatedProperties": False},
        {"propertyNames": {"pattern": "^(a|aa)+(?=c)$"}},
        {"$ref": "#/properties/count"},
    ],
)
def test_a_schema_made_to_be_slow_is_checked_at_once(count: Any) -> None:
    toolset = toolset_of([ForeignTool(count={"pattern": "^(x+x+)+y$", **count})])
    began = time.monotonic()
    for said in ("a" * 64 + "b", "x" * 64, {"a" * 64 + "b": 1}):
        toolset.check("foreign", {"count": said})
    assert time.monotonic() - began < 5


def test_arguments_that_nest_without_end_are_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    check = toolset_of([ForeignTool(count={"items": {}})]).check
    assert check("foreign", {"count": deep}) == "arguments: they are nested too deep"
    while deep:  # Python itself takes such a list apart on the stack
        deep = deep.pop()


def test_a_toolset_passes_through_and_trust_reaches_functions_only() -> None:
    toolset = toolset_of([alpha, ForeignTool()], trusted=True)
    assert toolset_of(toolset) is toolset
    assert [tool.trusted for tool in toolset] == [True, False]


def test_the_gate_sees_real_paths_and_everything_that_the_tool_tells(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    tool = ForeignTool(path=tmp_path / "link" / ".." / "link" / "new.txt")
    call = gate_call(tool, {"count": 1}, tmp_path)
    assert (call.tool, call.effect, call.code, call.language) == (
        "foreign",
        "write",
        "x = 1",
        "python",
    )
    assert (call.diff, call.undo, call.trusted) == ("diff", "No.", False)
    read, written = call.paths
    assert (read.real, read.write) == ((tmp_path / "in").resolve(), False)
    assert (written.real, written.write) == ((tmp_path / "real" / "new.txt").resolve(), True)
    assert written.named == tmp_path / "link" / "new.txt"


def test_places_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    places = places_of(tmp_path / "link", [tmp_path / "link" / "store"])
    assert places.workspace == (tmp_path / "real").resolve()
    assert places.protected == ((tmp_path / "real" / "store").resolve(),)
