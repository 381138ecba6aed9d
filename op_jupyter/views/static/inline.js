// Markdown inside a line: emphasis, code, links. Builds nodes; HTML in the text stays text.
import { h } from "./dom.js";

const PUNCTUATION = /[\p{P}\p{S}]/u;
const ESCAPED = /[!-/:-@[-`{-~]/;
const PLAIN = /[^\\`*_~[\]!<&\nhH]+|[hH]/y;
const BARE_URL = /https?:\/\/[^\s<>"'`\\]+/iy;
const AUTOLINK = /<(https?:\/\/[^\s<>]+)>/iy;
const BREAK = /<br\s*\/?>/iy;
const ENTITY = /&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7})|#[xX]([\da-fA-F]{1,6}));/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const TARGET =
  /\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:\s+(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))?\s*\)/y;
const TARGET_CHARS = 2000;
const MAX_CHARS = 100_000;

// Only the web: no scripts, no files, no commands of the front end.
export function safeUrl(address) {
  if (!/^https?:\/\//i.test(address)) return null;
  try {
    const url = new URL(address);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

// The nodes and strings that show `source`, one paragraph's worth of Markdown.
export function inline(source) {
  if (source.length > MAX_CHARS) return [source];
  return new InlineParser(source).parse();
}

// What has been read so far is a doubly linked list of pieces between two ends, because emphasis
// is found from its closing mark backwards. A piece is text, a finished node, or an open mark.
class InlineParser {
  constructor(source) {
    this.source = source;
    this.at = 0;
    this.head = { type: "end" };
    this.tail = { type: "end", prev: this.head };
    this.head.next = this.tail;
    this.brackets = [];
    this.tickRuns = null;
  }

  parse() {
    while (this.at < this.source.length) this.step();
    this.emphasise(this.head);
    return collect(this.head, this.tail);
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.source);
  }

  push(piece) {
    const last = this.tail.prev;
    if (piece.type === "text" && last.type === "text") {
      last.value += piece.value;
      return last;
    }
    link(last, piece);
    link(piece, this.tail);
    return piece;
  }

  text(value) {
    this.push({ type: "text", value });
    this.at += value.length;
  }

  node(element, length) {
    this.push({ type: "node", element });
    this.at += length;
  }

  step() {
    switch (this.source[this.at]) {
      case "\\":
        return this.escape();
      case "`":
        return this.code();
      case "*":
      case "_":
      case "~":
        return this.mark();
      case "[":
        return this.open(1);
      case "!":
        return this.source[this.at + 1] === "[" ? this.open(2) : this.text("!");
      case "]":
        return this.close();
      case "<":
        return this.angle();
      case "&":
        return this.entity();
      case "\n":
        return this.newline();
      default:
        return this.plain();
    }
  }

  escape() {
    const next = this.source[this.at + 1];
    if (next === "\n") return this.node(h("br"), 2);
    if (next === undefined || !ESCAPED.test(next)) return this.text("\\");
    this.at += 1;
    return this.text(next);
  }

  code() {
    const ticks = /`+/y;
    const run = this.match(ticks)[0];
    const end = this.closingTicks(run.length, this.at + run.length);
    if (end < 0) return this.text(run);
    const inner = this.source.slice(this.at + run.length, end).replaceAll("\n", " ");
    const padded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    const shown = padded ? inner.slice(1, -1) : inner;
    return this.node(h("code", {}, shown), end + run.length - this.at);
  }

  // Where the next run of exactly `length` ticks begins; the runs are looked up once.
  closingTicks(length, from) {
    if (!this.tickRuns) {
      this.tickRuns = new Map();
      for (const run of this.source.matchAll(/`+/g)) {
        const known = this.tickRuns.get(run[0].length) ?? [];
        known.push(run.index);
        this.tickRuns.set(run[0].length, known);
      }
    }
    const starts = this.tickRuns.get(length) ?? [];
    while (starts.length && starts[0] < from) starts.shift();
    return starts.length ? starts[0] : -1;
  }

  mark() {
    const char = this.source[this.at];
    const run = /(.)\1*/y;
    const count = this.match(run)[0].length;
    const before = this.source[this.at - 1] ?? " ";
    const after = this.source[this.at + count] ?? " ";
    const left =
      !/\s/.test(after) &&
      (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
    const right =
      !/\s/.test(before) &&
      (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
    const inWord = char === "_";
    this.push({
      type: "mark",
      char,
      count,
      canOpen: left && (!inWord || !right || PUNCTUATION.test(before)),
      canClose: right && (!inWord || !left || PUNCTUATION.test(after)),
    });
    this.at += count;
  }

  open(length) {
    const piece = this.push({ type: "bracket", value: length === 2 ? "![" : "[" });
    this.brackets.push({ piece, image: length === 2, active: true });
    this.at += length;
  }

  close() {
    const bracket = this.brackets.pop();
    if (!bracket) return this.text("]");
    const target = bracket.active ? this.target() : null;
    if (!target) {
      bracket.piece.type = "text";
      return this.text("]");
    }
    this.emphasise(bracket.piece);
    const inner = collect(bracket.piece, this.tail);
    link(bracket.piece.prev, this.tail);
    // No link inside a link.
    if (!bracket.image) for (const outer of this.brackets) outer.active &&= outer.image;
    return this.node(anchor(target.address, inner, bracket.image), target.length);
  }

  target() {
    const window = this.source.slice(this.at + 1, this.at + 1 + TARGET_CHARS);
    TARGET.lastIndex = 0;
    const found = TARGET.exec(window);
    if (!found) return null;
    const address = (found[1] ?? found[2] ?? "").replace(/\\([!-/:-@[-`{-~])/g, "$1");
    return { address, length: found[0].length + 1 };
  }

  angle() {
    const address = this.match(AUTOLINK);
    if (address) return this.node(anchor(address[1], [address[1]]), address[0].length);
    const rest = this.match(BREAK);
    return rest ? this.node(h("br"), rest[0].length) : this.text("<");
  }

  entity() {
    const found = this.match(ENTITY);
    if (!found) return this.text("&");
    const code = found[2] ? Number(found[2]) : Number.parseInt(found[3], 16);
    const value = found[1]
      ? ENTITIES[found[1]]
      : code > 0 && code <= 0x10ffff
        ? String.fromCodePoint(code)
        : "\ufffd";
    this.push({ type: "text", value });
    this.at += found[0].length;
  }

  newline() {
    const last = this.tail.prev;
    const hard = last.type === "text" && last.value.endsWith("  ");
    if (last.type === "text") last.value = last.value.trimEnd();
    return hard ? this.node(h("br"), 1) : this.text("\n");
  }

  plain() {
    const inWord = this.at > 0 && /\w/.test(this.source[this.at - 1]);
    const found = inWord ? null : this.match(BARE_URL);
    if (!found) return this.text(this.match(PLAIN)[0]);
    const address = trimmed(found[0]);
    return this.node(anchor(address, [address]), address.length);
  }

  // Turn the marks after `start` into elements, innermost first.
  emphasise(start) {
    const bottoms = new Map();
    for (let closer = start.next; closer !== this.tail; closer = closer.next) {
      if (closer.type !== "mark" || !closer.canClose) continue;
      const key = `${closer.char}${closer.canOpen}${closer.count % 3}`;
      const bottom = bottoms.get(key) ?? start;
      const opener = findOpener(closer, bottom, start);
      if (!opener) {
        bottoms.set(key, closer.prev);
        continue;
      }
      closer = this.wrap(opener, closer);
    }
  }

  // Put what stands between two marks into an element; returns the piece to go on after.
  wrap(opener, closer) {
    const strong = opener.count >= 2 && closer.count >= 2;
    const used = strong ? 2 : 1;
    const tag = closer.char === "~" ? "s" : strong ? "strong" : "em";
    const piece = { type: "node", element: h(tag, {}, collect(opener, closer)) };
    link(opener, piece);
    link(piece, closer);
    opener.count -= used;
    closer.count -= used;
    if (opener.count === 0) link(opener.prev, opener.next);
    if (closer.count > 0) return closer.prev;
    link(closer.prev, closer.next);
    return closer.prev;
  }
}

function link(one, other) {
  one.next = other;
  other.prev = one;
}

function findOpener(closer, bottom, start) {
  for (let opener = closer.prev; opener !== bottom && opener !== start; opener = opener.prev) {
    if (opener.type !== "mark" || opener.char !== closer.char || !opener.canOpen) continue;
    if (closer.char === "~" && (opener.count !== 2 || closer.count !== 2)) continue;
    const mixed = opener.canClose || closer.canOpen;
    const thirds = opener.count % 3 || closer.count % 3;
    if (mixed && thirds && (opener.count + closer.count) % 3 === 0) continue;
    return opener;
  }
  return null;
}

// The nodes and strings between two pieces; marks that found no partner are text again.
function collect(from, to) {
  const children = [];
  for (let piece = from.next; piece !== to; piece = piece.next) {
    if (piece.type === "node") children.push(piece.element);
    else if (piece.type === "mark") children.push(piece.char.repeat(piece.count));
    else children.push(piece.value);
  }
  return children;
}

// A link to the web, or the same words without one. Images are named, never fetched.
function anchor(address, children, image = false) {
  const shown = image ? ["[image: ", plainText(children) || "no description", "]"] : children;
  const href = safeUrl(address);
  const flat = shown.flatMap((child) => (child.tagName === "A" ? [...child.childNodes] : [child]));
  if (!href) return h("span", {}, flat);
  return h("a", { href, target: "_blank", rel: "noopener noreferrer", title: href }, flat);
}

function plainText(children) {
  return children.map((child) => (child instanceof Node ? child.textContent : child)).join("");
}

// A web address in running text ends before the sentence's own punctuation.
function trimmed(address) {
  let end = address.length;
  const balance = (text) => text.split("(").length - text.split(")").length;
  for (;;) {
    const last = address[end - 1];
    const closing = last === ")" && balance(address.slice(0, end)) < 0;
    if (!/[.,;:!?*_~\]]/.test(last) && !closing) return address.slice(0, end);
    end -= 1;
  }
}
