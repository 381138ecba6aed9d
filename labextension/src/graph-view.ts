/** The graph as a list: one tab stop, arrows move, the details of the selected row beside it. */

import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { html, svg } from './dom';
import { type Graph, layOut, type Row } from './graph';
import { drawGraph, heightOf, optionId, ROW, rowAt, SHOWN_LANES } from './graph-drawing';
import { icon } from './icons';
import { lookOf } from './status';
import type { GraphNode } from './turn';

const OVERSCAN = 8; // rows drawn above and below the view, so that scrolling shows no gap
const PAGE = 10;
let instances = 0;

export class GraphView extends Widget {
  private readonly graph: Graph;
  private readonly idPrefix = `op-graph-${++instances}`;
  private readonly list = svg('svg', {
    class: 'op-list',
    role: 'listbox',
    tabindex: 0,
    'aria-label': 'Graph of the turn, oldest first. Arrow keys move.',
    'data-lm-suppress-shortcuts': 'true' // else the notebook takes the arrow keys for itself
  });
  private readonly scroller = html('div', { class: 'op-scroller' }, this.list);
  private readonly lanes = html('div', { class: 'op-lanes' });
  private readonly details = html('aside', { class: 'op-details', 'aria-live': 'polite' });
  private readonly resized = new ResizeObserver(() => this.draw());
  private selected = 0;
  private call = 0; // which of the calls that share the selected row
  private firstLane = 0;

  constructor(nodes: GraphNode[]) {
    super();
    this.graph = layOut(nodes);
    this.addClass('op-graph-view');
    this.details.setAttribute('aria-label', 'Node details');
    this.node.append(html('div', { class: 'op-graph-main' }, this.scroller, this.lanes), this.details);
    this.list.addEventListener('click', event => this.onClick(event));
    this.list.addEventListener('keydown', event => this.onKey(event));
    this.scroller.addEventListener('scroll', () => this.draw(), { passive: true });
    this.select(0);
  }

  protected override onAfterAttach(_message: Message): void {
    this.resized.observe(this.scroller);
    this.draw();
  }

  protected override onBeforeDetach(_message: Message): void {
    this.resized.disconnect();
  }

  private onClick(event: MouseEvent): void {
    const row = (event.target as Element).closest('[data-row]');
    if (row) {
      this.list.focus({ preventScroll: true });
      this.select(Number(row.getAttribute('data-row')));
    }
  }

  private onKey(event: KeyboardEvent): void {
    const last = this.graph.rows.length - 1;
    const target: Record<string, number> = {
      ArrowDown: this.selected + 1,
      ArrowUp: this.selected - 1,
      PageDown: this.selected + PAGE,
      PageUp: this.selected - PAGE,
      Home: 0,
      End: last
    };
    const row = target[event.key];
    if (row !== undefined) {
      this.select(Math.min(Math.max(row, 0), last));
    } else if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
      this.showLane(this.firstLane + (event.key === 'ArrowLeft' ? -1 : 1));
    } else if (event.key === 'Escape') {
      this.node.parentElement?.closest<HTMLElement>('[tabindex]')?.focus();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private select(index: number, call = 0): void {
    const row = this.graph.rows[index];
    if (!row) {
      return;
    }
    this.selected = index;
    this.call = Math.min(Math.max(call, 0), row.nodes.length - 1);
    this.list.setAttribute('aria-activedescendant', optionId(this.idPrefix, index));
    this.revealRow(index);
    if (row.lane < this.firstLane || row.lane >= this.firstLane + SHOWN_LANES) {
      this.firstLane = Math.max(0, row.lane - SHOWN_LANES + 1);
    }
    this.draw();
    this.details.replaceChildren(...this.describe(row));
  }

  private revealRow(index: number): void {
    const { scrollTop, clientHeight } = this.scroller;
    const top = index * ROW;
    if (top < scrollTop) {
      this.scroller.scrollTop = top;
    } else if (clientHeight > 0 && top + 2 * ROW > scrollTop + clientHeight) {
      this.scroller.scrollTop = top + 2 * ROW - clientHeight;
    }
  }

  private showLane(lane: number): void {
    this.firstLane = Math.min(Math.max(lane, 0), Math.max(0, this.graph.laneCount - SHOWN_LANES));
    this.draw();
  }

  private draw(): void {
    const { clientWidth, clientHeight, scrollTop } = this.scroller;
    const width = clientWidth || 640;
    const height = heightOf(this.graph);
    this.list.setAttribute('width', String(width));
    this.list.setAttribute('height', String(height));
    this.list.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.list.replaceChildren(
      ...drawGraph(this.graph, {
        width,
        from: Math.max(0, rowAt(scrollTop) - OVERSCAN),
        to: rowAt(scrollTop + (clientHeight || 480)) + OVERSCAN,
        firstLane: this.firstLane,
        selected: this.selected,
        idPrefix: this.idPrefix
      })
    );
    this.drawLaneControls();
  }

  private drawLaneControls(): void {
    const hidden = this.graph.laneCount - SHOWN_LANES;
    if (hidden <= 0) {
      return;
    }
    const last = this.firstLane + SHOWN_LANES;
    this.lanes.replaceChildren(
      button('‹', 'Lanes to the left', this.firstLane === 0, () => this.showLane(this.firstLane - 1)),
      `Lanes ${this.firstLane + 1}–${last} of ${this.graph.laneCount}`,
      button('›', 'Lanes to the right', this.firstLane >= hidden, () =>
        this.showLane(this.firstLane + 1)
      )
    );
  }

  private describe(row: Row): Node[] {
    const node = row.nodes[this.call] ?? row.first;
    const look = lookOf(node.status);
    const facts = html('dl', {});
    const fact = (name: string, ...value: (Node | string)[]): void =>
      facts.append(html('dt', {}, name), html('dd', {}, ...value));
    fact('Role', node.kind);
    fact('Status', html('span', { class: `op-status op-${look.tone}` }, icon(look.icon), look.word));
    fact('Caller', this.link(row.caller));
    fact('After', this.link(row.predecessor));
    const title = html(
      'div',
      { class: 'op-details-title' },
      html('span', { class: `op-kind-${node.kind}` }, icon(node.kind)),
      html('code', {}, node.name)
    );
    const parts: Node[] = [title];
    if (row.nodes.length > 1) {
      parts.push(this.callSwitch(row));
    }
    parts.push(facts);
    if (node.label) {
      parts.push(html('pre', { class: 'op-box', tabindex: 0, 'aria-label': 'Text' }, node.label));
    }
    return parts;
  }

  private callSwitch(row: Row): HTMLElement {
    const show = (call: number) => () => this.select(row.index, call);
    return html(
      'div',
      { class: 'op-call-switch' },
      button('‹', 'Previous call', this.call === 0, show(this.call - 1)),
      `call ${this.call + 1} of ${row.nodes.length}`,
      button('›', 'Next call', this.call === row.nodes.length - 1, show(this.call + 1))
    );
  }

  private link(row: Row | null): Node | string {
    if (!row) {
      return 'none';
    }
    const link = html('button', { type: 'button', class: 'op-link' }, row.first.name || row.first.kind);
    link.addEventListener('click', () => {
      this.select(row.index);
      this.list.focus({ preventScroll: true });
    });
    return link;
  }
}

function button(text: string, label: string, disabled: boolean, act: () => void): HTMLButtonElement {
  const made = html('button', { type: 'button', class: 'op-button', 'aria-label': label, title: label }, text);
  made.disabled = disabled;
  made.addEventListener('click', act);
  return made;
}
