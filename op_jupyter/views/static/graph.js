// The graph as a list of rows beside lanes: one tab stop, arrows move, only rows in view exist.
import { h, leave, replace, s, setText, show } from "./dom.js";
import { icon } from "./icons.js";
import { Layout } from "./layout.js";
import { calledBy, comesAfter, glyph, LANE, LANES, legend, PAD, ROW, TOP } from "./shapes.js";
import { visible } from "./text.js";
import { lookOf, seconds } from "./words.js";

const OVERSCAN = 8;
let graphs = 0;

export class GraphView {
  // `onSelect(row, node)` hears which node is looked at.
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.prefix = `opv-graph-${++graphs}`;
    this.nodes = new Map();
    // Better words for some nodes than their own label.
    this.labels = new Map();
    this.waiting = null;
    // The kernel is gone: what ran does so no more.
    this.dead = false;
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
    this.gutter = s(
      "svg",
      { class: "opv-gutter", "aria-hidden": "true" },
      this.moving,
    );
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
    return h(
      "button",
      { type: "button", class: "opv-btn opv-sm", "aria-pressed": "true", onclick: press },
      text,
    );
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
    const status = node.status === "running" ? this.runningStatus(node.id) : node.status;
    if (!this.layout.rowOf.has(node.id)) this.layout.add({ ...node, status });
    else if (this.layout.statusOf.get(node.id) !== status) this.layout.update(node.id, status);
  }

  runningStatus(id) {
    if (this.dead) return "interrupted";
    return id === this.waiting ? "waiting" : "running";
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
    const gutter = Math.max(1, Math.min(LANES, this.layout.lanes.size)) * LANE + 12;
    this.gutter.setAttribute("height", height);
    this.gutter.setAttribute("width", gutter);
    this.body.style.setProperty("--op-gutter", `${gutter}px`);
    const from = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - OVERSCAN);
    const room = this.scroller.clientHeight || 20 * ROW;
    const to = Math.min(
      rows.length - 1,
      Math.ceil((this.scroller.scrollTop + room) / ROW) + OVERSCAN,
    );
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
    const key = JSON.stringify([
      row.status,
      row.members.length,
      selected,
      first.name,
      this.labelOf(first),
      first.seconds,
    ]);
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
    const text = times > 1 ? `loop, ${loopText(row)}` : this.labelOf(first);
    const word = quiet ? "" : look.word;
    const time = seconds(first.seconds);
    const caller = row.caller ? `called by ${this.nodes.get(row.caller).name}` : "";
    const spoken = [
      [first.name, tag, text, word, time].filter(Boolean).join(" "),
      row.kind,
      caller,
    ];
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
      h(
        "span",
        { class: `opv-state opv-${look.tone}` },
        word && [icon(look.icon), h("span", {}, word)],
      ),
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
      lane.setAttribute(
        "d",
        index < this.layout.lanes.size ? `M${PAD + index * LANE} 4V${bottom}` : "",
      );
    });
  }
}

// How the calls of a folded row ended.
export function loopText(row) {
  if (row.status === "completed") return "all done";
  const counts = Object.entries(row.statuses).filter(([, number]) => number > 0);
  return counts.map(([status, number]) => `${number} ${lookOf(status).word}`).join(", ");
}
