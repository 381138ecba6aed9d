/** The commands, and which of them the palette lists. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { type ICommandPalette, Notification } from '@jupyterlab/apputils';

import type { Answering } from './answering';
import { type Approvals, cardElement, focusCard } from './approvals';
import type { Desk } from './desk';
import { sessionsIcon } from './icons';
import type { Notebooks } from './notebooks';
import { record, text } from './turn';

const CATEGORY = 'OpenProgram';

export function addCommands(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  desk: Desk,
  notebooks: Notebooks,
  approvals: Approvals,
  answering: Answering
): void {
  const { commands } = app;
  const add = (name: string, label: string, execute: (id: string) => void, enabled = always): void => {
    commands.addCommand(`openprogram:${name}`, {
      label,
      icon: sessionsIcon,
      isEnabled: enabled,
      execute: args => execute(text(record(args).id))
    });
    palette?.addItem({ command: `openprogram:${name}`, category: CATEGORY });
  };
  const here = (id: string): string => id || (notebooks.current?.link.sessionId ?? '');
  const inSession = (): boolean => here('') !== '';
  const waits = (): boolean => approvals.waiting !== null;

  add('show-sessions', 'Show Sessions', () => desk.show());
  add('open-session', 'Open the Graph of This Session', id => void desk.open(here(id)), inSession);
  add('copy-session-id', 'Copy the Id of This Session', id => void desk.copy(here(id)), inSession);
  commands.addCommand('openprogram:resume-session', {
    label: 'Resume a Session in This Notebook',
    execute: args => desk.resume(text(record(args).id))
  });
  const nearest = (act: (notebook: NonNullable<typeof approvals.waiting>) => void) => () => {
    const { waiting } = approvals;
    if (waiting) {
      act(waiting);
    }
  };
  const show = (): void => {
    const { waiting, asking } = approvals;
    if (waiting) {
      void approvals.show(waiting);
    } else if (asking) {
      void approvals.showQuestion(asking);
    }
  };
  const anything = (): boolean => waits() || approvals.asking !== null;
  add('show-approval', 'Go to the Waiting Approval or Question', show, anything);
  add('review-approval', 'Review the Waiting Approval', nearest(found => approvals.open(found)), waits);
  for (const [name, label] of [
    ['deny', 'Deny the Approval in View'],
    ['allow', 'Allow the Approval in View, Once']
  ] as const) {
    const answer = nearest(found => {
      const [request] = found.link.cards;
      const card = request && found.panel.isVisible ? cardElement(found, request) : null;
      if (card === null) {
        void approvals.show(found);
      } else if (!answering.answer(card, name, focusCard)) {
        Notification.info(`Read the card, then repeat the command, or press a key of the card.`, {
          autoClose: 4000
        });
      }
    });
    add(`${name}-approval`, label, answer, waits);
  }
}

const always = (): boolean => true;
