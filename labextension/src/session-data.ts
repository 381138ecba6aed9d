/** A stored session as the server tells it, read without trusting it. */

import { type GraphNode, list, readNode, record, text } from './turn';

export interface StoredTurn {
  id: string;
  subject: string;
  status: string;
  failure: string;
  startedAt: string;
}

/** A node under its real id, as the details panel asks for it. */
export interface StoredNode extends Omit<GraphNode, 'id' | 'predecessor' | 'caller'> {
  id: string;
  predecessor: string | null;
  caller: string | null;
  turnId: string;
}

export interface StoredSession {
  id: string;
  title: string;
  summary: string;
  turns: StoredTurn[];
  nodes: StoredNode[];
}

export function readSession(data: unknown): StoredSession {
  const session = record(data);
  return {
    id: text(session.id),
    title: text(session.title),
    summary: text(session.summary),
    turns: list(session.turns).map(readTurn),
    nodes: readNodes(list(record(session.graph).nodes))
  };
}

function readTurn(data: unknown): StoredTurn {
  const turn = record(data);
  return {
    id: text(turn.id),
    subject: text(turn.subject),
    status: text(turn.status),
    failure: text(turn.failure),
    startedAt: text(turn.started_at)
  };
}

function readNodes(data: unknown[]): StoredNode[] {
  const ids = new Map<number, string>();
  const nodes: StoredNode[] = [];
  for (const item of data) {
    const [node] = readNode(item);
    const { node_id, turn_id, seconds, input_tokens, output_tokens } = record(item);
    if (node === undefined || typeof node_id !== 'string') {
      continue;
    }
    ids.set(node.id, node_id);
    const named = (end: number | null): string | null =>
      end === null ? null : (ids.get(end) ?? null);
    nodes.push({
      ...node,
      id: node_id,
      predecessor: named(node.predecessor),
      caller: named(node.caller),
      turnId: text(turn_id),
      ...numbers({ seconds, input_tokens, output_tokens })
    });
  }
  return nodes;
}

function numbers(values: Record<string, unknown>): Record<string, number> {
  const known = Object.entries(values).filter(
    (pair): pair is [string, number] => typeof pair[1] === 'number' && Number.isFinite(pair[1])
  );
  return Object.fromEntries(known);
}
