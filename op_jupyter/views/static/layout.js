// Where a node stands in the drawn graph; the twin of layout.py, which states the rules.

const URGENCY = ["completed", "interrupted", "cancelled", "denied", "error", "waiting", "running"];
const CODE = new Set(["function", "tool", "summary"]);

export class Layout {
  // `fold` joins loops; without it every node has a row of its own.
  constructor({ fold = true } = {}) {
    this.fold = fold;
    this.rows = [];
    this.lanes = new Map();
    this.rowOf = new Map();
    this.statusOf = new Map();
    this.loops = new Map();
    this.continued = new Set();
    this.lastCall = new Map();
    this.branches = 0;
  }

  add(node) {
    const caller = this.rowOf.get(node.caller) ?? null;
    const before = this.rowOf.get(node.predecessor) ?? null;
    const loop = this.loopKey(node, caller, before);
    let row = loop === null ? undefined : this.loops.get(loop);
    if (!row) {
      row = this.newRow(node, caller, before);
      if (loop !== null) this.loops.set(loop, row);
    }
    row.members.push(node.id);
    this.tally(row, node.status, 1);
    this.rowOf.set(node.id, row);
    this.statusOf.set(node.id, node.status);
    return row;
  }

  update(id, status) {
    const row = this.rowOf.get(id);
    if (row) {
      this.tally(row, this.statusOf.get(id), -1);
      this.tally(row, status, 1);
      this.statusOf.set(id, status);
    }
    return row ?? null;
  }

  // What a folded row shows is the most urgent status of its members.
  tally(row, status, change) {
    row.statuses[status] = (row.statuses[status] ?? 0) + change;
    row.status = URGENCY.findLast((each) => row.statuses[each] > 0) ?? "running";
  }

  loopKey(node, caller, before) {
    if (!this.fold) return null;
    const kind = node.kind === "summary" ? "function" : node.kind;
    if (caller)
      return CODE.has(caller.kind) ? JSON.stringify([caller.id, "", kind, node.name]) : null;
    return CODE.has(kind) ? JSON.stringify(["", before ? before.id : "", kind, node.name]) : null;
  }

  newRow(node, caller, before) {
    let branch;
    let depth = 0;
    let forked = false;
    let after = before ? before.id : null;
    if (caller) {
      [branch, depth] = [caller.branch, caller.depth + 1];
      after = this.earlierSibling(caller, before);
      this.lastCall.set(caller.id, node.id);
    } else if (CODE.has(node.kind)) {
      // A call from a cell hangs beside the conversation, it does not continue it.
      [branch, depth] = [before ? before.branch : this.root(), 1];
    } else {
      [branch, forked] = this.branchFor(before);
    }
    const key = `${branch}/${depth}`;
    if (!this.lanes.has(key)) this.lanes.set(key, this.lanes.size);
    const row = {
      id: node.id,
      kind: node.kind,
      row: this.rows.length,
      lane: this.lanes.get(key),
      branch,
      depth,
      caller: caller ? caller.id : null,
      after,
      forked,
      members: [],
      statuses: {},
      status: "running",
    };
    this.rows.push(row);
    return row;
  }

  // A model's tool calls run one after the other; calls from code may overlap.
  earlierSibling(caller, before) {
    if (before && before.caller === caller.id) return before.id;
    return caller.kind === "model" ? (this.lastCall.get(caller.id) ?? null) : null;
  }

  root() {
    this.branches = Math.max(this.branches, 1);
    return 0;
  }

  branchFor(before) {
    if (!before) {
      if (!this.lanes.has("0/0")) return [this.root(), false];
    } else if (!this.continued.has(before.id)) {
      this.continued.add(before.id);
      return [before.branch, false];
    }
    this.branches += 1;
    return [this.branches - 1, true];
  }
}

export function layOut(nodes, options) {
  const layout = new Layout(options);
  for (const node of nodes) layout.add(node);
  return layout;
}
