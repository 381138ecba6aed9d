// One turn as the view shows it: a fold of the session's updates; the twin of model.py.

const PROGRESS_LINES = 200;

export function newState() {
  return {
    version: 1,
    sequence: 0,
    session_id: "",
    turn_id: null,
    subject: "",
    status: "starting",
    phase: "starting",
    step: 0,
    started_at_ms: null,
    draft: "",
    cleared: "",
    notes: [],
    reasoning: "",
    answer: "",
    calls: [],
    plan: [],
    permission: null,
    resolved: null,
    nodes: [],
    outcome: null,
  };
}

const NEW_CALL = {
  name: "",
  arguments: "",
  node_id: null,
  phase: "",
  state: "running",
  progress: "",
  text: "",
  edited: false,
  answer: null,
  how: null,
  started_at_ms: null,
  seconds: null,
};

export class TurnFold {
  constructor(state = newState()) {
    this.load(state);
  }

  load(state) {
    this.state = state;
    this.nodes = new Map(state.nodes.map((node) => [node.id, node]));
    this.calls = new Map(state.calls.map((call) => [call.id, call]));
    this.touchAll();
  }

  touchAll() {
    // Ids of nodes and calls that changed since somebody last looked.
    this.touched = new Set(this.nodes.keys());
    this.touchedCalls = new Set(this.calls.keys());
  }

  takeTouched() {
    const nodes = [...this.touched].map((id) => this.nodes.get(id));
    const calls = [...this.touchedCalls].map((id) => this.calls.get(id));
    this.touched.clear();
    this.touchedCalls.clear();
    return { nodes, calls };
  }

  // Returns whether anything changed: what is known already is no news.
  apply(item) {
    const state = this.state;
    if (item.sequence <= state.sequence) return false;
    state.sequence = item.sequence;
    state.session_id = item.session_id;
    state.turn_id = state.turn_id || item.turn_id;
    if (!Object.hasOwn(HANDLERS, item.kind)) return false;
    HANDLERS[item.kind](this, item.data, item.occurred_at_ms);
    return true;
  }

  // The cleared draft was a message of its own: more follows it.
  keepNote() {
    if (this.state.cleared) {
      this.state.notes.push(this.state.cleared);
      this.state.cleared = "";
    }
  }

  call(id) {
    this.touchedCalls.add(id);
    let call = this.calls.get(id);
    if (!call) {
      call = { id, ...NEW_CALL };
      this.calls.set(id, call);
      this.state.calls.push(call);
    }
    return call;
  }
}

const HANDLERS = {
  turn_started(fold, data, atMs) {
    Object.assign(fold.state, {
      status: "running",
      phase: "starting",
      subject: data.subject ?? "",
      started_at_ms: atMs,
    });
  },
  phase_changed(fold, data) {
    fold.state.phase = data.phase;
    fold.state.step = data.step ?? fold.state.step;
    if (data.phase === "running_tools") fold.keepNote();
  },
  text_delta(fold, data) {
    fold.keepNote();
    fold.state.draft += data.text;
  },
  reasoning_delta(fold, data) {
    fold.state.reasoning += data.text;
  },
  draft_cleared(fold) {
    Object.assign(fold.state, { cleared: fold.state.draft, draft: "", reasoning: "" });
  },
  tool_call_started(fold, data, atMs) {
    fold.keepNote();
    const call = fold.call(data.id);
    for (const key of ["name", "arguments", "phase"]) if (key in data) call[key] = data[key];
    call.node_id = data.node_id || call.node_id;
    call.started_at_ms ??= atMs;
  },
  tool_call_progress(fold, data) {
    const call = fold.call(data.id);
    const ended = data.text.endsWith("\n") ? data.text : data.text + "\n";
    const lines = (call.progress + ended).split("\n");
    call.progress = lines.slice(-PROGRESS_LINES).join("\n");
  },
  tool_call_finished(fold, data, atMs) {
    const call = fold.call(data.id);
    Object.assign(call, {
      state: data.state,
      text: data.text ?? "",
      edited: Boolean(data.edited),
      progress: "",
      name: data.name || call.name,
      node_id: data.node_id || call.node_id,
    });
    if (call.started_at_ms !== null) call.seconds = Math.max(0, atMs - call.started_at_ms) / 1000;
    if (fold.state.resolved?.id === data.id) fold.state.resolved = null;
  },
  permission_requested(fold, data) {
    fold.state.permission = data;
    fold.state.resolved = null;
  },
  permission_resolved(fold, data) {
    const request = fold.state.permission;
    const how = data.how ?? null;
    if (request?.id === data.id) {
      fold.state.permission = null;
      fold.state.resolved = { id: data.id, answer: data.answer, how, request };
    }
    if (fold.calls.has(data.id)) Object.assign(fold.call(data.id), { answer: data.answer, how });
  },
  plan_updated(fold, data) {
    fold.state.plan = data.steps;
  },
  turn_finished(fold, data) {
    Object.assign(fold.state, {
      status: data.status,
      phase: data.status,
      answer: data.text ?? "",
      draft: "",
      cleared: "",
      reasoning: "",
      permission: null,
      resolved: null,
      outcome: {
        code: data.code ?? null,
        message: data.message ?? "",
        usage: data.usage ?? null,
        steps: data.steps ?? fold.state.step,
        seconds: data.seconds ?? null,
      },
    });
  },
  node_appended(fold, data) {
    fold.touched.add(data.id);
    const known = fold.nodes.get(data.id);
    if (known) {
      Object.assign(known, data);
      return;
    }
    fold.nodes.set(data.id, data);
    fold.state.nodes.push(data);
  },
  node_updated(fold, data) {
    const known = fold.nodes.get(data.id);
    if (!known) return;
    Object.assign(known, data);
    fold.touched.add(data.id);
  },
};

export function isOver(state) {
  return state.outcome !== null;
}

export function outcomeWord(state) {
  if (!isOver(state)) return "running";
  return state.outcome.code === "permission_denied" ? "denied" : state.status;
}

export function waitingNode(state) {
  const request = state.permission;
  const call = request && state.calls.find((each) => each.id === request.id);
  return call?.node_id ?? null;
}
