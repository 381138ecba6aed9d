// Text from models and tools, made safe to look at; the twin of text.py.

const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

// Control, bidi and zero-width characters are written out as [U+202E].
export function visible(text) {
  return String(text)
    .replaceAll("\r\n", "\n")
    .replace(/\p{Surrogate}/gu, "\ufffd")
    .replace(HIDDEN, (c) => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

// On one line, white space collapsed, cut with an ellipsis after `limit` characters.
export function oneLine(text, limit) {
  const line = visible(text).split(/\s+/).filter(Boolean).join(" ");
  return line.length <= limit ? line : line.slice(0, limit - 1).trimEnd() + "…";
}

export function count(number, noun) {
  return number === 1 ? `${number} ${noun}` : `${number} ${noun}s`;
}

// How deep brackets are nested; those in strings are counted as well.
export function depth(text) {
  let [now, most] = [0, 0];
  for (const [bracket] of text.matchAll(/[[{\]}]/g)) {
    now += "[{".includes(bracket) ? 1 : -1;
    most = Math.max(most, now);
  }
  return most;
}
