// The graph as a list of rows beside lanes: one tab stop, arrows move, only rows in view exist.
import { h, replace, s, setText, show } from "./dom.js";
import { icon } from "./icons.js";
import { Layout } from "./layout.js";
import { visible } from "./text.js";
import { lookOf, seconds, thousands } from "./words.js";

const ROW = 28;
const LANE = 26;
const PAD = 18;
const TOP = 8;
const RADIUS = 8;
const LANES = 6;
const GUTTER = LANES * LANE + 12;
const OVERSCAN = 8;
let graphs = 0;

const xOf = (row) => PAD + row.lane * LANE;
const yOf = (row) => TOP + row.row * ROW + ROW / 2;

export class GraphView {
  // `onSelect(row, node)` hears which node is looked at.
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.prefix = `opv-graph-${++graphs}`;
    this.nodes = new Map();
    // Better words for some nodes than their own label.
    this.labels = new Map();
    this.waiting = null;
    this.selected = null;
    this.call = 0;
    this.firstLane = 0;
    this.drawn = new Map();
    this.build();
    this.clear();
  }

  build() {
    this.title = h("span");
    this.foldButton = this.toggle("Fold loops", () => this.refold());
    this.followButton = this.toggle("Follow newest", () => this.follow());
    this.lanes = s("g");
    this.edges = s("g");
    this.glyphs = s("g");
    this.moving = s("g", {}, this.lanes, this.edges, this.glyphs);
    this.gutter = s("svg", { class: "opv-gutter", "aria-hidden": "true", width: GUTTER }, this.moving);
    this.body = h("div", { class: "opv-rows" }, this.gutter);
    this.scroller = h(
      "div",
      {
        class: "opv-graph",
        role: "listbox",
        tabindex: "0",
        "aria-label": "Graph of this turn, oldest first",
        onscroll: () => this.draw(),
        onkeydown: (event) => this.key(event),
        onpointerdown: (event) => this.point(event),
      },
      this.body,
    );
    this.laneBar = h("div", { class: "opv-lanes", hidden: true });
    this.element = h(
      "div",
      { class: "opv-graph-main" },
      h(
        "div",
        { class: "opv-bar" },
        h("p", { class: "opv-label" }, icon("graph"), this.title),
        h("span", { class: "opv-hint" }, h("kbd", {}, "↑"), " ", h("kbd", {}, "↓"), " move"),
        this.foldButton,
        this.followButton,
      ),
      this.scroller,
      this.laneBar,
      legend(),
    );
  }

  toggle(text, act) {
    const press = (event) => {
      const pressed = event.currentTarget.getAttribute("aria-pressed") !== "true";
      event.currentTarget.setAttribute("aria-pressed", String(pressed));
      act();
    };
    return h("button", { type: "button", class: "opv-btn opv-sm", "aria-pressed": "true", onclick: press }, text);
  }

  get folds() {
    return this.foldButton.getAttribute("aria-pressed") === "true";
  }

  get follows() {
    return this.followButton.getAttribute("aria-pressed") === "true";
  }

  clear() {
    this.layout = new Layout({ fold: this.folds });
    this.drawn.clear();
    this.edgesKey = null;
    this.body.replaceChildren(this.gutter);
    this.glyphs.replaceChildren();
  }

  // Take nodes that are new or changed: new ones are placed, known ones change in their place.
  update(nodes, waiting) {
    const before = this.layout.rows.length;
    const turned = waiting === this.waiting ? [] : [this.waiting, waiting];
    this.waiting = waiting;
    for (const node of nodes) {
      this.nodes.set(node.id, node);
      this.place(node);
    }
    for (const id of turned) if (this.nodes.has(id)) this.place(this.nodes.get(id));
    setText(this.title, `Graph, ${this.nodes.size} ${this.nodes.size === 1 ? "node" : "nodes"}`);
    this.draw();
    if (this.layout.rows.length > before && this.follows) this.follow();
  }

  place(node) {
    const status = node.id === this.waiting && node.status === "running" ? "waiting" : node.status;
    if (!this.layout.rowOf.has(node.id)) this.layout.add({ ...node, status });
    else if (this.layout.statusOf.get(node.id) !== status) this.layout.update(node.id, status);
  }

  refold() {
    const nodes = [...this.nodes.values()];
    const selected = this.selected;
    this.clear();
    for (const node of nodes) this.place(node);
    this.draw();
    if (selected !== null) this.select(this.layout.rowOf.get(selected).row);
  }

  follow() {
    if (!this.follows) return;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    const newest = this.layout.rows.at(-1);
    if (newest) this.revealLane(newest.lane);
    this.draw();
  }

  // -- choosing

  point(event) {
    const top = this.body.getBoundingClientRect().top;
    const index = Math.floor((event.clientY - top - TOP) / ROW);
    if (event.button === 0 && index < this.layout.rows.length) this.select(Math.max(0, index));
  }

  key(event) {
    const last = this.layout.rows.length - 1;
    const now = this.selected === null ? -1 : this.layout.rowOf.get(this.selected).row;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 1);
    const targets = {
      ArrowDown: now + 1,
      ArrowUp: now - 1,
      PageDown: now + page,
      PageUp: now - page,
      Home: 0,
      End: last,
    };
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      this.moveLanes(event.key === "ArrowLeft" ? -1 : 1);
    } else if (Object.hasOwn(targets, event.key) && last >= 0) {
      this.select(Math.min(Math.max(targets[event.key], 0), last));
    } else if (event.key === "Escape") {
      leave(this.element);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  select(index, call = 0) {
    const row = this.layout.rows[index];
    if (!row) return;
    this.call = Math.min(Math.max(call, 0), row.members.length - 1);
    this.selected = row.members[this.call];
    this.scroller.setAttribute("aria-activedescendant", this.optionId(row));
    this.reveal(row);
    this.draw();
    this.onSelect(row, this.nodes.get(this.selected));
  }

  selectNode(id) {
    const row = this.layout.rowOf.get(id);
    if (row) this.select(row.row, row.members.indexOf(id));
  }

  reveal(row) {
    const { scrollTop, clientHeight } = this.scroller;
    const top = row.row * ROW;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + ROW + 2 * TOP > scrollTop + clientHeight) {
      this.scroller.scrollTop = top + ROW + 2 * TOP - clientHeight;
    }
    this.revealLane(row.lane);
  }

  // -- lanes beyond the gutter's width

  revealLane(lane) {
    if (lane < this.firstLane) this.firstLane = lane;
    if (lane >= this.firstLane + LANES) this.firstLane = lane - LANES + 1;
  }

  moveLanes(by) {
    const last = Math.max(0, this.layout.lanes.size - LANES);
    this.firstLane = Math.min(Math.max(this.firstLane + by, 0), last);
    this.draw();
  }

  drawLaneBar() {
    const total = this.layout.lanes.size;
    show(this.laneBar, total > LANES);
    if (total <= LANES) return;
    const step = (text, label, by, off) =>
      h(
        "button",
        {
          type: "button",
          class: "opv-btn opv-sm opv-ico",
          "aria-label": label,
          disabled: off,
          onclick: () => this.moveLanes(by),
        },
        text,
      );
    const to = this.firstLane + LANES;
    replace(
      this.laneBar,
      step("‹", "Lanes to the left", -1, this.firstLane === 0),
      `lanes ${this.firstLane + 1}–${to} of ${total}`,
      step("›", "Lanes to the right", 1, to >= total),
    );
  }

  // -- drawing

  draw() {
    const rows = this.layout.rows;
    const height = 2 * TOP + rows.length * ROW;
    this.body.style.height = `${height}px`;
    this.gutter.setAttribute("height", height);
    const from = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - OVERSCAN);
    const room = this.scroller.clientHeight || 20 * ROW;
    const to = Math.min(rows.length - 1, Math.ceil((this.scroller.scrollTop + room) / ROW) + OVERSCAN);
    this.drawRows(from, to);
    this.drawEdges(from, to);
    this.moving.setAttribute("transform", `translate(${-this.firstLane * LANE} 0)`);
    this.drawLaneBar();
  }

  // Rows that did not change keep their elements, so that nothing flickers or restarts.
  drawRows(from, to) {
    for (const [index, drawn] of this.drawn) {
      if (index >= from && index <= to) continue;
      drawn.option.remove();
      drawn.glyph.remove();
      this.drawn.delete(index);
    }
    for (let index = from; index <= to; index += 1) this.drawRow(this.layout.rows[index]);
  }

  drawRow(row) {
    const first = this.nodes.get(row.id);
    const selected = row.members.includes(this.selected);
    const key = JSON.stringify([row.status, row.members.length, selected, first.name, this.labelOf(first), first.seconds]);
    const drawn = this.drawn.get(row.row);
    if (drawn?.key === key) return;
    const option = this.option(row, first, selected);
    const shape = glyph(row);
    if (drawn) {
      drawn.option.replaceWith(option);
      drawn.glyph.replaceWith(shape);
    } else {
      this.body.append(option);
      this.glyphs.append(shape);
    }
    this.drawn.set(row.row, { key, option, glyph: shape });
  }

  labelOf(node) {
    return this.labels.get(node.id) ?? node.label;
  }

  optionId(row) {
    return `${this.prefix}-${row.row}`;
  }

  option(row, first, selected) {
    const look = lookOf(row.status);
    const times = row.members.length;
    const quiet = row.kind === "user" && look.word === "done";
    const tag = times > 1 ? `×${times}` : row.forked ? "fork" : "";
    const text = times > 1 ? loopText(row) : this.labelOf(first);
    const word = quiet ? "" : look.word;
    const time = seconds(first.seconds);
    const caller = row.caller ? `called by ${this.nodes.get(row.caller).name}` : "";
    const spoken = [[first.name, tag, text, word, time].filter(Boolean).join(" "), row.kind, caller];
    return h(
      "div",
      {
        class: "opv-row",
        role: "option",
        id: this.optionId(row),
        "aria-selected": String(selected),
        "aria-setsize": -1,
        "aria-posinset": row.row + 1,
        "aria-label": visible(spoken.filter(Boolean).join(", ")),
        style: `top:${TOP + row.row * ROW}px`,
      },
      h("code", {}, first.name),
      " ",
      tag && [h("span", { class: "opv-tag" }, tag), " "],
      h("span", { class: "opv-text" }, text),
      " ",
      h("span", { class: `opv-state opv-${look.tone}` }, word && [icon(look.icon), h("span", {}, word)]),
      " ",
      h("span", { class: "opv-time" }, time),
    );
  }

  // Edges never change, so they are drawn again only when other rows come into view.
  drawEdges(from, to) {
    const rows = this.layout.rows;
    const key = `${from} ${to} ${rows.length} ${this.folds}`;
    if (key === this.edgesKey) return;
    this.edgesKey = key;
    const drawn = [];
    const below = new Map();
    for (const row of rows) {
      const after = row.after === null ? null : this.layout.rowOf.get(row.after);
      const caller = row.caller === null ? null : this.layout.rowOf.get(row.caller);
      if (after && row.row >= from && after.row <= to) drawn.push(...comesAfter(after, row));
      if (!caller || row.row < from || caller.row > to) continue;
      // All that one caller has called below the view shares one line: the longest is enough.
      if (row.row > to) below.set(caller, row);
      else drawn.push(...calledBy(caller, row));
    }
    for (const [caller, row] of below) drawn.push(...calledBy(caller, row));
    this.edges.replaceChildren(...drawn);
    this.drawLanes();
  }

  drawLanes() {
    const bottom = TOP * 2 + this.layout.rows.length * ROW - 4;
    while (this.lanes.childNodes.length < this.layout.lanes.size) {
      this.lanes.append(s("path", { class: "opv-lane" }));
    }
    [...this.lanes.childNodes].forEach((lane, index) => {
      lane.setAttribute("d", index < this.layout.lanes.size ? `M${PAD + index * LANE} 4V${bottom}` : "");
    });
  }
}

