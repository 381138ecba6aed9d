// The panel beside the graph: one node in full.
import { h, replace } from "./dom.js";
import { loopText } from "./graph.js";
import { icon } from "./icons.js";
import { lookOf, lookup, seconds, thousands } from "./words.js";

export class DetailsPanel {
  // `ask(id)` wants a node's permission, input and output, or is null; `act(action, id)` does something.
  constructor(graph, { ask, act }) {
    this.graph = graph;
    this.ask = ask;
    this.act = act;
    this.actions = [];
    this.known = new Map();
    this.notes = new Map();
    // Id of the node whose files are about to be put back, once that is confirmed.
    this.confirming = null;
    this.row = null;
    this.node = null;
    this.element = h("aside", { class: "opv-details", "aria-label": "Node details" });
    this.draw();
  }

  look(row, node) {
    this.row = row;
    this.node = node;
    this.request();
    this.draw();
  }

  // The graph changed; follow if that changed the node that is looked at.
  refresh() {
    if (!this.node) return;
    this.row = this.graph.layout.rowOf.get(this.node.id);
    this.request();
    this.draw();
  }

  request() {
    const asked = this.known.get(this.node.id);
    if (!this.ask || asked?.status === this.node.status) return;
    this.known.set(this.node.id, { ...asked, status: this.node.status });
    this.ask(this.node.id);
  }

  receive({ id, permission, input, output, changes = [] }) {
    const told = {
      permission: asText(permission),
      input: asText(input),
      output: asText(output),
      changes,
    };
    this.known.set(id, { ...this.known.get(id), ...told });
    if (this.node?.id === id) this.draw();
  }

  note({ id, text }) {
    this.notes.set(id, String(text));
    if (this.node?.id === id) this.draw();
  }

  draw() {
    const { row, node } = this;
    if (!node) {
      replace(this.element, h("p", { class: "opv-muted" }, "Choose a row to see it in full."));
      return;
    }
    const key = JSON.stringify([
      node,
      row.members.length,
      row.statuses,
      this.known.get(node.id),
      this.notes.get(node.id),
      this.actions,
      this.confirming,
      this.graph.dead,
    ]);
    if (key === this.key) return;
    this.key = key;
    const { permission, input, output } = this.known.get(node.id) ?? {};
    const note = this.notes.get(node.id);
    replace(
      this.element,
      h(
        "h3",
        {},
        h("span", { class: `opv-r-${row.kind}` }, icon(row.kind)),
        h("code", {}, node.name),
        row.members.length > 1 && h("span", { class: "opv-muted" }, `×${row.members.length}`),
      ),
      row.members.length > 1 && this.pager(),
      this.facts(),
      input === undefined && this.graph.labelOf(node)
        ? box("Text", this.graph.labelOf(node))
        : null,
      permission ? box("Permission", permission) : null,
      input ? box("Input", input) : null,
      output ? box("Output", output) : null,
      note ? h("div", { role: "status" }, box("Note", note)) : null,
      this.buttons(),
    );
  }

  pager() {
    const { call } = this.graph;
    const total = this.row.members.length;
    const step = (text, label, to) =>
      h(
        "button",
        {
          type: "button",
          class: "opv-btn opv-sm opv-step",
          "aria-label": label,
          disabled: to < 0 || to >= total,
          onclick: () => this.graph.select(this.row.row, to),
        },
        text,
      );
    return h(
      "div",
      { class: "opv-pager" },
      step("‹", "Previous call", call - 1),
      h("span", {}, `call ${call + 1} of ${total}`),
      step("›", "Next call", call + 1),
    );
  }

  // What is not known, or not kept, has no line.
  facts() {
    const { row, node } = this;
    const status = this.graph.layout.statusOf.get(node.id);
    const look = lookOf(status);
    const caller = row.caller ? this.graph.nodes.get(row.caller) : null;
    const tokens =
      node.input_tokens !== undefined &&
      `${thousands(node.input_tokens)} in / ${thousands(node.output_tokens ?? 0)} out`;
    const link =
      caller &&
      h(
        "button",
        { type: "button", class: "opv-link", onclick: () => this.graph.selectNode(caller.id) },
        caller.name,
      );
    const fact = (name, value) => value && [h("dt", {}, name), h("dd", {}, value)];
    return h(
      "dl",
      {},
      fact("Role", row.kind),
      fact("Status", h("span", { class: `opv-${look.tone}` }, icon(look.icon), " ", look.word)),
      fact("Caller", link),
      fact("Loop", row.members.length > 1 && loopText(row)),
      fact("Tokens", tokens),
      fact("Time", seconds(node.seconds)),
    );
  }

  // What needs the kernel is off without it.
  buttons() {
    const { id, kind, caller } = this.node;
    const button = (name, text, act, disabled = this.graph.dead) =>
      h(
        "button",
        { type: "button", class: "opv-btn opv-sm", disabled, onclick: act },
        icon(name),
        text,
      );
    // The conversation goes on from what stands in it, or from where a cell made a call; not from
    // what is called inside.
    const isInLine = caller === null && kind !== "tool";
    const changes = this.known.get(id)?.changes ?? [];
    const offered = {
      fork: () => isInLine && button("fork", "Fork here", () => this.act("fork", id)),
      rewind: () => isInLine && button("undo", "Rewind here", () => this.act("rewind", id)),
      show_prompt: () =>
        kind === "model" && button("text", "Show prompt", () => this.act("show_prompt", id)),
      undo: () => changes.length > 0 && button("undo", "Put files back…", () => this.confirm(id)),
    };
    return [
      this.confirming === id && changes.length > 0 && this.confirmation(id, changes),
      h(
        "div",
        { class: "opv-acts" },
        button("copy", "Copy id", () => this.copy(id), false),
        this.actions.map((action) => lookup(offered, action, () => null)()),
      ),
    ];
  }

  confirm(id) {
    this.confirming = this.confirming === id ? null : id;
    this.draw();
    this.element.querySelector(".opv-confirm button:last-child")?.focus();
  }

  confirmation(id, changes) {
    const close = (act) => () => {
      this.confirming = null;
      act?.();
      this.draw();
    };
    const button = (text, act) =>
      h("button", { type: "button", class: "opv-btn opv-sm", onclick: close(act) }, text);
    return h(
      "div",
      { class: "opv-confirm", role: "group", "aria-label": "Put these files back?" },
      h("p", { class: "opv-b" }, "Put these files back to what they were?"),
      h(
        "ul",
        {},
        changes.map((path) => h("li", {}, h("code", {}, path))),
      ),
      button("Put back", () => this.act("undo", id)),
      " ",
      button("Leave them"),
    );
  }

  async copy(id) {
    try {
      await navigator.clipboard.writeText(id);
      this.note({ id, text: `copied: ${id}` });
    } catch {
      // No access to the clipboard here: show the id, so that it can be copied by hand.
      this.note({ id, text: id });
    }
  }
}

function box(label, text) {
  return [
    h("p", { class: "opv-label" }, label),
    h("pre", { class: "opv-box", tabindex: "0", "aria-label": label }, text),
  ];
}

function asText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
