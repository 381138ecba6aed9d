"""Records and lines: what is decoded is what was encoded, and a changed byte is noticed."""

import json
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_jupyter.core.graph import Dag
from op_jupyter.core.keys import canonical_json
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.errors import FormatTooNew, GraphError
from op_jupyter.store import codec
from op_jupyter.store.codec import BLOB_BYTES, BadRecord


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Point:
    x: int
    y: int


AT = "2026-11-29T12:00:00.000000+00:00"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.integers(BLOB_BYTES - 2, BLOB_BYTES + 2).map("é".__mul__),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
nodes = st.builds(
    Node,
    id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    role=st.sampled_from(["user", "llm", "code"]),
    name=texts,
    input=values,
    output=values,
    reads=st.none() | st.dictionaries(texts, values, max_size=2),
    metadata=st.dictionaries(texts, values, max_size=2),
    seq=st.integers(1, 10**12),
    created_at=st.just(AT),
)


def through_a_line(record: codec.Record) -> codec.Record:
    encoded = codec.encode(record)
    assert encoded.line.endswith(b'"}\n')
    assert encoded.line.count(b"\n") == 1
    decoded = codec.make_whole(codec.decode(encoded.line[:-1]), encoded.blobs.__getitem__)
    decoded.pop("crc")
    assert decoded == encoded.record
    return decoded


@given(nodes)
def test_a_node_comes_back_as_it_was(node: Node) -> None:
    dag = Dag("s")
    codec.fold(dag, through_a_line(codec.entering(node, node.seq, AT, None)))
    assert dag.nodes == {node.id: node}


@given(st.dictionaries(texts, values, max_size=4))
def test_any_mapping_comes_back_as_it_was(mapping: dict[str, object]) -> None:
    for record in (
        codec.describing(mapping, 1),
        codec.deciding(mapping, 1),
        codec.summarising(mapping, 1),
        codec.updating("n", mapping, 1),
        codec.closing("t", mapping, 1),
    ):
        body = next(name for name in ("set", "decision", "checkpoint") if name in record)
        assert through_a_line(record)[body] == mapping


@given(nodes)
def test_a_line_is_canonical_json_with_its_checksum_last(node: Node) -> None:
    line = codec.encode(codec.entering(node, node.seq, AT, None)).line
    record = json.loads(line)
    checksum = record.pop("crc")
    assert line.decode() == canonical_json(record)[:-1] + f',"crc":"{checksum}"' + "}\n"


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ((1, "a"), [1, "a"]),
        (MappingProxyType({"b": 1, "a": 2}), {"a": 2, "b": 1}),
        (OrderedDict(b=[], a={}), {"a": {}, "b": []}),
        (Level.HIGH, 3),
        ({3: "c", 1: "a"}, {"1": "a", "3": "c"}),
        (2**200, 2**200),
        (1e300, 1e300),
        (-0.0, -0.0),
    ],
)
def test_what_json_has_no_type_for_is_kept_as_the_nearest(value: object, read: object) -> None:
    node = Node("n", "code", "f", input={"text": "é\u2028\x7f\x00", "n": 1.5}, output=value)
    record = through_a_line(codec.entering(node, 1, AT, None))
    assert repr(record["node"]["output"]) == repr(read)


def test_a_record_shares_nothing_with_what_it_was_made_of() -> None:
    value = {"b": [1, {"c": 2.5}], "a": None}
    record = codec.encode(codec.describing(value, 1)).record["set"]
    assert repr(record) == repr({"a": None, "b": [1, {"c": 2.5}]})  # sorted, as it will be read
    value["b"].append(3)
    value["b"][1]["c"] = 0
    assert record == {"a": None, "b": [1, {"c": 2.5}]}


def test_every_changed_or_missing_byte_is_noticed() -> None:
    line = codec.encode(codec.opening(Turn("t1", subject="é"), "main", 3)).line[:-1]
    assert codec.decode(line)["seq"] == 3
    for position in range(len(line)):
        for changed in (
            line[:position] + bytes([line[position] ^ 1]) + line[position + 1 :],
            line[:position],
            line[:position] + line[position + 1 :],
        ):
            with pytest.raises(BadRecord):
                codec.decode(changed)


def test_values_over_the_limit_leave_the_line_with_a_preview() -> None:
    small, large = "x" * BLOB_BYTES, "y" * (BLOB_BYTES + 1)
    node = Node("n", "code", "f", input=small, output=[large], metadata={"turn_id": "t"})
    encoded = codec.encode(codec.entering(node, 1, AT, None))
    record = json.loads(encoded.line)
    assert record["node"]["input"] == small
    assert "output" not in record["node"]
    blob = record["blobs"]["output"]
    assert blob["type"] == "application/json"
    assert blob["preview"].startswith('["yyy')
    assert encoded.blobs[blob["hash"]] == json.dumps([large]).encode()
    assert blob["size"] == len(encoded.blobs[blob["hash"]])


def test_a_member_that_is_called_blobs_is_no_blob() -> None:
    mapping = {"blobs": {"a": {"hash": "x"}}, "set": 1, "node": {}, "crc": "0" * 8}
    assert through_a_line(codec.describing(mapping, 1))["set"] == mapping


def test_a_newer_version_is_named_even_when_its_kind_is_unknown() -> None:
    record = codec.describing({}, 1) | {"kind": "dream"}
    line = codec.encode(record).line[:-1]
    with pytest.raises(BadRecord, match="unknown"):
        codec.decode(line)
    newer = _with_version(record, codec.FORMAT + 1)
    with pytest.raises(FormatTooNew, match=f"format {codec.FORMAT + 1}") as caught:
        codec.decode(newer)
    assert caught.value.version == codec.FORMAT + 1


def _with_version(record: codec.Record, version: int) -> bytes:
    import zlib

    body = canonical_json(record | {"v": version})[:-1].encode()
    return b'%b,"crc":"%08x"}' % (body, zlib.crc32(body))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "not JSON compliant"),
        (object(), "object is not JSON"),
        ("\ud800", "unpaired surrogate"),
        ({("a", "b"): 1}, "keys must be"),
        ({1: "a", "1": "b"}, "not supported between"),
        pytest.param(10**5000, "limit", id="huge"),
        (datetime(2026, 11, 29, tzinfo=UTC), "datetime is not JSON"),
        (UUID(int=7), "UUID is not JSON"),
        (Colour.RED, "Colour is not JSON"),
        (Point(1, 2), "Point is not JSON"),
    ],
)
def test_the_error_names_the_member_and_the_reason(value: object, reason: str) -> None:
    node = Node("n1", "code", "f", input="fine", output=value)
    with pytest.raises(GraphError, match=f"^output of 'n1' cannot be stored as JSON .*{reason}"):
        codec.encode(codec.entering(node, 1, AT, None))
