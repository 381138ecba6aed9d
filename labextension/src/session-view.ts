/** A stored session in a tab: its turns, and the graph with the details of each node. */

import { Widget } from '@lumino/widgets';

import { DetailsPanel } from '../../op_jupyter/views/static/details.js';
import { h, replace } from '../../op_jupyter/views/static/dom.js';
import { GraphView } from '../../op_jupyter/views/static/graph.js';
import { icon } from '../../op_jupyter/views/static/icons.js';
import { lookOf } from '../../op_jupyter/views/static/words.js';
import type { SessionsApi } from './api';
import { keepShortcuts } from './focus';
import { sessionsIcon } from './icons';
import { readSession, type StoredSession, type StoredTurn } from './session-data';
import { day } from './words';

export class SessionView extends Widget {
  private readonly head: HTMLElement = h('header', { class: 'op-head' });
  private readonly problem: HTMLElement = h('p', { class: 'op-problem', role: 'status' });
  private readonly turns: HTMLElement = h('ol', { class: 'op-turns', 'aria-label': 'Turns' });
  readonly graph: GraphView;
  private readonly details: DetailsPanel;
  private session: StoredSession | null = null;

  constructor(
    private readonly api: SessionsApi,
    readonly sessionId: string
  ) {
    super();
    this.id = `op-session-${sessionId}`;
    this.title.label = sessionId;
    this.title.caption = `OpenProgram session ${sessionId}`;
    this.title.icon = sessionsIcon;
    this.title.closable = true;
    this.addClass('op-session-view');
    this.graph = new GraphView((row: unknown, node: unknown) => this.details.look(row, node));
    this.details = new DetailsPanel(this.graph, {
      ask: (id: string) => void this.ask(id),
      act: () => undefined
    });
    this.graph.scroller.setAttribute('aria-label', 'Graph of the session, oldest first');
    keepShortcuts(this.node);
    this.node.append(
      h(
        'section',
        { class: 'opv', 'aria-label': `Session ${sessionId}` },
        this.head,
        this.problem,
        this.turns,
        h('div', { class: 'opv-dag' }, this.graph.element, this.details.element)
      )
    );
  }

  /** Read the session anew; what is selected stays so. */
  async refresh(): Promise<void> {
    try {
      this.session = readSession(await this.api.session(this.sessionId));
    } catch (error) {
      replace(this.problem, icon('alert'), ' ', (error as Error).message);
      return;
    }
    replace(this.problem);
    this.draw(this.session);
  }

  protected override onAfterShow(): void {
    this.graph.draw();
  }

  protected override onResize(): void {
    this.graph.draw();
  }

  protected override onActivateRequest(): void {
    this.graph.scroller.focus();
  }

  private draw(session: StoredSession): void {
    this.title.label = session.title || session.id;
    replace(
      this.head,
      h('h3', {}, session.title || 'Untitled session'),
      h('p', { class: 'opv-muted' }, h('code', {}, session.id), ` · ${session.summary}`)
    );
    replace(
      this.turns,
      session.turns.map(turn => this.turn(turn))
    );
    this.graph.update(session.nodes, null);
    this.details.refresh();
    if (this.graph.selected === null && session.nodes.length > 0) {
      this.graph.select(0);
    }
  }

  private turn(turn: StoredTurn): HTMLElement {
    const look = lookOf(turn.status === 'done' ? 'completed' : turn.status);
    const select = (): void => {
      const first = this.session?.nodes.find(node => node.turnId === turn.id);
      if (first) {
        this.graph.selectNode(first.id);
        this.graph.scroller.focus();
      }
    };
    return h(
      'li',
      {},
      h('span', { class: `opv-${look.tone} op-mark`, title: look.word }, icon(look.icon)),
      h('button', { type: 'button', class: 'opv-link', onclick: select }, turn.subject || turn.id),
      h('span', { class: 'opv-muted op-when' }, look.word, ' · ', day(turn.startedAt)),
      turn.failure && h('p', { class: 'opv-err' }, turn.failure)
    );
  }

  private async ask(id: string): Promise<void> {
    try {
      const { permission, input, output } = await this.api.node(this.sessionId, id);
      this.details.receive({ id, permission, input, output });
    } catch (error) {
      const { message } = error as Error;
      this.details.receive({ id, permission: '', input: '', output: message });
    }
  }
}
