// The shapes of the drawn graph: nodes in their lanes, the two kinds of edge, the legend.
import { h, s } from "./dom.js";
import { icon } from "./icons.js";

export const ROW = 28;
export const LANE = 26;
export const PAD = 18;
export const TOP = 8;
export const LANES = 6;
const RADIUS = 8;

const xOf = (row) => PAD + row.lane * LANE;
const yOf = (row) => TOP + row.row * ROW + ROW / 2;

// The shape tells the role, the icon repeats it.
export function glyph(row) {
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
export function comesAfter(before, row) {
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
export function calledBy(caller, row) {
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

export function legend() {
  const role = (name) =>
    h("span", { class: `opv-r-${name}` }, icon(name), h("span", { class: "opv-muted" }, name));
  const line = (...shapes) => s("svg", { width: 22, height: 10, "aria-hidden": "true" }, shapes);
  return h(
    "div",
    { class: "opv-legend", "aria-label": "Legend", role: "note" },
    ["user", "model", "function", "tool"].map(role),
    h(
      "span",
      {},
      line(
        s("path", { class: "opv-after", d: "M1 5H15" }),
        s("path", { class: "opv-arrow", d: "M14 1.5L20 5L14 8.5z" }),
      ),
      "comes after",
    ),
    h(
      "span",
      {},
      line(
        s("circle", { class: "opv-dot", cx: 3, cy: 5, r: 2.5 }),
        s("path", { class: "opv-caller", d: "M5 5H21" }),
      ),
      "called by",
    ),
    h("span", {}, "×12 loop"),
  );
}
