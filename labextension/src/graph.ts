/**
 * Saved nodes as rows to draw. The kernel laid them out: this file never moves a node, it only
 * closes gaps in the numbering and joins the nodes that share a row (calls of one loop).
 */

import { mostUrgent, type StatusLook } from './status';
import type { GraphNode } from './turn';

export interface Row {
  index: number;
  lane: number;
  nodes: GraphNode[];
  first: GraphNode;
  look: StatusLook;
  predecessor: Row | null;
  caller: Row | null;
}

export interface Graph {
  rows: Row[];
  laneCount: number;
}

export function layOut(nodes: GraphNode[]): Graph {
  const lanes = [...new Set(nodes.map(node => node.lane))].sort((a, b) => a - b);
  const laneIndex = new Map(lanes.map((lane, index) => [lane, index]));
  const byRow = new Map<number, GraphNode[]>();
  for (const node of nodes) {
    const shared = byRow.get(node.row);
    if (shared) {
      shared.push(node);
    } else {
      byRow.set(node.row, [node]);
    }
  }
  const rows: Row[] = [...byRow.entries()]
    .sort(([a], [b]) => a - b)
    .flatMap(([, group]) => (group[0] ? [{ first: group[0], group }] : []))
    .map(({ first, group }, index) => ({
      index,
      first,
      nodes: group,
      lane: laneIndex.get(first.lane) ?? 0,
      look: mostUrgent(group.map(node => node.status)),
      predecessor: null,
      caller: null
    }));
  const rowOf = new Map(rows.flatMap(row => row.nodes.map(node => [node.id, row] as const)));
  for (const row of rows) {
    row.predecessor = earlier(row, rowOf, row.first.predecessor);
    row.caller = earlier(row, rowOf, row.first.caller);
  }
  return { rows, laneCount: lanes.length };
}

/** The row an edge comes from; an edge from a node that was not saved, or from below, is no edge. */
function earlier(row: Row, rowOf: Map<number, Row>, id: number | null): Row | null {
  const other = id === null ? undefined : rowOf.get(id);
  return other && other.index < row.index ? other : null;
}

/** What a screen reader says for *row*. */
export function describe(row: Row): string {
  const { first, nodes, look, caller } = row;
  const times = nodes.length > 1 ? `, ${nodes.length} times` : '';
  const by = caller ? `, called by ${caller.first.name}` : '';
  const label = first.label ? `, ${first.label}` : '';
  return `${first.kind} ${first.name}${times}, ${look.word}${label}${by}`;
}
