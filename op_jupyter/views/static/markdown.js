// Markdown to nodes: what models write (headings, lists, tables, code, quotes), nothing that acts.
import { h } from "./dom.js";
import { coloured } from "./highlight.js";
import { inline } from "./inline.js";
import { visible } from "./text.js";

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( +)(.*)|)$/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const INDENTED = /^(?: {4}|\t)/;
const UNDERLINE = /^ {0,3}(=+|-+)[ \t]*$/;
const MAX_DEPTH = 12;

// A container that shows Markdown and follows it as it grows: blocks that did not change keep
// their elements, so that a selection in them survives.
export class MarkdownBox {
  constructor(className) {
    this.element = h("div", { class: className });
    this.shown = [];
  }

  update(source) {
    if (source === this.source) return;
    this.source = source;
    const blocks = splitBlocks(visible(source));
    let same = 0;
    while (same < blocks.length && blocks[same] === this.shown[same]) same += 1;
    const kept = [...this.element.children].slice(0, same);
    const place = { depth: 0, top: topLevel(blocks) };
    const fresh = blocks.slice(same).map((block) => renderTop(block, place));
    this.element.replaceChildren(...kept, ...fresh);
    this.shown = blocks;
  }
}

// The level of the first heading, which becomes the first one below those of a notebook.
function topLevel(blocks) {
  for (const block of blocks) {
    const lines = block.split("\n");
    const [kind] = kindOf(lines, 0);
    if (kind === "heading") return HEADING.exec(lines[0])[1].length;
    const underline = kind === "paragraph" && lines.length > 1 && UNDERLINE.exec(lines.at(-1));
    if (underline) return underline[1][0] === "=" ? 1 : 2;
  }
  return 1;
}

const headingTag = (level, { top }) => `h${Math.min(6, Math.max(3, level - top + 3))}`;
const deeper = (place) => ({ ...place, depth: place.depth + 1 });

function renderTop(source, place) {
  const elements = renderBlocks(source.split("\n"), place);
  return elements.length === 1 ? elements[0] : h("div", {}, elements);
}

// The sources of the top-level blocks.
function splitBlocks(source) {
  const lines = source.split("\n");
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const end = blockEnd(lines, at);
    if (lines[at].trim() !== "") found.push(lines.slice(at, end).join("\n"));
    at = end;
  }
  return found;
}

// Elements for all blocks in `lines`.
function renderBlocks(lines, place) {
  const elements = [];
  let at = 0;
  while (at < lines.length) {
    const end = blockEnd(lines, at);
    if (lines[at].trim() !== "") elements.push(renderBlock(lines.slice(at, end), place));
    at = end;
  }
  return elements;
}

const KINDS = [
  ["fence", (lines, at) => FENCE.test(lines[at]), fenceEnd],
  ["heading", (lines, at) => HEADING.test(lines[at]), (_, at) => at + 1],
  ["rule", (lines, at) => RULE.test(lines[at]), (_, at) => at + 1],
  ["quote", (lines, at) => QUOTE.test(lines[at]), quoteEnd],
  ["list", (lines, at) => ITEM.test(lines[at]), listEnd],
  ["table", isTable, tableEnd],
  ["indented", (lines, at) => INDENTED.test(lines[at]), indentedEnd],
];

function kindOf(lines, at) {
  return KINDS.find(([, starts]) => starts(lines, at)) ?? ["paragraph", null, paragraphEnd];
}

function blockEnd(lines, at) {
  if (lines[at].trim() === "") return at + 1;
  return kindOf(lines, at)[2](lines, at);
}

function renderBlock(lines, place) {
  if (place.depth > MAX_DEPTH) return h("p", {}, lines.join("\n"));
  return RENDERERS[kindOf(lines, 0)[0]](lines, place);
}

