/** Shapes of the graph: time runs down, one row a node, one lane per branch and call depth. */

import { svg } from './dom';
import { describe, type Graph, type Row } from './graph';
import { icon } from './icons';

export const ROW = 28;
export const LANE = 26;
export const SHOWN_LANES = 6;

const MARGIN = 8;
const PAD = 18;
const GUTTER = SHOWN_LANES * LANE + 12;
const RADIUS = 8;
const STATUS_WIDTH = 128;

export interface View {
  width: number;
  from: number; // first and last row to draw
  to: number;
  firstLane: number;
  selected: number;
  idPrefix: string;
}

export const heightOf = (graph: Graph): number => 2 * MARGIN + graph.rows.length * ROW;
export const rowAt = (y: number): number => Math.floor((y - MARGIN) / ROW);
export const optionId = (prefix: string, row: number): string => `${prefix}-${row}`;

/** Everything inside the list's `<svg>`, for the rows in view. */
export function drawGraph(graph: Graph, view: View): SVGElement[] {
  const rows = graph.rows.slice(view.from, view.to + 1);
  const inView = (a: Row, b: Row): boolean => b.index >= view.from && a.index <= view.to;
  const edges: SVGElement[] = [];
  for (const row of graph.rows) {
    if (row.predecessor && inView(row.predecessor, row)) {
      edges.push(...comesAfter(row.predecessor, row));
    }
    if (row.caller && inView(row.caller, row)) {
      edges.push(...calledBy(row.caller, row));
    }
  }
  const lanes = Array.from({ length: graph.laneCount }, (_, lane) =>
    svg('path', { class: 'op-lane', d: `M${xOf(lane)} 4V${heightOf(graph) - 4}` })
  );
  // A nested svg clips: more lanes than fit scroll inside the gutter, and the text stays in place.
  const gutter = svg(
    'svg',
    { width: GUTTER, height: heightOf(graph), 'aria-hidden': 'true', 'pointer-events': 'none' },
    svg(
      'g',
      { transform: `translate(${-view.firstLane * LANE} 0)` },
      ...lanes,
      ...edges,
      ...rows.map(glyph)
    )
  );
  return [...rows.map(row => option(row, graph, view)), gutter];
}

const xOf = (lane: number): number => PAD + lane * LANE;
const yOf = (row: Row): number => MARGIN + row.index * ROW + ROW / 2;

function option(row: Row, graph: Graph, view: View): SVGElement {
  const { first, nodes, look } = row;
  const y = yOf(row);
  const selected = row.index === view.selected;
  const group = svg(
    'g',
    {
      class: 'op-row',
      id: optionId(view.idPrefix, row.index),
      role: 'option',
      'aria-selected': String(selected),
      'aria-label': describe(row),
      'aria-setsize': graph.rows.length,
      'aria-posinset': row.index + 1,
      'data-row': row.index
    },
    svg('rect', { class: 'op-hit', x: 1, y: y - ROW / 2 + 0.5, width: Math.max(view.width - 2, 0), height: ROW - 1 }),
    svg('rect', { class: 'op-bar', x: 0, y: y - ROW / 2 + 0.5, width: 3, height: ROW - 1 })
  );

  const statusX = Math.max(view.width - STATUS_WIDTH, GUTTER + 40);
  let x = GUTTER + 4;
  const name = cut(first.name, statusX - x - 8, 'code');
  group.append(svg('text', { class: 'op-name', x, y: y + 4 }, name));
  x += widthOf(name, 'code') + 10;

  if (nodes.length > 1) {
    const times = `×${nodes.length}`;
    const width = Math.ceil(widthOf(times, 'ui')) + 10;
    group.append(
      svg('rect', { class: 'op-fold', x, y: y - 8, width, height: 16, rx: 2 }),
      svg('text', { class: 'op-times', x: x + width / 2, y: y + 4, 'text-anchor': 'middle' }, times)
    );
    x += width + 8;
  }
  const label = cut(first.label, statusX - x - 8, 'ui');
  group.append(svg('text', { class: 'op-label', x, y: y + 4 }, label));

  if (first.kind !== 'user' || look.word !== 'done') {
    group.append(
      svg(
        'g',
        { class: `op-${look.tone}` },
        icon(look.icon, { x: statusX, y: y - 7, width: 14, height: 14 })
      ),
      svg('text', { x: statusX + 18, y: y + 4 }, cut(look.word, STATUS_WIDTH - 26, 'ui'))
    );
  }
  return group;
}

