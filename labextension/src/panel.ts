/** The sidebar: search, and one entry a session that opens to what can be done with it. */

import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { h, replace } from '../../op_jupyter/views/static/dom.js';
import { icon } from '../../op_jupyter/views/static/icons.js';
import { count } from '../../op_jupyter/views/static/text.js';
import { lookOf, thousands } from '../../op_jupyter/views/static/words.js';
import { type Format, FORMATS, type SessionInfo } from './api';
import { keepShortcuts } from './focus';
import { sessionsIcon } from './icons';
import type { Sessions } from './sessions';
import { day } from './words';

const SEARCH_MS = 250;

/** What the buttons of an entry do. */
export interface Actions {
  resume(id: string): void;
  open(id: string): void;
  copy(id: string): void;
  save(id: string, format: Format): void;
  trash(session: SessionInfo): void;
}

export class SessionsPanel extends Widget {
  private readonly search: HTMLInputElement;
  private readonly told: HTMLElement = h('p', { class: 'op-told', role: 'status' });
  private readonly entries: HTMLElement = h('ul', { class: 'op-entries', 'aria-label': 'Sessions' });
  private readonly more: HTMLButtonElement;
  private opened = '';
  private current = '';
  private typing = 0;

  constructor(
    private readonly sessions: Sessions,
    private readonly actions: Actions
  ) {
    super();
    this.id = 'op-sessions';
    this.title.icon = sessionsIcon;
    this.title.caption = 'OpenProgram sessions';
    this.addClass('op-sessions');
    this.addClass('opv');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'OpenProgram sessions');
    this.search = h('input', {
      type: 'search',
      placeholder: 'Search sessions',
      'aria-label': 'Search sessions',
      oninput: () => this.searchSoon()
    });
    const refresh = button('Refresh', () => void sessions.refresh());
    this.more = button('Show more', () => sessions.more());
    this.node.append(
      h('div', { class: 'op-top' }, h('h2', {}, 'Sessions'), refresh),
      h('div', { class: 'op-search' }, this.search),
      this.told,
      this.entries,
      this.more
    );
    keepShortcuts(this.node);
    this.entries.addEventListener('keydown', event => this.key(event));
    sessions.changed.connect(() => this.draw());
    this.draw();
  }

  /** The session of the notebook in front, which is marked. */
  set currentSession(id: string) {
    if (id !== this.current) {
      this.current = id;
      this.draw();
    }
  }

  /** Open the entry of a session and put the focus there. */
  reveal(id: string): void {
    this.opened = id;
    this.draw();
    this.entryOf(id)?.focus();
  }

  /** Put the focus on the entry that is open, or into the search. */
  takeFocus(): void {
    (this.entryOf(this.opened) ?? this.search).focus();
  }

  protected override onAfterShow(_message: Message): void {
    void this.sessions.refresh();
  }

  protected override onActivateRequest(_message: Message): void {
    this.takeFocus();
  }

  private searchSoon(): void {
    clearTimeout(this.typing);
    this.typing = window.setTimeout(() => {
      this.sessions.query = this.search.value.trim();
    }, SEARCH_MS);
  }

  private draw(): void {
    const { found, hasMore, problem, loaded, query, isCut, total } = this.sessions;
    const focused = this.focused();
    replace(
      this.entries,
      found.map(session => this.entry(session))
    );
    this.more.hidden = !hasMore;
    const words =
      problem ||
      (!loaded ? 'Reading…' : isCut ? cut(found.length, total) : found.length > 0 ? '' : nothing(query));
    replace(this.told, problem ? [icon('alert'), ' '] : null, words);
    this.told.classList.toggle('opv-err', problem !== '');
    this.node.dataset.loaded = String(loaded);
    if (focused) {
      this.entries.querySelector<HTMLElement>(focused)?.focus();
    }
  }

  private entry(session: SessionInfo): HTMLElement {
    const look = lookOf(session.last_status);
    const open = session.id === this.opened;
    const here = session.id === this.current;
    const title = session.title || 'Untitled';
    const file = session.notebook.split('/').pop() ?? '';
    const [first] = this.sessions.found;
    const reachable = this.opened ? open : session === first;
    return h(
      'li',
      { 'data-id': session.id, class: here ? 'op-here' : null },
      h(
        'button',
        {
          type: 'button',
          class: 'op-entry',
          'data-what': 'entry',
          'aria-expanded': String(open),
          tabindex: reachable ? '0' : '-1',
          onclick: () => this.toggle(session.id)
        },
        h('span', { class: `opv-${look.tone}` }, icon(session.last_status ? look.icon : 'todo')),
        h('span', { class: 'op-name' }, title),
        h(
          'span',
          { class: 'op-about' },
          [here && 'this notebook', session.last_status && look.word, count(session.turns, 'turn')]
            .concat(day(session.updated_at))
            .filter(Boolean)
            .join(' · ')
        ),
        session.snippet && h('span', { class: 'op-about op-snippet' }, session.snippet)
      ),
      open && this.deeds(session, file)
    );
  }

  private deeds(session: SessionInfo, file: string): HTMLElement {
    const { actions } = this;
    const deed = (text: string, name: string, act: () => void): HTMLElement =>
      h(
        'button',
        { type: 'button', class: 'opv-btn opv-sm', 'data-what': name, onclick: act },
        icon(name),
        text
      );
    return h(
      'div',
      { class: 'op-deeds' },
      h('p', { class: 'opv-muted' }, h('code', {}, session.id)),
      file && h('p', { class: 'opv-muted', title: session.notebook }, `from ${file}`),
      h(
        'div',
        { class: 'op-buttons' },
        deed('Open graph', 'graph', () => actions.open(session.id)),
        deed('Resume in notebook', 'undo', () => actions.resume(session.id)),
        deed('Copy id', 'copy', () => actions.copy(session.id)),
        deed('Delete…', 'failed', () => actions.trash(session))
      ),
      h(
        'div',
        { class: 'op-exports', role: 'group', 'aria-label': 'Export as' },
        h('span', { class: 'opv-muted', 'aria-hidden': 'true' }, 'Export as'),
        (Object.keys(FORMATS) as Format[]).map(format =>
          h(
            'button',
            {
              type: 'button',
              class: 'opv-link',
              'data-what': `export-${format}`,
              onclick: () => actions.save(session.id, format)
            },
            FORMATS[format]
          )
        )
      )
    );
  }

  private toggle(id: string): void {
    this.opened = this.opened === id ? '' : id;
    this.draw();
    this.entryOf(id)?.focus();
  }

  private entryOf(id: string): HTMLElement | null {
    return id ? this.entries.querySelector(`${ofSession(id)} [data-what="entry"]`) : null;
  }

  /** How to find the element that has the focus in the next drawing. */
  private focused(): string {
    const element = document.activeElement;
    const id = element?.closest<HTMLElement>('[data-id]')?.dataset.id;
    const what = element?.getAttribute('data-what');
    return id && what && this.entries.contains(element)
      ? `${ofSession(id)} [data-what="${CSS.escape(what)}"]`
      : '';
  }

  private key(event: KeyboardEvent): void {
    const all = [...this.entries.querySelectorAll<HTMLElement>('.op-entry')];
    const now = all.findIndex(entry => entry.parentElement?.contains(document.activeElement));
    const targets: Record<string, number> = {
      ArrowDown: Math.min(now + 1, all.length - 1),
      ArrowUp: Math.max(now - 1, 0),
      Home: 0,
      End: all.length - 1
    };
    const target = targets[event.key];
    if (target === undefined || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    for (const entry of all) {
      entry.tabIndex = -1;
    }
    const entry = all[target];
    if (entry) {
      entry.tabIndex = 0;
      entry.focus();
    }
  }
}

function ofSession(id: string): string {
  return `[data-id="${CSS.escape(id)}"]`;
}

function cut(listed: number, total: number): string {
  return `The newest ${thousands(listed)} of ${thousands(total)}; a search finds the others.`;
}

function nothing(query: string): string {
  return query
    ? 'No session fits this search.'
    : 'There are no sessions yet; a %%agent cell makes the first.';
}

function button(text: string, act: () => void): HTMLButtonElement {
  return h('button', { type: 'button', class: 'opv-btn opv-sm', onclick: act }, text);
}