const RENDERERS = {
  fence(lines) {
    const [, indent, ticks, info] = FENCE.exec(lines[0]);
    const closed = lines.length > 1 && closes(lines.at(-1), ticks);
    const body = lines.slice(1, closed ? -1 : undefined);
    const code = body.map((line) => dedent(line, indent.length)).join("\n");
    return codeBlock(code, info.trim().split(/\s+/)[0].toLowerCase());
  },
  heading(lines, place) {
    const [, marks, text = ""] = HEADING.exec(lines[0]);
    const words = text.replace(/(?:^|[ \t]+)#+[ \t]*$/, "");
    return h(headingTag(marks.length, place), {}, inline(words.trim()));
  },
  rule: () => h("hr"),
  quote(lines, place) {
    return h(
      "blockquote",
      {},
      renderBlocks(
        lines.map((line) => line.replace(QUOTE, "")),
        deeper(place),
      ),
    );
  },
  list: renderList,
  table: renderTable,
  indented(lines) {
    return codeBlock(
      lines
        .map((line) => dedent(line, 4))
        .join("\n")
        .trimEnd(),
      "",
    );
  },
  paragraph(lines, place) {
    const underline = lines.length > 1 ? UNDERLINE.exec(lines.at(-1)) : null;
    const text = (underline ? lines.slice(0, -1) : lines)
      .map((line) => line.trimStart())
      .join("\n");
    const tag = underline ? headingTag(underline[1][0] === "=" ? 1 : 2, place) : "p";
    return h(tag, {}, inline(text.trimEnd()));
  },
};

function codeBlock(code, language) {
  return h("pre", { class: "opv-box", tabindex: "0" }, coloured(code, language));
}

function dedent(line, columns) {
  const spaces = line.startsWith("\t") ? "    " + line.slice(1) : line;
  const indent = spaces.length - spaces.trimStart().length;
  return spaces.slice(Math.min(indent, columns));
}

function closes(line, ticks) {
  const text = line.trim();
  return text.length >= ticks.length && text === ticks[0].repeat(text.length);
}

function fenceEnd(lines, at) {
  const ticks = FENCE.exec(lines[at])[2];
  for (let end = at + 1; end < lines.length; end += 1)
    if (closes(lines[end], ticks)) return end + 1;
  return lines.length;
}

function quoteEnd(lines, at) {
  let end = at + 1;
  while (end < lines.length && (QUOTE.test(lines[end]) || isLazy(lines, end))) end += 1;
  return end;
}

// A plain line that goes on with the paragraph before it, without that one's marker.
function isLazy(lines, at) {
  return (
    lines[at].trim() !== "" && kindOf(lines, at)[0] === "paragraph" && lines[at - 1].trim() !== ""
  );
}

function indentedEnd(lines, at) {
  let end = at + 1;
  while (end < lines.length && (INDENTED.test(lines[end]) || lines[end].trim() === "")) end += 1;
  while (lines[end - 1].trim() === "") end -= 1;
  return end;
}

function paragraphEnd(lines, at) {
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    if (lines[end].trim() === "") return end;
    if (UNDERLINE.test(lines[end])) return end + 1;
    const kind = kindOf(lines, end)[0];
    const item = kind === "list" ? ITEM.exec(lines[end]) : null;
    const weak = item && (!item[4] || (/\d/.test(item[2]) && item[2] !== "1." && item[2] !== "1)"));
    if (kind !== "paragraph" && kind !== "indented" && !weak) return end;
  }
  return end;
}

// -- lists

const bulletOf = (item) => (/\d/.test(item[2]) ? item[2].at(-1) : item[2]);
const widthOf = (item) => item[1].length + item[2].length + Math.min(item[3]?.length ?? 1, 4);

function listEnd(lines, at) {
  const bullet = bulletOf(ITEM.exec(lines[at]));
  let width = widthOf(ITEM.exec(lines[at]));
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    if (line.trim() === "") {
      const next = lines[end + 1];
      const goesOn = next !== undefined && (indentOf(next) >= width || isItem(next, bullet));
      if (!goesOn) return end;
    } else if (isItem(line, bullet)) {
      width = widthOf(ITEM.exec(line));
    } else if (indentOf(line) < width && !isLazy(lines, end)) {
      return end;
    }
  }
  return end;
}

function isItem(line, bullet) {
  const item = RULE.test(line) ? null : ITEM.exec(line);
  return item !== null && bulletOf(item) === bullet;
}

function indentOf(line) {
  const wide = line.replaceAll("\t", "    ");
  return wide.length - wide.trimStart().length;
}

function renderList(lines, place) {
  const first = ITEM.exec(lines[0]);
  const bullet = bulletOf(first);
  const items = [];
  let width = 0;
  for (const line of lines) {
    const item =
      indentOf(line) < Math.max(width, 1) && isItem(line, bullet) ? ITEM.exec(line) : null;
    if (item) {
      width = widthOf(item);
      items.push([item[4] ?? ""]);
    } else {
      items.at(-1).push(dedent(line, width));
    }
  }
  const loose = lines.some((line) => line.trim() === "");
  const children = items.map((item) => h("li", {}, itemChildren(item, loose, place)));
  const start = Number.parseInt(first[2], 10);
  if (Number.isNaN(start)) return h("ul", {}, children);
  return h("ol", { start: start === 1 ? null : start }, children);
}

function itemChildren(lines, loose, place) {
  const elements = renderBlocks(lines, deeper(place));
  const unwrap = (element) => (element.tagName === "P" ? [...element.childNodes] : element);
  return loose ? elements : elements.flatMap(unwrap);
}

// -- tables

function cells(line) {
  const inner = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function isTable(lines, at) {
  const next = lines[at + 1];
  if (next === undefined || !lines[at].includes("|") || !DELIMITERS.test(next)) return false;
  return cells(lines[at]).length === cells(next).length;
}

function tableEnd(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].trim() !== "" && lines[end].includes("|")) end += 1;
  return end;
}

function renderTable(lines) {
  const head = cells(lines[0]);
  const aligned = cells(lines[1]).map((cell) => {
    if (!cell.endsWith(":")) return null;
    return cell.startsWith(":") ? "opv-mid" : "opv-num";
  });
  const row = (tag, texts) =>
    h(
      "tr",
      {},
      head.map((_, index) => h(tag, { class: aligned[index] }, inline(texts[index] ?? ""))),
    );
  return h(
    "div",
    { class: "opv-scroll" },
    h(
      "table",
      {},
      h("thead", {}, row("th", head)),
      h(
        "tbody",
        {},
        lines.slice(2).map((line) => row("td", cells(line))),
      ),
    ),
  );
}
