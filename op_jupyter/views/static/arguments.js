// What a call would run, in full: code with its marked lines, a diff, or JSON.
import { h, replace } from "./dom.js";
import { colouredLines } from "./highlight.js";
import { icon } from "./icons.js";
import { count } from "./text.js";

const CUT_LINES = 200;
const CUT_CHARS = 20_000;

export function argumentsView(request) {
  const { display = {}, tool } = request;
  if (display.kind === "diff") return diffView(display);
  if (display.kind === "code") {
    const marked = display.lines ?? {};
    const lines = colouredLines(display.code ?? "", display.language);
    const rows = lines.map((line, index) => codeRow(line, index + 1, marked[String(index + 1)]));
    const dangerous = Object.keys(marked).length;
    const label = `Full arguments of ${tool}, ${count(lines.length, "line")}${dangerous ? `, ${dangerous} marked dangerous` : ""}`;
    return [
      cutBox("opv-code", label, rows, Object.keys(marked).map(Number)),
      otherArguments(request),
    ];
  }
  const lines = JSON.stringify(request.arguments ?? {}, null, 2).split("\n");
  const rows = lines.map((line, index) => codeRow([line], index + 1));
  return cutBox("opv-code", `Full arguments of ${tool}`, rows, []);
}

// Arguments beside the code itself: nothing that would run may be hidden.
function otherArguments({ arguments: values = {}, display }) {
  const others = Object.entries(values).filter(([, value]) => value !== display.code);
  if (others.length === 0) return null;
  const lines = JSON.stringify(Object.fromEntries(others), null, 2).split("\n").slice(1, -1);
  const rows = lines.map((line, index) => codeRow([line.slice(2)], index + 1));
  return cutBox("opv-code", "Other arguments", rows, []);
}

function codeRow(children, number, danger) {
  const cells = [
    h("b", {}, String(number)),
    h("span", { class: "opv-err" }, danger && icon("alert")),
  ];
  if (!danger) return h("div", { class: "opv-ln" }, cells, h("span", {}, children), h("span"));
  const indent = /^\s*/.exec(typeof children[0] === "string" ? children[0] : "")[0];
  const rest = indent ? [children[0].slice(indent.length), ...children.slice(1)] : children;
  return h(
    "div",
    { class: "opv-ln opv-bad" },
    cells,
    h("span", {}, indent, h("u", {}, rest)),
    h("span", { class: "opv-why" }, danger),
  );
}

function diffView({ path, diff = "" }) {
  const rows = [];
  let [before, after] = [0, 0];
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    if (hunk) [before, after] = [Number(hunk[1]), Number(hunk[2])];
    if (!hunk && before + after === 0) continue;
    const [kind, old, fresh] = hunk
      ? ["hunk", "", ""]
      : line.startsWith("+")
        ? ["add", "", after++]
        : line.startsWith("-")
          ? ["del", before++, ""]
          : line.startsWith("\\")
            ? ["hunk", "", ""]
            : ["", before++, after++];
    rows.push(diffRow(kind, old, fresh, hunk || kind === "hunk" ? line : line.slice(1), path));
  }
  return cutBox("opv-code opv-diff", `Unified diff of ${path}`, rows, []);
}

function diffRow(kind, old, fresh, text, path) {
  const sign = { add: "+", del: "−" }[kind] ?? "";
  const spoken = { add: "added: ", del: "removed: " }[kind];
  const language = /\.pyi?$/.test(path ?? "") && kind !== "hunk" ? "python" : "";
  return h(
    "div",
    { class: `opv-ln ${kind ? `opv-${kind}` : ""}` },
    h("b", {}, String(old)),
    h("b", {}, String(fresh)),
    h("i", { "aria-hidden": "true" }, sign),
    h(
      "span",
      {},
      spoken && h("span", { class: "opv-sr" }, spoken),
      colouredLines(text, language)[0],
    ),
  );
}

// Huge arguments are cut, except for the lines that are marked; a button shows the rest.
function cutBox(className, label, rows, marked) {
  const place = h("div", { class: className, tabindex: "0", role: "region", "aria-label": label });
  let chars = 0;
  const end = rows.findIndex(
    (row, index) => index >= CUT_LINES || (chars += row.textContent.length) > CUT_CHARS,
  );
  if (end < 0) return replace(place, rows);
  const shown = Math.max(end, 1);
  const beyond = marked.filter((number) => number > shown).map((number) => rows[number - 1]);
  const rest = rows.length - shown;
  const button = h(
    "button",
    { type: "button", class: "opv-btn opv-sm opv-all", onclick: () => replace(place, rows) },
    rest > 0 ? `Show all ${rows.length} lines (${rest} more)` : `Show all ${chars} characters`,
  );
  if (rest === 0)
    replace(
      place,
      h(
        "div",
        { class: "opv-ln" },
        h("b"),
        h("span"),
        h("span", {}, rows[0].textContent.slice(0, CUT_CHARS)),
      ),
      button,
    );
  else replace(place, rows.slice(0, shown), button, beyond);
  return place;
}

export function diffSize(diff) {
  const lines = diff.split("\n");
  const added = lines.filter((line) => /^\+(?!\+\+ )/.test(line)).length;
  const removed = lines.filter((line) => /^-(?!-- )/.test(line)).length;
  return `+${added} −${removed} lines`;
}