function loopText(row) {
  if (row.status === "completed") return "loop, all done";
  const counts = Object.entries(row.statuses).filter(([, number]) => number > 0);
  return `loop, ${counts.map(([status, number]) => `${number} ${lookOf(status).word}`).join(", ")}`;
}

// The shape tells the role, the icon repeats it.
function glyph(row) {
  const [x, y] = [xOf(row), yOf(row)];
  const box = { class: "opv-shape" };
  if (row.status === "cancelled" || row.status === "interrupted") box["stroke-dasharray"] = "2 2";
  const square = { ...box, x: x - RADIUS, y: y - RADIUS, width: 2 * RADIUS, height: 2 * RADIUS };
  const shapes = {
    user: () => s("circle", { ...box, cx: x, cy: y, r: RADIUS }),
    model: () => s("rect", { ...square, rx: 4 }),
    function: () => s("path", { ...box, d: `M${x - 9} ${y}l4.5-8h9l4.5 8l-4.5 8h-9z` }),
  };
  const tone = row.status === "error" || row.status === "denied" ? "opv-err" : `opv-r-${row.kind}`;
  return s(
    "g",
    { class: tone },
    row.status === "running" && s("circle", { class: "opv-pulse", cx: x, cy: y, r: 9 }),
    (shapes[row.kind] ?? (() => s("rect", square)))(),
    icon(row.kind, { x: x - 6, y: y - 6, width: 12, height: 12 }),
  );
}

