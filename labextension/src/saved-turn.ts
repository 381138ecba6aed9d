/** The renderer of one saved turn: answer, calls, graph, one line of summary. */

import { markdownRendererFactory, MimeModel } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Panel, Widget } from '@lumino/widgets';

import { html } from './dom';
import { GraphView } from './graph-view';
import { icon } from './icons';
import { withoutRemoteImages } from './sanitizer';
import { lookOf } from './status';
import { type Call, readTurn, type Turn } from './turn';

export class SavedTurn extends Panel implements IRenderMime.IRenderer {
  constructor(private readonly options: IRenderMime.IRendererOptions) {
    super();
    this.addClass('op-turn');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const reading = readTurn(model.data[this.options.mimeType]);
    for (const widget of [...this.widgets]) {
      widget.dispose();
    }
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Agent turn, saved');
    if ('problem' in reading) {
      this.add(note(reading.problem));
      await this.addAnswer(reading.answer);
      return;
    }
    const turn = reading.turn;
    await this.addAnswer(turn.answer);
    if (turn.calls.length > 0) {
      this.add(html('div', { class: 'op-calls' }, ...turn.calls.map(callDetails)));
    }
    if (turn.nodes.length > 0) {
      this.addGraph(turn);
    }
    this.add(summaryLine(turn));
  }

  private add(node: HTMLElement): void {
    this.addWidget(new Widget({ node }));
  }

  private async addAnswer(answer: string): Promise<void> {
    if (!answer) {
      return;
    }
    const renderer = markdownRendererFactory.createRenderer({
      ...this.options,
      mimeType: 'text/markdown',
      sanitizer: withoutRemoteImages(this.options.sanitizer)
    });
    renderer.addClass('op-answer');
    this.addWidget(renderer);
    // Never trusted: a saved answer is a model's text even in a notebook that the user trusts.
    await renderer.renderModel(new MimeModel({ data: { 'text/markdown': answer }, trusted: false }));
  }

  private addGraph(turn: Turn): void {
    const title = `Graph, ${turn.nodes.length} ${turn.nodes.length === 1 ? 'node' : 'nodes'}`;
    const graph = new GraphView(turn.nodes);
    const details = html(
      'details',
      { class: 'op-call op-graph', open: '' },
      html('summary', {}, icon('chevron', { class: 'op-icon op-chevron' }), icon('graph'), title)
    );
    const holder = new Widget({ node: details });
    this.addWidget(holder);
    Widget.attach(graph, details);
    holder.disposed.connect(() => graph.dispose());
  }
}

function callDetails(call: Call): HTMLElement {
  const look = lookOf(call.status);
  const body = html('div', { class: 'op-call-body' });
  if (call.arguments) {
    body.append(box('Arguments', call.arguments));
  }
  if (call.result) {
    body.append(box('Result', call.result));
  }
  if (!body.hasChildNodes()) {
    body.append(html('p', { class: 'op-muted' }, 'No arguments, no result.'));
  }
  return html(
    'details',
    { class: 'op-call' },
    html(
      'summary',
      {},
      icon('chevron', { class: 'op-icon op-chevron' }),
      icon('tool'),
      html('code', { class: 'op-name' }, call.name),
      html('code', { class: 'op-arguments' }, call.arguments.replace(/\s+/g, ' ')),
      html('span', { class: `op-status op-${look.tone}` }, icon(look.icon), look.word)
    ),
    body
  );
}

function box(label: string, text: string): HTMLElement {
  return html('pre', { class: 'op-box', 'aria-label': label, tabindex: '0' }, text);
}

function note(problem: string): HTMLElement {
  return html(
    'div',
    { class: 'op-note', role: 'note' },
    html('span', { class: 'op-warn' }, icon('alert')),
    html('p', {}, problem)
  );
}

function summaryLine(turn: Turn): HTMLElement {
  const look = lookOf(turn.status);
  return html(
    'div',
    { class: 'op-summary' },
    html('span', { class: `op-${look.tone}` }, icon(look.icon)),
    turn.summary || `OpenProgram: ${turn.status || look.word}`
  );
}
