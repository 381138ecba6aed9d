/** The renderer of one saved turn: answer, plan, calls, graph, one line of summary. */

import { markdownRendererFactory, MimeModel } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Panel, Widget } from '@lumino/widgets';

// The live view's modules: what they make from text is text nodes, never parsed HTML.
import { preview } from '../../op_jupyter/views/static/calls.js';
import { h } from '../../op_jupyter/views/static/dom.js';
import { icon } from '../../op_jupyter/views/static/icons.js';
import { count, visible } from '../../op_jupyter/views/static/text.js';
import { lookOf, lookup } from '../../op_jupyter/views/static/words.js';
import { savedGraph } from './graph';
import { withoutRemoteImages } from './sanitizer';
import { type Call, type GraphNode, readTurn, type Step, type Turn } from './turn';

export class SavedTurn extends Panel implements IRenderMime.IRenderer {
  constructor(private readonly options: IRenderMime.IRendererOptions) {
    super();
    this.addClass('opv');
    this.addClass('op-saved-turn');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Agent turn, saved');
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const reading = readTurn(model.data[this.options.mimeType]);
    for (const widget of [...this.widgets]) {
      widget.dispose();
    }
    if ('problem' in reading) {
      this.add(note(reading.problem));
      await this.addAnswer(reading.answer);
      return;
    }
    const { turn } = reading;
    await this.addAnswer(turn.answer);
    if (turn.plan.length > 0) {
      this.add(planDetails(turn.plan));
    }
    if (turn.calls.length > 0) {
      this.add(h('div', { class: 'opv-calls' }, turn.calls.map(callDetails)));
    }
    if (turn.nodes.length > 0) {
      this.add(graphDetails(turn.nodes));
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
    const data = { 'text/markdown': visible(answer) };
    await renderer.renderModel(new MimeModel({ data, trusted: false }));
  }
}

function callDetails(call: Call): HTMLElement {
  const boxes = [
    ['Arguments', call.arguments],
    ['Result', call.result]
  ].filter(([, text]) => text);
  return h(
    'details',
    { class: 'opv-call' },
    h(
      'summary',
      {},
      chevron(),
      icon('tool'),
      h('code', {}, h('b', {}, call.name)),
      h('code', { class: 'opv-arg' }, preview(call.name, call.arguments)),
      status(call.status)
    ),
    h(
      'div',
      { class: 'opv-body' },
      boxes.map(([label, text]) =>
        h('pre', { class: 'opv-box', tabindex: '0', 'aria-label': label }, text)
      ),
      boxes.length === 0 && h('p', { class: 'opv-muted' }, 'No arguments, no result.')
    )
  );
}

// status: [icon, tone, spoken]; as in the live view
const STEP_LOOKS: Record<string, [string, string, string]> = {
  completed: ['ok', 'opv-ok', 'done: '],
  in_progress: ['now', 'opv-run', 'in progress: ']
};

function planDetails(steps: Step[]): HTMLElement {
  const done = steps.filter(step => step.status === 'completed').length;
  return h(
    'details',
    { class: 'opv-call op-plan', open: true },
    h('summary', {}, chevron(), icon('list'), `Plan, ${done} of ${steps.length}`),
    h('ol', {}, steps.map(planStep))
  );
}

function planStep(step: Step): HTMLElement {
  const todo = ['todo', 'opv-off', 'to do: '];
  const [name, tone, spoken]: string[] = lookup(STEP_LOOKS, step.status, todo);
  return h(
    'li',
    {},
    h('span', { class: tone }, icon(name)),
    h('span', {}, h('span', { class: 'opv-sr' }, spoken), visible(step.text))
  );
}

function graphDetails(nodes: GraphNode[]): HTMLElement {
  return h(
    'details',
    { class: 'opv-call op-graph', open: true },
    h('summary', {}, chevron(), icon('graph'), `Graph, ${count(nodes.length, 'node')}`),
    savedGraph(nodes)
  );
}

/** The words after the status are kept, as in "done, allowed once". */
function status(words: string): HTMLElement {
  const first = /^[a-z_]+/.exec(words)?.[0] ?? '';
  const look = lookOf(first === 'done' ? 'completed' : first);
  const shown = words === first ? look.word : words;
  return h('span', { class: `opv-state opv-${look.tone}` }, icon(look.icon), h('span', {}, shown));
}

function chevron(): SVGElement {
  return icon('chevron', { class: 'opv-i opv-chev' });
}

function note(problem: string): HTMLElement {
  return h(
    'div',
    { class: 'op-note', role: 'note' },
    h('span', { class: 'opv-warn' }, icon('alert')),
    h('p', {}, problem)
  );
}

function summaryLine(turn: Turn): HTMLElement {
  const look = lookOf(turn.status);
  return h(
    'div',
    { class: 'op-summary' },
    h('span', { class: `opv-${look.tone}` }, icon(look.icon)),
    turn.summary || `OpenProgram: ${turn.status || look.word}`
  );
}