// Solid, in the lane's centre, with an arrow.
function comesAfter(before, row) {
  const [x1, y1, x2, y2] = [xOf(before), yOf(before), xOf(row), yOf(row)];
  const side = Math.sign(x2 - x1);
  const d =
    side === 0
      ? `M${x1} ${y1 + RADIUS}V${y2 - RADIUS - 5}`
      : `M${x1 + side * 4} ${y1 + RADIUS}v1q0 4 ${side * 4} 4H${x2 - side * 5}q${side * 5} 0 ${side * 5} 5V${y2 - RADIUS - 5}`;
  return [
    s("path", { class: "opv-after", d }),
    s("path", { class: "opv-arrow", d: `M${x2 - 3.5} ${y2 - RADIUS - 6}h7l-3.5 5z` }),
  ];
}

// Dashed, in the gutter right of the caller's lane, with a dot at the caller.
function calledBy(caller, row) {
  const [x1, y1, x2, y2] = [xOf(caller), yOf(caller), xOf(row), yOf(row)];
  const trunk = x1 + LANE / 2;
  return [
    s("path", {
      class: "opv-caller",
      d: `M${x1 + RADIUS + 1} ${y1}H${trunk - 3}q3 0 3 3V${y2 - 4}q0 4 4 4H${x2 - RADIUS - 1}`,
    }),
    s("circle", { class: "opv-dot", cx: x1 + RADIUS + 1, cy: y1, r: 2.5 }),
  ];
}