/** The shape tells the role, the icon repeats it. */
function glyph(row: Row): SVGElement {
  const [x, y] = [xOf(row.lane), yOf(row)];
  const { kind } = row.first;
  const shape =
    kind === 'user'
      ? svg('circle', { cx: x, cy: y, r: RADIUS })
      : kind === 'function'
        ? svg('path', { d: `M${x - 9} ${y}l4.5-8h9l4.5 8l-4.5 8h-9z` })
        : svg('rect', {
            x: x - RADIUS,
            y: y - RADIUS,
            width: 2 * RADIUS,
            height: 2 * RADIUS,
            rx: kind === 'model' ? 4 : 0
          });
  shape.setAttribute('class', 'op-shape');
  if (row.look.tone === 'off') {
    shape.setAttribute('stroke-dasharray', '2 2');
  }
  const tone = row.look.word === 'failed' ? 'op-err' : `op-kind-${kind}`;
  return svg('g', { class: tone }, shape, icon(kind, { x: x - 6, y: y - 6, width: 12, height: 12 }));
}

/** Solid, in the lane's centre, with an arrow. */
function comesAfter(before: Row, after: Row): SVGElement[] {
  const [x1, y1, x2, y2] = [xOf(before.lane), yOf(before), xOf(after.lane), yOf(after)];
  const side = Math.sign(x2 - x1);
  const d =
    side === 0
      ? `M${x1} ${y1 + RADIUS}V${y2 - RADIUS - 5}`
      : `M${x1 + side * 4} ${y1 + RADIUS}v1q0 4 ${side * 4} 4H${x2 - side * 5}` +
        `q${side * 5} 0 ${side * 5} 5V${y2 - RADIUS - 5}`;
  return [
    svg('path', { class: 'op-after', d }),
    svg('path', { class: 'op-arrow', d: `M${x2 - 3.5} ${y2 - RADIUS - 6}h7l-3.5 5z` })
  ];
}

/** Dashed, in the gutter right of the caller's lane, with a dot at the caller. */
function calledBy(caller: Row, called: Row): SVGElement[] {
  const [x1, y1, x2, y2] = [xOf(caller.lane), yOf(caller), xOf(called.lane), yOf(called)];
  const trunk = x1 + LANE / 2;
  return [
    svg('path', {
      class: 'op-caller',
      d: `M${x1 + RADIUS + 1} ${y1}H${trunk - 3}q3 0 3 3V${y2 - 4}q0 4 4 4H${x2 - RADIUS - 1}`
    }),
    svg('circle', { class: 'op-dot', cx: x1 + RADIUS + 1, cy: y1, r: 2.5 })
  ];
}

// ------------------------------------------------------------------ text that fits

type Font = 'ui' | 'code';
let pen: CanvasRenderingContext2D | null | undefined;

function widthOf(text: string, font: Font): number {
  pen ??= document.createElement('canvas').getContext('2d');
  if (!pen) {
    return text.length * 7;
  }
  const style = getComputedStyle(document.body);
  const family = style.getPropertyValue(font === 'ui' ? '--jp-ui-font-family' : '--jp-code-font-family');
  pen.font = font === 'ui' ? `12px ${family || 'sans-serif'}` : `600 12px ${family || 'monospace'}`;
  return pen.measureText(text).width;
}

/** *text*, or as much of it as *width* holds and "…"; the details panel shows all of it. */
function cut(text: string, width: number, font: Font): string {
  const line = text.replace(/\s+/g, ' ').slice(0, 400);
  if (widthOf(line, font) <= width) {
    return line;
  }
  let [fits, tooLong] = [0, line.length];
  while (tooLong - fits > 1) {
    const middle = (fits + tooLong) >> 1;
    if (widthOf(`${line.slice(0, middle)}…`, font) <= width) {
      fits = middle;
    } else {
      tooLong = middle;
    }
  }
  return fits > 0 ? `${line.slice(0, fits).trimEnd()}…` : '';
}
