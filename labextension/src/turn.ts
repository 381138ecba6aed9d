/** The saved form of a turn: what the JSON may hold, and how it is read. */

export const MIME_TYPE = 'application/vnd.openprogram.turn+json';
export const VERSION = 1;

export type Kind = 'user' | 'model' | 'function' | 'tool';

export interface GraphNode {
  id: number;
  kind: Kind;
  name: string;
  label: string;
  status: string;
  row: number;
  lane: number;
  predecessor: number | null;
  caller: number | null;
}

export interface Call {
  name: string;
  arguments: string;
  result: string;
  status: string;
}

export interface Step {
  text: string;
  status: string;
}

export interface Turn {
  answer: string;
  status: string;
  summary: string;
  nodes: GraphNode[];
  calls: Call[];
  plan: Step[];
}

/** What could be read: a whole turn, or only its answer and why there is no more. */
export type Reading = { turn: Turn } | { answer: string; problem: string };

const KINDS: readonly string[] = ['user', 'model', 'function', 'tool'];
// The graph counts statuses by the store's words; tool results and people use others.
const STORED_STATUS: Record<string, string> = {
  succeeded: 'completed',
  done: 'completed',
  ok: 'completed',
  failed: 'error'
};
const KIND_OF_ROLE: Record<string, Kind> = { user: 'user', llm: 'model', code: 'function' };

/** Read *data*; files are edited by hand and written by other versions, so nothing is assumed. */
export function readTurn(data: unknown): Reading {
  const bundle = record(data);
  const answer = text(bundle.answer_markdown);
  const version = bundle.version;
  if (typeof version === 'number' && version > VERSION) {
    return {
      answer,
      problem:
        `This turn was saved by a newer version (format ${version}; this one reads ${VERSION}). ` +
        'Only its answer is shown. Update op-jupyter to see calls and graph.'
    };
  }
  if (version !== VERSION) {
    return {
      answer,
      problem: 'This saved turn has no readable format number. Only its answer is shown.'
    };
  }
  return {
    turn: {
      answer,
      status: text(bundle.status),
      summary: text(bundle.summary),
      nodes: list(record(bundle.graph).nodes).flatMap(readNode),
      calls: list(bundle.calls).map(readCall),
      plan: list(bundle.plan).map(readStep)
    }
  };
}

export function readNode(data: unknown): GraphNode[] {
  const node = record(data);
  const [id, row, lane] = [count(node.id), count(node.row), count(node.lane)];
  if (id === null || row === null || lane === null) {
    return [];
  }
  const kind = text(node.kind);
  return [
    {
      id,
      row,
      lane,
      kind: KINDS.includes(kind) ? (kind as Kind) : (KIND_OF_ROLE[text(node.role)] ?? 'function'),
      name: text(node.name),
      label: text(node.label),
      status: STORED_STATUS[text(node.status)] ?? text(node.status),
      predecessor: count(node.predecessor),
      caller: count(node.caller)
    }
  ];
}

function readStep(data: unknown): Step {
  const step = record(data);
  return { text: text(step.text), status: text(step.status) };
}

function readCall(data: unknown): Call {
  const call = record(data);
  return {
    name: text(call.name),
    arguments: text(call.arguments),
    result: text(call.result),
    status: text(call.status)
  };
}

export function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

export function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function count(value: unknown): number | null {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : null;
}