function legend() {
  const role = (name) => h("span", { class: `opv-r-${name}` }, icon(name), h("span", { class: "opv-muted" }, name));
  const line = (...shapes) => s("svg", { width: 26, height: 10, "aria-hidden": "true" }, shapes);
  return h(
    "div",
    { class: "opv-legend", "aria-label": "Legend", role: "note" },
    ["user", "model", "function", "tool"].map(role),
    h("span", {}, line(s("path", { class: "opv-after", d: "M1 5H19" }), s("path", { class: "opv-arrow", d: "M18 1.5L24 5L18 8.5z" })), "comes after"),
    h("span", {}, line(s("circle", { class: "opv-dot", cx: 3, cy: 5, r: 2.5 }), s("path", { class: "opv-caller", d: "M5 5H25" })), "called by"),
    h("span", {}, "×12: loop, folded"),
  );
}

// Give the focus back to the notebook.
export function leave(element) {
  document.activeElement?.blur();
  const cell = element.closest(".jp-Cell, .cell");
  const home = cell?.closest(".jp-Notebook, #notebook-container") ?? null;
  for (const target of [cell, home]) {
    target?.focus({ preventScroll: true });
    if (target && document.activeElement === target) return;
  }
}

// The panel beside the graph: one node in full.
export class DetailsPanel {
  // `ask(id)` wants a node's input and output, or is null; `act(action, id)` does something.
  constructor(graph, { ask, act }) {
    this.graph = graph;
    this.ask = ask;
    this.act = act;
    this.actions = [];
    this.known = new Map();
    this.notes = new Map();
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

  receive({ id, input, output }) {
    this.known.set(id, { ...this.known.get(id), input: asText(input), output: asText(output) });
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
    const key = JSON.stringify([node, row.members.length, this.known.get(node.id), this.notes.get(node.id), this.actions]);
    if (key === this.key) return;
    this.key = key;
    const { input, output } = this.known.get(node.id) ?? {};
    const note = this.notes.get(node.id);
    replace(
      this.element,
      h("h4", {}, h("span", { class: `opv-r-${row.kind}` }, icon(row.kind)), h("code", {}, node.name), row.members.length > 1 && h("span", { class: "opv-muted" }, `×${row.members.length}`)),
      row.members.length > 1 && this.pager(),
      this.facts(),
      input === undefined && this.graph.labelOf(node) ? box("Text", this.graph.labelOf(node)) : null,
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
    return h("div", { class: "opv-pager" }, step("‹", "Previous call", call - 1), h("span", {}, `call ${call + 1} of ${total}`), step("›", "Next call", call + 1));
  }

  facts() {
    const { row, node } = this;
    const status = this.graph.layout.statusOf.get(node.id);
    const look = lookOf(status);
    const caller = row.caller ? this.graph.nodes.get(row.caller) : null;
    const tokens = node.input_tokens === undefined ? "none" : `${thousands(node.input_tokens)} in / ${thousands(node.output_tokens ?? 0)} out`;
    const link = caller && h("button", { type: "button", class: "opv-link", onclick: () => this.graph.selectNode(caller.id) }, caller.name);
    const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
    return h(
      "dl",
      {},
      fact("Role", row.kind),
      fact("Status", h("span", { class: `opv-${look.tone}` }, icon(look.icon), " ", look.word)),
      fact("Caller", link ?? "none"),
      fact("Tokens", tokens),
      fact("Time", seconds(node.seconds) || "none"),
    );
  }

  buttons() {
    const id = this.node.id;
    const button = (name, text, act) => h("button", { type: "button", class: "opv-btn opv-sm", onclick: act }, icon(name), text);
    const offered = {
      fork: () => button("fork", "Fork here", () => this.act("fork", id)),
      rewind: () => button("undo", "Rewind here", () => this.act("rewind", id)),
      show_prompt: () => (this.node.kind === "model" ? button("text", "Show prompt", () => this.act("show_prompt", id)) : null),
    };
    return h(
      "div",
      { class: "opv-acts" },
      button("copy", "Copy id", () => this.copy(id)),
      this.actions.map((action) => offered[action]?.()),
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
  return [h("p", { class: "opv-label" }, label), h("pre", { class: "opv-box", tabindex: "0", "aria-label": label }, text)];
}

function asText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
