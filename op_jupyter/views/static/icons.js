// Icons on a 16 px grid, 1.5 px stroke, in the colour of the text around them; as in icons.py.
import { s } from "./dom.js";

export const ICONS = {
  user: ["c 8 5.5 2.5", "M3 13.5c.6-2.7 2.5-4 5-4s4.4 1.3 5 4"],
  model: [
    "r 4.5 4.5 7",
    "M6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
  ],
  function: [
    "M6 2.5c-1.5 0-2 .6-2 2v1.7c0 .9-.5 1.5-1.5 1.8 1 .3 1.5.9 1.5 1.8v1.7c0 1.4.5 2 2 2",
    "M10 2.5c1.5 0 2 .6 2 2v1.7c0 .9.5 1.5 1.5 1.8-1 .3-1.5.9-1.5 1.8v1.7c0 1.4-.5 2-2 2",
  ],
  tool: [
    "M13.5 4.7a3.3 3.3 0 0 1-4.3 4l-4.4 4.5a1.4 1.4 0 0 1-2-2l4.5-4.4a3.3 3.3 0 0 1 4-4.3L9.5 4.3l.4 1.8 1.8.4z",
  ],
  summary: ["M3 4h10M3 8h10M3 12h6"],
  ok: ["M3 8.5l3.2 3.2L13 4.8"],
  running: ["M8 2.5a5.5 5.5 0 1 1-5.5 5.5"],
  waiting: ["c 8 8 5.5", "M6.5 6v4M9.5 6v4"],
  failed: ["M4 4l8 8M12 4l-8 8"],
  denied: ["c 8 8 5.5", "M4.2 4.2l7.6 7.6"],
  cancelled: ["r 4 4 8"],
  interrupted: ["M2 8h3.5l1-3M9.5 11l1-3H14M9 3.5L7 12.5"],
  expired: ["c 8 8 5.5", "M8 5v3.2l2 1.3"],
  todo: ["c 8 8 5"],
  now: ["c 8 8 5", "f M8 3v10A5 5 0 0 0 8 3z"],
  chevron: ["M6 4l4 4-4 4"],
  shield: ["M8 1.8l5 1.9v4c0 3-2 5.2-5 6.5-3-1.3-5-3.5-5-6.5v-4z", "M8 5v3.5M8 10.7v.1"],
  alert: ["M8 2.5l6 11H2z", "M8 6.5v3.2M8 11.7v.1"],
  fork: [
    "c 4.5 3.5 1.7",
    "c 4.5 12.5 1.7",
    "c 11.5 6 1.7",
    "M4.5 5.2v5.6M11.5 7.7c0 2-2.5 2.3-7 2.3",
  ],
  copy: ["r 5.5 5.5 8", "M10.5 3.5v-1h-8v8h1"],
  text: ["M3 4h10M3 8h10M3 12h6"],
  pencil: ["M3 13l.6-2.6L10.8 3.2l2 2L5.6 12.4z"],
  undo: ["M5.5 3L3 5.5 5.5 8M3 5.5h6.5a3.7 3.7 0 0 1 0 7.5H6"],
  graph: ["c 3.5 8 1.7", "c 12 3.5 1.7", "c 12 12.5 1.7", "M5 7.2l5.5-3M5 8.8l5.5 3"],
  list: ["M5.5 4H14M5.5 8H14M5.5 12H14M2.5 4v.1M2.5 8v.1M2.5 12v.1"],
};

// One shape: "c cx cy r" a circle, "r x y size" a square, "f path" a filled path, else a path.
function shape(spec) {
  const [kind, ...rest] = spec.split(" ");
  if (kind === "c") return s("circle", { cx: rest[0], cy: rest[1], r: rest[2] });
  if (kind === "r") {
    return s("rect", { x: rest[0], y: rest[1], width: rest[2], height: rest[2], rx: 1 });
  }
  if (kind === "f") return s("path", { d: rest.join(" "), fill: "currentColor" });
  return s("path", { d: spec });
}

// Decorative: the word beside it carries the meaning.
export function icon(name, attributes = {}) {
  return s(
    "svg",
    { class: "opv-i", viewBox: "0 0 16 16", "aria-hidden": "true", ...attributes },
    (ICONS[name] ?? []).map(shape),
  );
}
