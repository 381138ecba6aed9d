// Light colouring of code: words, strings, numbers, comments and operators.
import { h } from "./dom.js";

const PYTHON =
  /(#[^\n]*)|([rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?))|(\d[\w.]*)|([A-Za-z_]\w*)|([-+*/%=<>!&|^~@]+)/g;
const SHELL =
  /((?<=^|\s)#[^\n]*)|("(?:\\[\s\S]|[^"\\])*"?|'[^']*'?)|((?<![\w-])\d[\w.]*)|([A-Za-z_][\w-]*)|([|&;<>=]+)/g;
const NOTHING = /(?!)/g;

const WORDS = {
  python:
    "False None True and as assert async await break class continue def del elif else except " +
    "finally for from global if import in is lambda match case nonlocal not or pass raise return " +
    "try while with yield",
  shell: "if then else elif fi for in do done while until case esac function return exit export",
};
const GRAMMARS = {
  python: [PYTHON, new Set(WORDS.python.split(" "))],
  shell: [SHELL, new Set(WORDS.shell.split(" "))],
};
const ALIASES = { py: "python", ipython: "python", bash: "shell", sh: "shell", zsh: "shell" };
const CLASSES = [null, "c", "s", "n", null, "o"];
const LIMIT = 200_000;

// [class or null, text] pairs that join to `code` again.
export function tokens(code, language) {
  const name = ALIASES[language] ?? language;
  const [grammar, words] = GRAMMARS[name] ?? [NOTHING, new Set()];
  if (code.length > LIMIT) return [[null, code]];
  const found = [];
  let end = 0;
  for (const match of code.matchAll(grammar)) {
    if (match.index > end) found.push([null, code.slice(end, match.index)]);
    const group = match.findIndex((text, index) => index > 0 && text !== undefined);
    const kind = group === 4 ? (words.has(match[0]) ? "k" : null) : CLASSES[group];
    found.push([kind, match[0]]);
    end = match.index + match[0].length;
  }
  if (end < code.length) found.push([null, code.slice(end)]);
  return found;
}

const spanOf = ([kind, text]) => (kind ? h("span", { class: `opv-${kind}` }, text) : text);

// The whole of `code` as children of a `pre`.
export function coloured(code, language) {
  return tokens(code, language).map(spanOf);
}

// The same, a list of children for each line.
export function colouredLines(code, language) {
  const lines = [[]];
  for (const [kind, text] of tokens(code, language)) {
    text.split("\n").forEach((part, index) => {
      if (index) lines.push([]);
      if (part) lines.at(-1).push(spanOf([kind, part]));
    });
  }
  return lines;
}
