// The Markdown subset of messages, as nodes. Nothing here parses markup: what isn't recognised stays text.

import { h } from "./dom.js";

const INLINE = /\\([!-/:-@[-`{-~])|(`+)([^`]+?)\2|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*)\*(?![\w*])|(?<!\w)_([^_\s][^_\n]*)_(?!\w)|~~([^~\n]+)~~|\[([^\]\n]+)\]\(([^)\s]+)\)|(https?:\/\/[^\s<>"')\]]+[^\s<>"')\].,;:!?])/g;
const SAFE = new Set(["http:", "https:", "mailto:"]);

function link(label, target) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return null;
  }
  if (!SAFE.has(url.protocol)) return null;
  return h("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow", title: url.href }, label);
}

/** Turn one run of text into nodes. */
export function inline(text) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, literal, , code, bold, star, under, strike, label, target, bare] = match;
    let node = null;
    if (literal !== undefined) node = literal;
    else if (code !== undefined) node = h("code", {}, code);
    else if (bold !== undefined) node = h("strong", {}, inline(bold));
    else if (star !== undefined || under !== undefined) node = h("em", {}, inline(star ?? under));
    else if (strike !== undefined) node = h("s", {}, inline(strike));
    else if (label !== undefined) node = link(label, target);
    else if (bare !== undefined) node = link(bare, bare);
    if (match.index > from) nodes.push(text.slice(from, match.index));
    nodes.push(node ?? whole);
    from = match.index + whole.length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

const broken = (lines) => lines.flatMap((line, index) => (index ? [h("br"), ...inline(line)] : inline(line)));

const KINDS = [
  { test: /^\s*[-*•]\s+/, make: (lines) => h("ul", {}, lines.map((line) => h("li", {}, inline(line)))) },
  { test: /^\s*\d{1,9}[.)]\s+/, make: (lines, first) => h("ol", { start: parseInt(first, 10) }, lines.map((line) => h("li", {}, inline(line)))) },
  { test: /^>\s?/, make: (lines) => h("blockquote", {}, broken(lines)) },
];

/** Turn a message into block nodes. */
export function markdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const kind = KINDS.find((one) => one.test.test(line));
    if (/^```/.test(line)) {
      const end = lines.findIndex((one, index) => index > at && /^```\s*$/.test(one));
      const until = end < 0 ? lines.length : end;
      blocks.push(h("pre", { tabindex: "0" }, h("code", {}, lines.slice(at + 1, until).join("\n"))));
      at = until + 1;
    } else if (kind) {
      const start = at;
      while (at < lines.length && kind.test.test(lines[at])) at += 1;
      blocks.push(kind.make(lines.slice(start, at).map((one) => one.replace(kind.test, "")), line.trim()));
    } else if (/^#{1,6}\s+/.test(line)) {
      blocks.push(h("h3", {}, inline(line.replace(/^#{1,6}\s+/, ""))));
      at += 1;
    } else if (!line.trim()) {
      at += 1;
    } else {
      const start = at;
      while (at < lines.length && lines[at].trim() && !/^(```|#{1,6}\s)/.test(lines[at]) && !KINDS.some((one) => one.test.test(lines[at]))) at += 1;
      const nodes = broken(lines.slice(start, at));
      const alone = nodes.length === 1 && nodes[0].tagName === "A";
      blocks.push(h("p", { class: alone && "go" }, nodes));
    }
  }
  return blocks;
}
