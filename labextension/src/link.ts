/** One notebook's line to its kernel: which session it works in, and what waits there for an answer.

The kernel opens the comm when the extension is loaded there; a page that comes later finds it. A
kernel without it has no comm, and nothing is ever run in a kernel to find out.
*/

import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { type ISignal, Signal } from '@lumino/signaling';

import { list, record, text } from './turn';

export const COMM_TARGET = 'openprogram';

/** A permission request, as the card shows it; see `PermissionRequest.to_json`.  Once it is shown,
it is in the output with the widget *place*. */
export interface Card {
  id: string;
  turn_id: string;
  [member: string]: unknown;
}

/** A question of the program's; its form is the output with the widget *place*. */
export interface Question {
  id: string;
  prompt: string;
  place: string;
}

export class KernelLink {
  private comm: Kernel.IComm | null = null;
  private kernel: Kernel.IKernelConnection | null = null;
  private _sessionId = '';
  private _cards: readonly Card[] = [];
  private _questions: readonly Question[] = [];
  private told = '';
  private readonly _changed = new Signal<this, void>(this);

  constructor(private readonly context: ISessionContext) {
    context.kernelChanged.connect(this.connect, this);
    context.statusChanged.connect(this.onStatus, this);
    this.connect();
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Whether the kernel has the extension loaded. */
  get isLoaded(): boolean {
    return this.comm !== null;
  }

  /** The session that the notebook works in; "" while its kernel tells none. */
  get sessionId(): string {
    return this._sessionId;
  }

  get cards(): readonly Card[] {
    return this._cards;
  }

  get questions(): readonly Question[] {
    return this._questions;
  }

  /** Whether anything waits for an answer. */
  get waits(): boolean {
    return this._cards.length + this._questions.length > 0;
  }

  /** Answer a card.  The first answer of all pages wins; the kernel then tells everyone. */
  decide(card: Card, answer: Record<string, unknown>): void {
    this.comm?.send({ ...(answer as object), kind: 'decide', turn_id: card.turn_id, id: card.id });
  }

  dispose(): void {
    this.context.kernelChanged.disconnect(this.connect, this);
    this.context.statusChanged.disconnect(this.onStatus, this);
    Signal.clearData(this);
  }

  private connect(): void {
    const kernel = this.context.session?.kernel ?? null;
    if (kernel === this.kernel) {
      return;
    }
    this.kernel = kernel;
    this.forget();
    if (kernel === null || !kernel.handleComms) {
      return;
    }
    kernel.registerCommTarget(COMM_TARGET, (comm, message) => this.take(comm, message));
    void this.find(kernel);
  }

  /** A restarted kernel knows nothing of the comm, nor of the cards. */
  private onStatus(_context: ISessionContext, status: Kernel.Status): void {
    if (['restarting', 'autorestarting', 'dead', 'terminating'].includes(status)) {
      this.forget();
    }
  }

  /** The comm that an earlier page was given. */
  private async find(kernel: Kernel.IKernelConnection): Promise<void> {
    const reply = await kernel.requestCommInfo({ target_name: COMM_TARGET }).catch(() => null);
    if (reply?.content.status !== 'ok' || this.kernel !== kernel || this.comm !== null) {
      return;
    }
    const [id] = Object.keys(reply.content.comms);
    if (id === undefined) {
      return;
    }
    const comm = kernel.createComm(COMM_TARGET, id);
    this.use(comm);
    comm.send({ kind: 'hello' });
  }

  private take(comm: Kernel.IComm, message: KernelMessage.ICommOpenMsg): void {
    this.use(comm);
    this.read(message.content.data);
  }

  private use(comm: Kernel.IComm): void {
    this.comm = comm;
    comm.onMsg = message => this.read(message.content.data);
    comm.onClose = () => {
      if (this.comm === comm) {
        this.forget();
      }
    };
  }

  private forget(): void {
    this.comm = null;
    this.read({ kind: 'state' });
  }

  private read(data: unknown): void {
    const said = record(data);
    if (said.kind !== 'state') {
      return;
    }
    const news = JSON.stringify(said);
    if (news !== this.told) {
      this.told = news;
      this._sessionId = text(said.session_id);
      this._cards = list(said.cards)
        .map(record)
        .filter((card): card is Card => typeof card.id === 'string' && text(card.turn_id) !== '');
      this._questions = list(said.questions)
        .map(record)
        .filter(question => text(question.id) !== '')
        .map(({ id, prompt, place }) => ({ id: text(id), prompt: text(prompt), place: text(place) }));
      this._changed.emit();
    }
  }
}
