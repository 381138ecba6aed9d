/** The stored sessions as the page knows them: one list for the sidebar, the tabs and the status. */

import { Poll } from '@lumino/polling';
import { type ISignal, Signal } from '@lumino/signaling';

import type { SessionInfo, SessionsApi } from './api';
import type { Settings } from './settings';

const PAGE = 100;
const MOST = 1000; // of a list; the server refuses to tell more, and a search finds the others
const WHEN_ASKED_MS = 2 ** 31 - 1; // the longest wait there is

export class Sessions {
  private _found: SessionInfo[] = [];
  private _total = 0;
  private _problem = '';
  private _loaded = false;
  private _query = '';
  private _limit = PAGE;
  private readonly _changed = new Signal<this, void>(this);
  private readonly poll: Poll;

  /** *watched* tells whether anybody looks at the list. */
  constructor(
    readonly api: SessionsApi,
    private readonly settings: Settings,
    watched: () => boolean
  ) {
    this.poll = new Poll({
      name: 'op-jupyter-labextension:sessions',
      factory: () => this.look(),
      frequency: this.frequency,
      standby: () => document.hidden || !watched(),
      auto: false
    });
    settings.changed.connect(() => {
      this.poll.frequency = this.frequency;
      void this.refresh();
    });
  }

  /** After every change of what is below. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get found(): readonly SessionInfo[] {
    return this._found;
  }

  /** Why the list could not be read, or "". */
  get problem(): string {
    return this._problem;
  }

  get loaded(): boolean {
    return this._loaded;
  }

  get query(): string {
    return this._query;
  }

  set query(query: string) {
    if (query !== this._query) {
      this._query = query;
      this._limit = PAGE;
      void this.refresh();
    }
  }

  /** How many there are, also beyond what a list tells. */
  get total(): number {
    return this._total;
  }

  /** Whether there are sessions that only a search finds. */
  get isCut(): boolean {
    return this._total > MOST && this._found.length >= MOST;
  }

  /** Whether `more` can find more. */
  get hasMore(): boolean {
    return this._found.length < Math.min(this._total, MOST);
  }

  more(): void {
    this._limit = Math.min(this._limit + PAGE, MOST);
    void this.refresh();
  }

  /** Look now if somebody watches, and go on looking. */
  refresh(): Promise<void> {
    return this.poll.refresh();
  }

  private get frequency(): { interval: number; backoff: boolean; max: number } {
    const seconds = this.settings.values.refreshSeconds;
    const interval = seconds > 0 ? seconds * 1000 : WHEN_ASKED_MS;
    return { interval, backoff: true, max: Math.max(interval, 60_000) };
  }

  private async look(): Promise<void> {
    const query = this._query;
    const before = JSON.stringify([this._found, this._total, this._problem, this._loaded]);
    try {
      const list = await this.api.list(query, this._limit, this.settings.values.subAgents);
      if (query !== this._query) {
        return; // somebody typed on; the answer to that is on its way
      }
      this._found = list.sessions;
      this._total = list.total;
      this._problem = '';
    } catch (error) {
      this._problem = (error as Error).message;
    }
    this._loaded = true;
    if (JSON.stringify([this._found, this._total, this._problem, true]) !== before) {
      this._changed.emit();
    }
    if (this._problem) {
      throw new Error(this._problem); // the poll then waits longer
    }
  }
}
